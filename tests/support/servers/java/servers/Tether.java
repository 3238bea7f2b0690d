package servers;

import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.util.Arrays;

/**
 * Runs another main class for as long as somebody holds the other end of stdin.
 *
 * <p>A pipe ends however its holder dies, SIGKILL included, and belongs to the whole process; Linux's
 * PDEATHSIG would belong to the one thread that started us.
 */
public final class Tether {
  private Tether() {}

  public static void main(String[] args) throws Throwable {
    Thread watcher = new Thread(Tether::exitAtEndOfInput, "tether");
    watcher.setDaemon(true);
    watcher.start();
    try {
      Class.forName(args[0])
          .getMethod("main", String[].class)
          .invoke(null, (Object) Arrays.copyOfRange(args, 1, args.length));
    } catch (InvocationTargetException e) {
      throw e.getCause();
    }
  }

  private static void exitAtEndOfInput() {
    try {
      while (System.in.read() >= 0) {
        // Nothing is said on this pipe: only its end matters.
      }
    } catch (IOException e) {
      e.printStackTrace();
    }
    System.exit(0);
  }
}
