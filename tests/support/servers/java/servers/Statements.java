package servers;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.stream.Collectors;
import org.apache.hadoop.hive.metastore.api.FieldSchema;
import org.apache.hadoop.hive.ql.Driver;
import org.apache.hadoop.hive.ql.processors.CommandProcessor;
import org.apache.hadoop.hive.ql.processors.CommandProcessorFactory;
import org.apache.hadoop.hive.ql.processors.CommandProcessorResponse;
import org.apache.hadoop.hive.ql.session.SessionState;

/** Runs HiveQL, and {@code set}, {@code dfs} and the like, by Hive's own processors. */
final class Statements {
  private Statements() {}

  /** What Hive answered; rows as it prints them, with tabs between the columns. */
  record Result(CommandProcessorResponse response, List<FieldSchema> columns, List<String> rows) {}

  static Result run(SessionState session, String statement) throws Exception {
    String[] words = statement.split("\\s+");
    CommandProcessor processor = CommandProcessorFactory.get(words, session.getConf());
    if (!(processor instanceof Driver driver)) {
      return command(session, processor, statement.substring(words[0].length()).strip());
    }
    try {
      CommandProcessorResponse response = driver.run(statement);
      List<FieldSchema> columns = new ArrayList<>();
      List<String> rows = new ArrayList<>();
      List<Object> batch = new ArrayList<>();
      if (driver.getSchema() != null && driver.getSchema().isSetFieldSchemas()) {
        columns.addAll(driver.getSchema().getFieldSchemas());
      }
      while (response.getResponseCode() == 0 && driver.getResults(batch)) {
        batch.forEach(row -> rows.add(text(row)));
        batch.clear();
      }
      return new Result(response, columns, rows);
    } finally {
      driver.close();
      driver.destroy();
    }
  }

  /** In a HiveServer2 a row is an array of its columns. */
  private static String text(Object row) {
    return row instanceof Object[] values
        ? Arrays.stream(values)
            .map(value -> Objects.toString(value, ""))
            .collect(Collectors.joining("\t"))
        : row.toString();
  }

  /** Such commands print their rows to the session. */
  private static Result command(SessionState session, CommandProcessor processor, String arguments)
      throws Exception {
    ByteArrayOutputStream printed = new ByteArrayOutputStream();
    PrintStream before = session.out;
    session.out = new PrintStream(printed, true, StandardCharsets.UTF_8);
    try {
      CommandProcessorResponse response = processor.run(arguments);
      return new Result(response, List.of(), printed.toString(StandardCharsets.UTF_8).lines().toList());
    } finally {
      session.out = before;
    }
  }
}
