package servers;

import java.io.IOException;
import java.io.InputStream;
import java.lang.reflect.InvocationTargetException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Arrays;

/**
 * Runs another main class by a loader of URLs, as that of a JDK 8 was: Hive 3.1 casts its own to one.
 * It also looks for a field of the JDK's that has another name since (HIVE-22097), without which it
 * reads no filter of partitions.
 */
public final class Loader extends URLClassLoader {
  private static final String SUB_LISTS =
      "org.apache.hadoop.hive.ql.exec.SerializationUtilities$ArrayListSubListSerializer";

  private Loader(URL[] urls) {
    super(urls, ClassLoader.getPlatformClassLoader());
  }

  public static void main(String[] args) throws Throwable {
    String[] paths = System.getProperty("java.class.path").split(System.getProperty("path.separator"));
    URL[] urls = new URL[paths.length];
    for (int i = 0; i < paths.length; i++) {
      urls[i] = Path.of(paths[i]).toUri().toURL();
    }
    ClassLoader loader = new Loader(urls);
    Thread.currentThread().setContextClassLoader(loader);
    try {
      Class.forName(args[0], true, loader)
          .getMethod("main", String[].class)
          .invoke(null, (Object) Arrays.copyOfRange(args, 1, args.length));
    } catch (InvocationTargetException e) {
      throw e.getCause();
    }
  }

  @Override
  protected Class<?> findClass(String name) throws ClassNotFoundException {
    if (!name.equals(SUB_LISTS)) {
      return super.findClass(name);
    }
    try (InputStream file = getResourceAsStream(name.replace('.', '/') + ".class")) {
      // Bytes as characters; a constant is its length, in two of them, and its text.
      String text = new String(file.readAllBytes(), StandardCharsets.ISO_8859_1);
      byte[] now =
          text.replace("\0\014parentOffset", "\0\006offset").getBytes(StandardCharsets.ISO_8859_1);
      return defineClass(name, now, 0, now.length);
    } catch (IOException e) {
      throw new ClassNotFoundException(name, e);
    }
  }
}
