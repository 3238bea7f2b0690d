package servers;

import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.conf.HiveConf.ConfVars;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.api.FieldSchema;
import org.apache.hadoop.hive.ql.session.SessionState;
import org.apache.hadoop.hive.shims.ShimLoader;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.hive.service.cli.CLIService;
import org.apache.hive.service.cli.FetchOrientation;
import org.apache.hive.service.cli.HiveSQLException;
import org.apache.hive.service.cli.OperationState;
import org.apache.hive.service.cli.RowSet;
import org.apache.hive.service.cli.RowSetFactory;
import org.apache.hive.service.cli.TableSchema;
import org.apache.hive.service.cli.operation.ExecuteStatementOperation;
import org.apache.hive.service.cli.operation.Operation;
import org.apache.hive.service.cli.operation.OperationManager;
import org.apache.hive.service.cli.session.HiveSession;
import org.apache.hive.service.cli.session.SessionManager;
import org.apache.hive.service.cli.thrift.ThriftBinaryCLIService;
import org.apache.hive.service.rpc.thrift.TRowSet;
import org.apache.hive.service.rpc.thrift.TTableSchema;

/**
 * HiveServer2 for tests: its Thrift service and sessions as PySpark ships them, and real Hive's
 * Driver for the statements, which PySpark leaves out; and its metastore, for clients of its own.
 */
public final class HiveServer2Main {
  private HiveServer2Main() {}

  public static void main(String[] args) throws Exception {
    HiveConf conf = new HiveConf();
    UserGroupInformation.setConfiguration(conf); // for Kerberos; it looks into core-site.xml only
    conf.setVar(ConfVars.HIVE_SERVER2_THRIFT_BIND_HOST, "127.0.0.1");
    conf.setIntVar(ConfVars.HIVE_SERVER2_THRIFT_PORT, Integer.parseInt(args[0]));
    conf.setBoolVar(ConfVars.HIVE_SERVER2_ENABLE_DOAS, false);
    conf.setBoolVar(ConfVars.HIVE_SERVER2_LOGGING_OPERATION_ENABLED, false);
    MetastoreMain.makeLockTables(conf);
    CLIService service = new CLIService(null);
    service.init(conf);
    Field manager = SessionManager.class.getDeclaredField("operationManager");
    manager.setAccessible(true);
    Operations operations = new Operations();
    operations.init(conf);
    manager.set(service.getSessionManager(), operations);
    ThriftBinaryCLIService thrift = new ThriftBinaryCLIService(service);
    thrift.init(conf);
    service.start();
    thrift.start();
    try {
      HiveMetaStore.startMetaStore(
          Integer.parseInt(args[1]), ShimLoader.getHadoopThriftAuthBridge(), conf);
    } catch (Throwable e) {
      throw new IllegalStateException(e);
    }
  }

  private static final class Operations extends OperationManager {
    @Override
    public ExecuteStatementOperation newExecuteStatementOperation(
        HiveSession session,
        String statement,
        Map<String, String> overlay,
        boolean async,
        long timeout)
        throws HiveSQLException {
      Statement operation = new Statement(session, statement, overlay);
      try {
        Method add = OperationManager.class.getDeclaredMethod("addOperation", Operation.class);
        add.setAccessible(true);
        add.invoke(this, operation);
      } catch (ReflectiveOperationException e) {
        throw new HiveSQLException(e);
      }
      return operation;
    }
  }

  private static final class Statement extends ExecuteStatementOperation {
    private final List<FieldSchema> columns = new ArrayList<>();
    private List<String> rows = List.of();
    private int read;

    Statement(HiveSession session, String statement, Map<String, String> overlay) {
      super(session, statement, overlay, false);
    }

    @Override
    protected void runInternal() throws HiveSQLException {
      setState(OperationState.RUNNING);
      try {
        Statements.Result result = Statements.run(started(), statement.strip());
        if (result.response().getResponseCode() != 0) {
          throw toSQLException("Error while processing statement", result.response());
        }
        rows = result.rows();
        for (FieldSchema column : result.columns()) {
          columns.add(new FieldSchema(column.getName(), "string", ""));
        }
        if (columns.isEmpty() && !rows.isEmpty()) {
          columns.add(new FieldSchema("result", "string", ""));
        }
        setHasResultSet(!columns.isEmpty());
        setState(OperationState.FINISHED);
      } catch (HiveSQLException e) {
        setState(OperationState.ERROR);
        throw e;
      } catch (Exception e) {
        setState(OperationState.ERROR);
        throw new HiveSQLException(e.toString(), e);
      }
    }

    /** The session's state; its scratch directories are made by its start, which the service leaves out. */
    private static SessionState started() {
      SessionState state = SessionState.get();
      try {
        SessionState.getHDFSSessionPath(state.getConf());
      } catch (NullPointerException notStarted) {
        SessionState.start(state);
      }
      return state;
    }

    @Override
    public TTableSchema getResultSetSchema() {
      return new TableSchema(columns).toTTableSchema();
    }

    @Override
    public TRowSet getNextRowSet(FetchOrientation orientation, long most) {
      if (orientation == FetchOrientation.FETCH_FIRST) {
        read = 0;
      }
      RowSet set = RowSetFactory.create(new TableSchema(columns), getProtocolVersion(), false);
      for (int count = 0; count < most && read < rows.size(); count++) {
        String[] values = rows.get(read++).split("\t", -1);
        Object[] row = new Object[columns.size()];
        for (int i = 0; i < row.length; i++) {
          row[i] = i < values.length ? values[i] : "";
        }
        set.addRow(row);
      }
      return set.toTRowSet();
    }
  }
}
