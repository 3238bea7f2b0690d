"""Faults of networks, disks and clocks under the lock stores, and what must hold after them: docs/faults.md.

``make test-faults`` runs all; without ``FAULTS=1`` only those that take seconds. Kills of processes and servers are in
tests/system/histories and tests/system/deaths.
"""
