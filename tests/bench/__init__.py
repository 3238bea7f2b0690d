"""What the locks cost, beside Hive's own, kazoo's recipes and what ZooKeeper itself takes: ``python -m tests.bench``."""
