package servers;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/**
 * A job for a cluster, as small as can be: {@code ClusterJob LOG GATE} appends to LOG that it begins
 * and, once the file GATE exists, that it ends, each with the token that it was started with.
 */
public final class ClusterJob {
  private static final int POLL_MS = 50;

  private ClusterJob() {}

  public static void main(String[] args) throws Exception {
    note(args[0], "begin");
    while (!Files.exists(Path.of(args[1]))) {
      Thread.sleep(POLL_MS);
    }
    note(args[0], "end");
  }

  private static void note(String log, String what) throws IOException {
    String line = what + " " + System.getProperty("spark.hivelock.token") + "\n";
    Files.writeString(Path.of(log), line, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
  }
}
