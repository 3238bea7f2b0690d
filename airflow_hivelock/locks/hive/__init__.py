"""What is said to Hive's servers: the metastore, HiveServer2."""
