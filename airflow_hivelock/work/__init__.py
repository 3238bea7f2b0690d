"""Whose work runs under a lease, and whether it has ended."""
