package servers;

import java.lang.reflect.InvocationTargetException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Path;
import java.util.Arrays;

/** Runs another main class by a loader of URLs, as that of a JDK 8 was: Hive 3.1 casts its own to one. */
public final class Loader {
  private Loader() {}

  public static void main(String[] args) throws Throwable {
    String[] paths = System.getProperty("java.class.path").split(System.getProperty("path.separator"));
    URL[] urls = new URL[paths.length];
    for (int i = 0; i < paths.length; i++) {
      urls[i] = Path.of(paths[i]).toUri().toURL();
    }
    ClassLoader loader = new URLClassLoader(urls, ClassLoader.getPlatformClassLoader());
    Thread.currentThread().setContextClassLoader(loader);
    try {
      Class.forName(args[0], true, loader)
          .getMethod("main", String[].class)
          .invoke(null, (Object) Arrays.copyOfRange(args, 1, args.length));
    } catch (InvocationTargetException e) {
      throw e.getCause();
    }
  }
}
