"""The cost of the locks, compared with Hive's own, kazoo's recipes and bare ZooKeeper: ``python -m tests.bench``."""
