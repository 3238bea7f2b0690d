package org.apache.hadoop.hive.llap.io.api;

/** Absent from PySpark's jars; Hive's function registry waits for ever without it. */
public interface LlapIo<T> {}
