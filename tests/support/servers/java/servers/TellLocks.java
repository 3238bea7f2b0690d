package servers;

import java.util.stream.Collectors;
import org.apache.hadoop.hive.metastore.api.ShowLocksRequest;
import org.apache.hadoop.hive.metastore.api.ShowLocksResponseElement;
import org.apache.hadoop.hive.ql.hooks.ExecuteWithHookContext;
import org.apache.hadoop.hive.ql.hooks.HookContext;
import org.apache.hadoop.hive.ql.lockmgr.DbLockManager;
import org.apache.hadoop.hive.ql.lockmgr.HiveLockManager;
import org.apache.hadoop.hive.ql.metadata.HiveException;
import org.apache.hadoop.hive.ql.session.SessionState;

/**
 * As {@code hive.exec.pre.hooks}: ends each statement once Hive has its locks, and tells all that its
 * transactional lock manager has, {@code LOCKS[SHARED_READ dw.t/dt=1 EXCLUSIVE dw.u]}; of another
 * lock manager nothing.
 */
public final class TellLocks implements ExecuteWithHookContext {
  @Override
  public void run(HookContext context) throws Exception {
    HiveLockManager manager = SessionState.get().getTxnMgr().getLockManager();
    throw new HiveException("LOCKS[" + (manager instanceof DbLockManager ? all(manager) : "") + "]");
  }

  private static String all(HiveLockManager manager) throws Exception {
    return ((DbLockManager) manager)
        .getLocks(new ShowLocksRequest()).getLocks().stream()
            .map(TellLocks::told)
            .collect(Collectors.joining("\t"));
  }

  private static String told(ShowLocksResponseElement lock) {
    String table = lock.isSetTablename() ? "." + lock.getTablename() : "";
    String partition = lock.isSetPartname() ? "/" + lock.getPartname() : "";
    return lock.getType() + " " + lock.getDbname() + table + partition;
  }
}
