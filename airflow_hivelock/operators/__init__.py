"""The operators and their common parts."""
