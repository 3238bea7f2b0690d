"""For how long a rerun locks its days, by its way to lock: ``python -m tests.bench.waiting rerun``."""
