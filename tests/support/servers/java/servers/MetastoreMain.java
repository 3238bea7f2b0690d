package servers;

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.conf.HiveConf.ConfVars;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;
import org.apache.hadoop.security.UserGroupInformation;

/**
 * Hive's metastore server, with the tables of its transactional lock manager if the configuration asks
 * for the thread that expires locks: {@code autoCreateAll} makes every table but those.
 */
public final class MetastoreMain {
  private MetastoreMain() {}

  public static void main(String[] args) throws Throwable {
    HiveConf conf = new HiveConf();
    UserGroupInformation.setConfiguration(conf); // for Kerberos; it looks into core-site.xml only
    if (conf.getBoolVar(ConfVars.HIVE_COMPACTOR_INITIATOR_ON)) {
      makeLockTables(conf);
    }
    HiveMetaStore.main(args);
  }

  static void makeLockTables(HiveConf conf) throws Exception {
    if (!hasLockTables(conf)) {
      TxnDbUtil.prepDb(conf);
    }
  }

  private static boolean hasLockTables(HiveConf conf) throws SQLException {
    String url = conf.getVar(ConfVars.METASTORECONNECTURLKEY);
    try (Connection connection = DriverManager.getConnection(url);
        ResultSet tables = connection.getMetaData().getTables(null, null, "HIVE_LOCKS", null)) {
      return tables.next();
    }
  }
}
