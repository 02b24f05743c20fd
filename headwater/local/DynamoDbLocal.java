import com.amazonaws.services.dynamodbv2.local.server.DynamoDBProxyServer;
import com.amazonaws.services.dynamodbv2.local.server.LocalDynamoDBRequestHandler;
import com.amazonaws.services.dynamodbv2.local.server.LocalDynamoDBServerHandler;
import org.eclipse.jetty.server.ServerConnector;

/**
 * Starts DynamoDB Local on a port of 127.0.0.1: {@code DynamoDbLocal PORT}. DynamoDB Local's own {@code ServerRunner}
 * listens on all addresses of the machine and has no option against it. Everything stays in memory, in one database, and
 * no telemetry is sent, as with {@code ServerRunner -inMemory -sharedDb -disableTelemetry}. Run from its source, so that
 * it needs no build.
 */
public final class DynamoDbLocal {
    public static void main(String[] arguments) throws Exception {
        boolean inMemory = true;
        boolean sharedDb = true;
        boolean delayTransientStatuses = false;
        var requests = new LocalDynamoDBRequestHandler(0, inMemory, null, sharedDb, delayTransientStatuses);
        var handler = new LocalDynamoDBServerHandler(requests, null);
        var server = new DynamoDBProxyServer(Integer.parseInt(arguments[0]), handler);
        ((ServerConnector) handler.getServer().getConnectors()[0]).setHost("127.0.0.1");
        server.start();
        server.join();
    }
}
