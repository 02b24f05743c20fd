import java.util.Arrays;
import javax.servlet.Filter;
import javax.servlet.FilterChain;
import javax.servlet.FilterConfig;
import javax.servlet.ServletRequest;
import javax.servlet.ServletResponse;
import javax.servlet.http.HttpServletResponse;

/**
 * Runs Spark's master or worker, the class that the first argument names, with web pages that show nobody anything:
 * they have the logs of executors, ask nobody who he is, and cannot be turned off.
 */
public final class SparkDaemon {
    /** The value of spark.ui.filters. */
    public static final class Refusal implements Filter {
        @Override
        public void init(FilterConfig configuration) {}

        @Override
        public void doFilter(ServletRequest request, ServletResponse response, FilterChain chain)
                throws java.io.IOException {
            ((HttpServletResponse) response).sendError(HttpServletResponse.SC_FORBIDDEN);
        }

        @Override
        public void destroy() {}
    }

    public static void main(String[] arguments) throws Exception {
        // By which the web server finds the class above.
        Thread.currentThread().setContextClassLoader(SparkDaemon.class.getClassLoader());
        String[] left = Arrays.copyOfRange(arguments, 1, arguments.length);
        Class.forName(arguments[0]).getMethod("main", String[].class).invoke(null, (Object) left);
    }
}
