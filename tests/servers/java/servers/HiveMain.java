package servers;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.ql.Driver;
import org.apache.hadoop.hive.ql.processors.CommandProcessor;
import org.apache.hadoop.hive.ql.processors.CommandProcessorFactory;
import org.apache.hadoop.hive.ql.processors.CommandProcessorResponse;
import org.apache.hadoop.hive.ql.session.SessionState;

/**
 * Real Hive for tests. One JSON request a line on stdin, one JSON answer a line on stdout:
 *
 * <pre>
 *   {"id": 7, "session": "a", "statement": "show locks"}
 *   {"id": 7, "code": 0, "rows": ["default@t\tSHARED"], "message": null}
 * </pre>
 *
 * A session is a Hive client of its own, on a thread of its own (Hive keeps its session in a
 * thread-local), made when first named. Statements of one session run in order; those of several run at
 * once, and answers come as they are ready. The end of stdin ends the sessions and the JVM.
 */
public final class HiveMain {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final int THROWN = -1;
  private static final int CLOSE_S = 5;

  private final Map<String, ExecutorService> sessions = new HashMap<>();
  private final PrintStream answers;

  private record Answer(long id, int code, List<String> rows, String message) {}

  private HiveMain(PrintStream answers) {
    this.answers = answers;
  }

  public static void main(String[] args) throws Exception {
    // Hive prints to System.out as it pleases: only answers may reach the real one.
    PrintStream stdout =
        new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
    System.setOut(System.err);
    HiveMain hive = new HiveMain(stdout);
    hive.serve();
    hive.close();
    System.exit(0);
  }

  private void serve() throws IOException {
    BufferedReader requests =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = requests.readLine(); line != null; line = requests.readLine()) {
      JsonNode request = JSON.readTree(line);
      long id = request.get("id").asLong();
      String statement = request.get("statement").asText();
      sessions
          .computeIfAbsent(request.get("session").asText(), HiveMain::newThread)
          .execute(() -> send(run(id, statement)));
    }
  }

  private void close() throws InterruptedException {
    for (ExecutorService session : sessions.values()) {
      session.execute(HiveMain::closeSession);
      session.shutdown();
    }
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(CLOSE_S);
    for (ExecutorService session : sessions.values()) {
      session.awaitTermination(deadline - System.nanoTime(), TimeUnit.NANOSECONDS);
    }
  }

  private static ExecutorService newThread(String session) {
    return Executors.newSingleThreadExecutor(task -> new Thread(task, "session-" + session));
  }

  private static void closeSession() {
    try {
      SessionState.get().close();
    } catch (IOException e) {
      e.printStackTrace();
    }
  }

  private void send(Answer answer) {
    try {
      String line = JSON.writeValueAsString(answer);
      synchronized (answers) {
        answers.println(line);
      }
    } catch (IOException e) {
      throw new IllegalStateException(e);
    }
  }

  private static Answer run(long id, String statement) {
    List<String> rows = new ArrayList<>();
    try {
      CommandProcessorResponse response = process(statement.strip(), rows);
      return new Answer(id, response.getResponseCode(), rows, response.getErrorMessage());
    } catch (Throwable e) {
      StringWriter trace = new StringWriter();
      e.printStackTrace(new PrintWriter(trace));
      return new Answer(id, THROWN, rows, trace.toString());
    }
  }

  private static CommandProcessorResponse process(String statement, List<String> rows)
      throws Exception {
    SessionState session = SessionState.get() == null ? open() : SessionState.get();
    String[] words = statement.split("\\s+");
    CommandProcessor processor = CommandProcessorFactory.get(words, session.getConf());
    if (!(processor instanceof Driver driver)) {
      return command(processor, statement.substring(words[0].length()).strip(), session, rows);
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
  private static CommandProcessorResponse command(
      CommandProcessor processor, String arguments, SessionState session, List<String> rows)
      throws Exception {
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

  private static SessionState open() {
    SessionState session = new SessionState(new HiveConf(SessionState.class));
    session.out = System.err;
    session.err = System.err;
    session.info = System.err;
    session.setIsSilent(true);
    return SessionState.start(session);
  }
}
