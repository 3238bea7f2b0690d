package org.apache.hadoop.hive.llap.security;

/** Absent from PySpark's jars; only its type is ever asked for. */
public interface LlapSigner {
  interface Signable {}
}
