package servers;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.StreamSupport;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.ql.lockmgr.HiveLock;
import org.apache.hadoop.hive.ql.lockmgr.HiveLockManagerCtx;
import org.apache.hadoop.hive.ql.lockmgr.HiveLockMode;
import org.apache.hadoop.hive.ql.lockmgr.HiveLockObj;
import org.apache.hadoop.hive.ql.lockmgr.HiveLockObject;
import org.apache.hadoop.hive.ql.lockmgr.HiveLockObject.HiveLockObjectData;
import org.apache.hadoop.hive.ql.lockmgr.LockException;
import org.apache.hadoop.hive.ql.lockmgr.zookeeper.ZooKeeperHiveLockManager;

/**
 * Real Hive's ZooKeeper lock manager without the rest of Hive. A {@link Sessions session} is a lock
 * manager, and holds the locks of one query at a time:
 *
 * <pre>
 *   {"open": {"hive.zookeeper.quorum": "127.0.0.1:2181"}}                        []
 *   {"lock": [{"path": ["dw"], "mode": "SHARED"}], "query": "select 1"}          ["granted", "5.2"]
 *   {"unlock": true}                                                             ["4.7"]
 *   {"close": true}                                                              []
 * </pre>
 *
 * The answer to lock is {@code granted} or {@code refused}; the numbers are milliseconds.
 */
public final class LockManagerMain implements Sessions.Session {
  private static final ObjectMapper JSON = new ObjectMapper();

  // All managers of a JVM share one connection, which stays when one of them is closed.
  private ZooKeeperHiveLockManager manager;
  private List<HiveLock> held = List.of();

  public static void main(String[] args) throws Exception {
    Sessions.serve(LockManagerMain::new);
  }

  @Override
  public Sessions.Reply run(String statement) throws LockException, IOException {
    JsonNode asked = JSON.readTree(statement);
    List<String> rows =
        asked.has("open")
            ? open(asked.get("open"))
            : asked.has("lock")
                ? lock(asked.get("lock"), asked.get("query").asText())
                : asked.has("unlock") ? unlock() : closed();
    return new Sessions.Reply(0, rows, null);
  }

  @Override
  public void close() throws LockException {
    unlock();
  }

  private List<String> open(JsonNode settings) throws LockException {
    HiveConf conf = new HiveConf(LockManagerMain.class);
    settings.fields().forEachRemaining(entry -> conf.set(entry.getKey(), entry.getValue().asText()));
    manager = new ZooKeeperHiveLockManager();
    manager.setContext(new HiveLockManagerCtx(conf));
    return List.of();
  }

  private List<String> lock(JsonNode locks, String query) throws LockException {
    if (!held.isEmpty()) {
      throw new IllegalStateException("unlock first: " + held);
    }
    String now = String.valueOf(System.currentTimeMillis());
    HiveLockObjectData data = new HiveLockObjectData("query-" + now, now, "IMPLICIT", query);
    List<HiveLockObj> wanted = new ArrayList<>();
    for (JsonNode lock : locks) {
      HiveLockMode mode = HiveLockMode.valueOf(lock.get("mode").asText());
      wanted.add(new HiveLockObj(new HiveLockObject(path(lock), data), mode));
    }
    long begun = System.nanoTime();
    List<HiveLock> granted = manager.lock(wanted, false, null);
    String ms = since(begun);
    held = granted == null ? List.of() : granted;
    return List.of(granted == null ? "refused" : "granted", ms);
  }

  private List<String> unlock() {
    long begun = System.nanoTime();
    if (!held.isEmpty()) {
      manager.releaseLocks(held);
    }
    held = List.of();
    return List.of(since(begun));
  }

  /** As a session does at its end: with hive.zookeeper.clean.extra.nodes, all empty nodes go. */
  private List<String> closed() throws LockException {
    unlock();
    manager.close();
    return List.of();
  }

  private static String[] path(JsonNode lock) {
    return StreamSupport.stream(lock.get("path").spliterator(), false)
        .map(JsonNode::asText)
        .toArray(String[]::new);
  }

  private static String since(long begun) {
    return String.valueOf((System.nanoTime() - begun) / 1e6);
  }
}
