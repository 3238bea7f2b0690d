package servers;

import java.util.stream.Collectors;
import org.apache.hadoop.hive.metastore.api.ShowLocksRequest;
import org.apache.hadoop.hive.metastore.api.ShowLocksResponseElement;
import org.apache.hadoop.hive.ql.hooks.ExecuteWithHookContext;
import org.apache.hadoop.hive.ql.hooks.HookContext;
import org.apache.hadoop.hive.ql.lockmgr.DbLockManager;
import org.apache.hadoop.hive.ql.metadata.HiveException;
import org.apache.hadoop.hive.ql.session.SessionState;

/**
 * As {@code hive.exec.pre.hooks}: ends each statement once Hive's transactional lock manager has its
 * locks, and tells them all, {@code LOCKS[SHARED_READ dw.t/dt=1 EXCLUSIVE dw.u]}.
 */
public final class TellLocks implements ExecuteWithHookContext {
  @Override
  public void run(HookContext context) throws Exception {
    DbLockManager locks = (DbLockManager) SessionState.get().getTxnMgr().getLockManager();
    throw new HiveException(
        locks.getLocks(new ShowLocksRequest()).getLocks().stream()
            .map(TellLocks::told)
            .collect(Collectors.joining("\t", "LOCKS[", "]")));
  }

  private static String told(ShowLocksResponseElement lock) {
    String table = lock.isSetTablename() ? "." + lock.getTablename() : "";
    String partition = lock.isSetPartname() ? "/" + lock.getPartname() : "";
    return lock.getType() + " " + lock.getDbname() + table + partition;
  }
}
