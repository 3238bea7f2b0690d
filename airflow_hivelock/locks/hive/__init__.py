"""Calls to Hive's servers, the metastore and HiveServer2, and Hive's own settings."""
