"""What a network, a disk and a clock can do to the lock stores, and what must hold afterwards: docs/faults.md.

``make test-faults`` runs all; without ``FAULTS=1`` only what takes seconds. Kills of processes and servers are
tests/system/histories' and tests/system/deaths'.
"""
