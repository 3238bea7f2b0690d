package org.apache.hadoop.hive.llap.io.api;

/** Absent from PySpark's jars: says that this JVM is no LLAP daemon. */
public final class LlapProxy {
  private LlapProxy() {}

  public static boolean isDaemon() {
    return false;
  }

  public static LlapIo<?> getIo() {
    return null;
  }
}
