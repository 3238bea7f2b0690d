"""What is published: built twice, checked, installed in an empty environment and tried there. ``make release``."""
