"""The operators, and what they have in common."""
