package servers;

import java.io.IOException;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.ql.processors.CommandProcessorResponse;
import org.apache.hadoop.hive.ql.session.SessionState;

/** Real Hive for tests: a {@link Sessions session} is a Hive client, its statements are HiveQL. */
public final class HiveMain implements Sessions.Session {
  private final SessionState session;

  private HiveMain() {
    session = new SessionState(new HiveConf(SessionState.class));
    session.out = System.err;
    session.err = System.err;
    session.info = System.err;
    session.setIsSilent(true);
    SessionState.start(session);
  }

  public static void main(String[] args) throws Exception {
    Sessions.serve(HiveMain::new);
  }

  @Override
  public Sessions.Reply run(String statement) throws Exception {
    Statements.Result result = Statements.run(session, statement.strip());
    CommandProcessorResponse response = result.response();
    return new Sessions.Reply(
        response.getResponseCode(), result.rows(), response.getErrorMessage());
  }

  @Override
  public void close() throws IOException {
    session.close();
  }
}
