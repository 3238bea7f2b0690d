"""Calls to Hive's metastore and to HiveServer2, and Hive's own settings."""
