import com.amazonaws.services.dynamodbv2.local.server.DynamoDBProxyServer;
import com.amazonaws.services.dynamodbv2.local.server.LocalDynamoDBRequestHandler;
import com.amazonaws.services.dynamodbv2.local.server.LocalDynamoDBServerHandler;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.time.Duration;
import java.time.Instant;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.time.format.DateTimeParseException;
import java.util.HexFormat;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import org.eclipse.jetty.http.HttpField;
import org.eclipse.jetty.http.HttpFields;
import org.eclipse.jetty.io.content.ByteBufferContentSource;
import org.eclipse.jetty.io.Content;
import org.eclipse.jetty.server.Handler;
import org.eclipse.jetty.server.Request;
import org.eclipse.jetty.server.Response;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.util.BufferUtil;
import org.eclipse.jetty.util.Callback;

/**
 * Starts DynamoDB Local on a port of 127.0.0.1: {@code DynamoDbLocal PORT}.
 *
 * <p>It answers only requests that are signed with the credentials in its environment. DynamoDB Local's own {@code
 * ServerRunner} listens on all addresses of the machine, accepts every signature, and answers pages in browsers.
 * Everything stays in memory, in one database, and no telemetry is sent, as with {@code ServerRunner -inMemory
 * -sharedDb -disableTelemetry}. This program runs from its source, so it needs no build.
 */
public final class DynamoDbLocal {
    public static void main(String[] arguments) throws Exception {
        boolean inMemory = true;
        boolean sharedDb = true;
        boolean delayTransientStatuses = false;
        var requests = new LocalDynamoDBRequestHandler(0, inMemory, null, sharedDb, delayTransientStatuses);
        var handler = new LocalDynamoDBServerHandler(requests, null);
        var server = new DynamoDBProxyServer(Integer.parseInt(arguments[0]), handler);
        var jetty = handler.getServer();
        jetty.setHandler(new SignedOnly(handler, System.getenv("AWS_ACCESS_KEY_ID"), System.getenv("AWS_SECRET_ACCESS_KEY")));
        ((ServerConnector) jetty.getConnectors()[0]).setHost("127.0.0.1");
        server.start();
        server.join();
    }

    /**
     * Forwards requests with a signature (version 4) by one access key, and refuses all others with status 403.
     *
     * <p>The rules are the same as in {@code rig/local/signature.py}; DynamoDB knows only {@code POST /}.
     */
    static final class SignedOnly extends Handler.Wrapper {
        private static final Pattern AUTHORIZATION = Pattern.compile(
                "AWS4-HMAC-SHA256 Credential=([^/,\\s]+)/(\\d{8}/[^/,\\s]+/[^/,\\s]+/aws4_request)"
                        + ",\\s*SignedHeaders=([^,\\s]+),\\s*Signature=([0-9a-f]{64})");
        private static final DateTimeFormatter TIMESTAMP =
                DateTimeFormatter.ofPattern("yyyyMMdd'T'HHmmss'Z'").withZone(ZoneOffset.UTC);
        private static final Duration SKEW = Duration.ofMinutes(15);
        /** The size limit of DynamoDB's requests. */
        private static final long LARGEST_BODY = 16L << 20;

        private final String key;
        private final String secret;

        SignedOnly(Handler handler, String key, String secret) {
            super(handler);
            this.key = key;
            this.secret = secret;
        }

        @Override
        public boolean handle(Request request, Response response, Callback callback) throws Exception {
            // The sender of a body is verified only after the body has been read, so its size is limited first.
            boolean isTooLarge = request.getLength() < 0 || request.getLength() > LARGEST_BODY;
            ByteBuffer body = isTooLarge ? BufferUtil.EMPTY_BUFFER : Content.Source.asByteBuffer(request);
            String refusal = refusal(request, BufferUtil.toArray(body));
            if (refusal == null) {
                return super.handle(new Read(request, body), response, callback);
            }
            response.setStatus(403);
            response.getHeaders().put("Content-Type", "application/x-amz-json-1.0");
            var answer = "{\"__type\": \"com.amazon.coral.service#UnrecognizedClientException\", \"message\": \"" + refusal + "\"}";
            response.write(true, ByteBuffer.wrap(answer.getBytes(StandardCharsets.UTF_8)), callback);
            return true;
        }

        /** Returns why a request is refused; null if it is not. */
        private String refusal(Request request, byte[] body) throws GeneralSecurityException {
            HttpFields headers = request.getHeaders();
            if (headers.contains("Origin")) {
                return "Origin: found one, expected none: pages in browsers are not served";
            }
            if (!List.of("127.0.0.1", "localhost").contains(Request.getServerName(request))) {
                return "Host: expected 127.0.0.1 or localhost";
            }
            String authorization = headers.get("Authorization");
            Matcher found = AUTHORIZATION.matcher(authorization == null ? "" : authorization);
            if (!found.matches()) {
                return "Authorization: expected a signature of version 4";
            }
            List<String> signed = List.of(found.group(3).split(";"));
            for (HttpField field : headers) {
                String name = field.getLowerCaseName();
                if ((name.equals("host") || name.startsWith("x-amz-")) && !signed.contains(name)) {
                    return "SignedHeaders: expected Host and all that begin with X-Amz-";
                }
            }
            String timestamp = headers.get("X-Amz-Date");
            if (!isNow(timestamp) || !found.group(2).startsWith(timestamp.substring(0, 8))) {
                return "X-Amz-Date: expected a time of the last minutes";
            }
            var canonical = new StringBuilder(request.getMethod() + "\n" + request.getHttpURI().getPath() + "\n");
            canonical.append(request.getHttpURI().getQuery() == null ? "" : request.getHttpURI().getQuery()).append("\n");
            for (String name : signed) {
                List<String> values = headers.getValuesList(name);
                canonical.append(name).append(":").append(String.join(",", values).strip()).append("\n");
            }
            canonical.append("\n").append(found.group(3)).append("\n").append(sha256(body));
            String toSign = "AWS4-HMAC-SHA256\n" + timestamp + "\n" + found.group(2) + "\n"
                    + sha256(canonical.toString().getBytes(StandardCharsets.UTF_8));
            byte[] signing = ("AWS4" + secret).getBytes(StandardCharsets.UTF_8);
            for (String part : found.group(2).split("/")) {
                signing = hmac(signing, part);
            }
            byte[] expected = hmac(signing, toSign);
            boolean matches = MessageDigest.isEqual(expected, HexFormat.of().parseHex(found.group(4)));
            return matches && found.group(1).equals(key) ? null : "The security token or the signature is invalid";
        }

        private static boolean isNow(String timestamp) {
            try {
                Instant sent = timestamp == null ? Instant.MIN : TIMESTAMP.parse(timestamp, Instant::from);
                return Duration.between(sent, Instant.now()).abs().compareTo(SKEW) <= 0;
            } catch (DateTimeParseException error) {
                return false;
            }
        }

        private static String sha256(byte[] bytes) throws GeneralSecurityException {
            return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(bytes));
        }

        private static byte[] hmac(byte[] key, String text) throws GeneralSecurityException {
            Mac mac = Mac.getInstance("HmacSHA256");
            mac.init(new SecretKeySpec(key, "HmacSHA256"));
            return mac.doFinal(text.getBytes(StandardCharsets.UTF_8));
        }
    }

    /** A request whose body has been read and can be read again. */
    private static final class Read extends Request.Wrapper {
        private final ByteBufferContentSource body;

        Read(Request request, ByteBuffer body) {
            super(request);
            this.body = new ByteBufferContentSource(body);
        }

        @Override
        public Content.Chunk read() {
            return body.read();
        }

        @Override
        public void demand(Runnable callback) {
            body.demand(callback);
        }

        @Override
        public void fail(Throwable failure) {
            body.fail(failure);
        }
    }
}
