package servers;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Arrays;
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
import org.apache.hadoop.hive.ql.metadata.Hive;
import org.apache.hadoop.hive.ql.metadata.HiveException;

/**
 * Real Hive's ZooKeeper lock manager without the rest of Hive. A {@link Sessions session} is a lock
 * manager, and holds the locks of one query at a time:
 *
 * <pre>
 *   {"open": {"hive.zookeeper.quorum": "127.0.0.1:2181"}}                        []
 *   {"lock": [{"path": ["dw"], "mode": "SHARED"}], "query": "select 1"}          ["granted", "5.2"]
 *   {"unlock": true}                                                             ["4.7"]
 *   {"list": null}                                                               ["[\\"dw\\", \\"SHARED\\", …]"]
 *   {"free": ["dw"]}                                                             ["1"]
 *   {"close": true}                                                              []
 * </pre>
 *
 * The answer to lock is {@code granted} or {@code refused}; the numbers are milliseconds. A lock with {@code explicit}
 * is one of LOCK TABLE. List is what SHOW LOCKS EXTENDED asks for: of each lock its object, its mode and the four fields
 * that are printed. Free is what UNLOCK TABLE asks for, and answers how many locks it has freed.
 *
 * <p>It runs with any Hive from 2.3 to 4.2. What differs between them is found by name.
 */
public final class LockManagerMain implements Sessions.Session {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final Method LOCK =
      Arrays.stream(ZooKeeperHiveLockManager.class.getMethods())
          .filter(method -> method.getName().equals("lock"))
          .filter(method -> method.getParameterTypes()[0] == List.class)
          .findAny()
          .orElseThrow();
  private static final Constructor<?> DATA =
      Arrays.stream(HiveLockObjectData.class.getConstructors())
          .filter(constructor -> constructor.getParameterCount() >= 4)
          .findAny()
          .orElseThrow();

  private HiveConf conf;
  // All managers of a JVM share one connection, which stays when one of them is closed.
  private ZooKeeperHiveLockManager manager;
  private List<HiveLock> held = List.of();

  public static void main(String[] args) throws Exception {
    Sessions.serve(LockManagerMain::new);
  }

  @Override
  public Sessions.Reply run(String statement) throws Exception {
    JsonNode asked = JSON.readTree(statement);
    List<String> rows =
        switch (asked.fieldNames().next()) {
          case "open" -> open(asked.get("open"));
          case "lock" -> lock(asked);
          case "unlock" -> unlock();
          case "list" -> list();
          case "free" -> free(path(asked.get("free")));
          case "close" -> closed();
          default -> throw new IllegalArgumentException(statement);
        };
    return new Sessions.Reply(0, rows, null);
  }

  @Override
  public void close() throws LockException {
    unlock();
  }

  private List<String> open(JsonNode settings) throws HiveException {
    conf = new HiveConf(LockManagerMain.class);
    settings.fields().forEachRemaining(entry -> conf.set(entry.getKey(), entry.getValue().asText()));
    Hive.getWithoutRegisterFns(conf); // listing wants one at hand, and asks it nothing: no metastore is needed
    manager = new ZooKeeperHiveLockManager();
    manager.setContext(new HiveLockManagerCtx(conf));
    return List.of();
  }

  @SuppressWarnings("unchecked")
  private List<String> lock(JsonNode asked) throws ReflectiveOperationException {
    if (!held.isEmpty()) {
      throw new IllegalStateException("unlock first: " + held);
    }
    boolean explicit = asked.get("explicit").asBoolean();
    HiveLockObjectData data = data(asked.get("query").asText(), explicit);
    List<HiveLockObj> wanted = new ArrayList<>();
    for (JsonNode lock : asked.get("lock")) {
      HiveLockMode mode = HiveLockMode.valueOf(lock.get("mode").asText());
      wanted.add(new HiveLockObj(new HiveLockObject(path(lock.get("path")), data), mode));
    }
    long begun = System.nanoTime();
    List<HiveLock> granted = (List<HiveLock>) LOCK.invoke(manager, wanted, explicit, null);
    String ms = since(begun);
    held = granted == null ? List.of() : granted;
    return List.of(granted == null ? "refused" : "granted", ms);
  }

  /** From 3.0 on the configuration says how much is kept of a query. */
  private HiveLockObjectData data(String query, boolean explicit)
      throws ReflectiveOperationException {
    String now = String.valueOf(System.currentTimeMillis());
    Object[] fields = {"query-" + now, now, explicit ? "EXPLICIT" : "IMPLICIT", query, conf};
    return (HiveLockObjectData)
        DATA.newInstance(Arrays.copyOf(fields, DATA.getParameterCount()));
  }

  private List<String> unlock() {
    long begun = System.nanoTime();
    if (!held.isEmpty()) {
      manager.releaseLocks(held);
    }
    held = List.of();
    return List.of(since(begun));
  }

  private List<String> list() throws IOException, LockException {
    List<String> rows = new ArrayList<>();
    for (HiveLock lock : manager.getLocks(false, true)) {
      HiveLockObject locked = lock.getHiveLockObject();
      HiveLockObjectData data = locked.getData();
      List<String> row = new ArrayList<>(List.of(locked.getDisplayName(), lock.getHiveLockMode().name()));
      if (data != null) {
        row.addAll(Arrays.asList(data.getQueryId(), data.getLockTime(), data.getLockMode(), data.getQueryStr()));
      }
      rows.add(JSON.writeValueAsString(row));
    }
    return rows;
  }

  private List<String> free(String[] path) throws LockException {
    List<HiveLock> found = manager.getLocks(new HiveLockObject(path, null), false, false);
    for (HiveLock lock : found) {
      manager.unlock(lock);
    }
    return List.of(String.valueOf(found.size()));
  }

  /** As a session does at its end: with hive.zookeeper.clean.extra.nodes, all empty nodes go. */
  private List<String> closed() throws LockException {
    unlock();
    manager.close();
    return List.of();
  }

  private static String[] path(JsonNode names) {
    return StreamSupport.stream(names.spliterator(), false)
        .map(JsonNode::asText)
        .toArray(String[]::new);
  }

  private static String since(long begun) {
    return String.valueOf((System.nanoTime() - begun) / 1e6);
  }
}
