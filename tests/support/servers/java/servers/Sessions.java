package servers;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/**
 * Clients of Hive for tests. One JSON request a line on stdin, one JSON answer a line on stdout:
 *
 * <pre>
 *   {"id": 7, "session": "a", "statement": "show locks"}
 *   {"id": 7, "code": 0, "rows": ["default@t\tSHARED"], "message": null}
 * </pre>
 *
 * A session is made when first named. Statements of one session run in order; those of several run at
 * once, and answers come as they are ready. The end of stdin ends the sessions and the JVM.
 */
final class Sessions {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final int THROWN = -1;
  private static final int CLOSE_S = 5;

  /** One client, on a thread of its own: Hive keeps much in thread-locals. */
  interface Session {
    Reply run(String statement) throws Throwable;

    void close() throws Exception;
  }

  /** {@code code} is 0 where all went well; else {@code message} says what did not. */
  record Reply(int code, List<String> rows, String message) {}

  private record Answer(long id, int code, List<String> rows, String message) {}

  private final Map<String, Client> clients = new HashMap<>();
  private final Callable<Session> open;
  private final PrintStream answers;

  private Sessions(Callable<Session> open, PrintStream answers) {
    this.open = open;
    this.answers = answers;
  }

  /** Serves until the end of stdin, and ends the JVM. */
  static void serve(Callable<Session> open) throws Exception {
    // Hive prints to System.out as it pleases: only answers may reach the real one.
    PrintStream stdout =
        new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
    System.setOut(System.err);
    Sessions sessions = new Sessions(open, stdout);
    sessions.read();
    sessions.close();
    System.exit(0);
  }

  private void read() throws IOException {
    BufferedReader requests =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = requests.readLine(); line != null; line = requests.readLine()) {
      JsonNode request = JSON.readTree(line);
      clients
          .computeIfAbsent(request.get("session").asText(), Client::new)
          .submit(request.get("id").asLong(), request.get("statement").asText());
    }
  }

  private void close() throws InterruptedException {
    clients.values().forEach(Client::close);
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(CLOSE_S);
    for (Client client : clients.values()) {
      client.thread.awaitTermination(deadline - System.nanoTime(), TimeUnit.NANOSECONDS);
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

  private final class Client {
    private final ExecutorService thread;
    private Session session;

    Client(String name) {
      thread = Executors.newSingleThreadExecutor(task -> new Thread(task, "session-" + name));
    }

    void submit(long id, String statement) {
      thread.execute(() -> send(run(id, statement)));
    }

    void close() {
      thread.execute(
          () -> {
            try {
              if (session != null) {
                session.close();
              }
            } catch (Exception e) {
              e.printStackTrace();
            }
          });
      thread.shutdown();
    }

    private Answer run(long id, String statement) {
      try {
        if (session == null) {
          session = open.call();
        }
        Reply reply = session.run(statement);
        return new Answer(id, reply.code(), reply.rows(), reply.message());
      } catch (Throwable e) {
        StringWriter trace = new StringWriter();
        e.printStackTrace(new PrintWriter(trace));
        return new Answer(id, THROWN, List.of(), trace.toString());
      }
    }
  }
}
