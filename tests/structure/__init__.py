"""How simple the package is, in figures: its own structure, and the way of one acquire through it."""
