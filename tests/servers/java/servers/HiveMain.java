package servers;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.ql.Driver;
import org.apache.hadoop.hive.ql.processors.CommandProcessor;
import org.apache.hadoop.hive.ql.processors.CommandProcessorFactory;
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
    List<String> rows = new ArrayList<>();
    CommandProcessorResponse response = process(statement.strip(), rows);
    return new Sessions.Reply(response.getResponseCode(), rows, response.getErrorMessage());
  }

  @Override
  public void close() throws IOException {
    session.close();
  }

  private CommandProcessorResponse process(String statement, List<String> rows) throws Exception {
    String[] words = statement.split("\\s+");
    CommandProcessor processor = CommandProcessorFactory.get(words, session.getConf());
    if (!(processor instanceof Driver driver)) {
      return command(processor, statement.substring(words[0].length()).strip(), rows);
    }
    try {
      CommandProcessorResponse response = driver.run(statement);
      List<Object> batch = new ArrayList<>();
      while (response.getResponseCode() == 0 && driver.getResults(batch)) {
        batch.forEach(row -> rows.add(row.toString()));
        batch.clear();
      }
      return response;
    } finally {
      driver.close();
      driver.destroy();
    }
  }

  /** Runs {@code set}, {@code dfs} and the like, which print their rows to the session. */
  private CommandProcessorResponse command(
      CommandProcessor processor, String arguments, List<String> rows) throws Exception {
    ByteArrayOutputStream printed = new ByteArrayOutputStream();
    PrintStream before = session.out;
    session.out = new PrintStream(printed, true, StandardCharsets.UTF_8);
    try {
      return processor.run(arguments);
    } finally {
      session.out = before;
      printed.toString(StandardCharsets.UTF_8).lines().forEach(rows::add);
    }
  }
}
