"""What becomes of order and priority between the lock store's queue and the worker slot: ``python -m tests.bench.contention``."""
