"""The work under a lease, and whether it has ended."""
