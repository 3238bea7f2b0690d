package servers;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.UUID;

/**
 * A job for a cluster, as small as can be: {@code ClusterJob DIRECTORY GATE} notes in DIRECTORY/log
 * that it begins and, once the file GATE exists, that it ends.
 */
public final class ClusterJob {
  private static final int POLL_MS = 50;

  private ClusterJob() {}

  public static void main(String[] args) throws Exception {
    Path log = Path.of(args[0], "log");
    String id = UUID.randomUUID() + " " + System.getProperty("spark.hivelock.token");
    note(log, "begin " + id);
    while (!Files.exists(Path.of(args[1]))) {
      Thread.sleep(POLL_MS);
    }
    note(log, "end " + id);
  }

  private static void note(Path log, String line) throws IOException {
    Files.writeString(
        log, line + "\n", StandardOpenOption.CREATE, StandardOpenOption.APPEND, StandardOpenOption.SYNC);
  }
}
