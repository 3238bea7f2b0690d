"""What becomes of a rerun whose work is capped while some of its days wait for a lock: ``python -m tests.bench.caps``."""
