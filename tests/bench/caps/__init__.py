"""The effect of a cap on a rerun while some of its days wait for a lock: ``python -m tests.bench.caps``."""
