package io.headwater.connect.s3;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URLDecoder;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.TreeMap;
import java.util.stream.Collectors;
import java.util.zip.CRC32;

/** An HTTP server with the part of S3's API that the sink uses, conditional writes included, that fails on request. */
final class FakeS3 implements AutoCloseable {
    /** What happens to a request that a test has spoilt. */
    enum Fault {
        /** Answered 503, nothing done. */
        SLOW_DOWN,
        /** Answered 409, nothing done. */
        CONFLICT,
        /** Answered 429, nothing done. */
        TOO_MANY_REQUESTS,
        /** Answered 408, nothing done. */
        TIMED_OUT,
        /** Answered 400 as S3 does where a request's body stops coming, nothing done. */
        BODY_STOPPED,
        /** Answered 400 as S3 does where a request's body ends too early, nothing done. */
        BODY_CUT,
        /** Answered 403, because the clocks of the sink and of S3 differ; nothing done. */
        CLOCKS_DIFFER,
        /** A byte of the request's body changes on its way. */
        DAMAGED,
        /** Answered 403, nothing done. */
        DENIED,
        /** The connection closes, nothing done. */
        CUT_BEFORE,
        /** Done, and then the connection closes without an answer. */
        CUT_AFTER
    }

    record Stored(byte[] body, Map<String, String> metadata) {}

    private static final int PAGE = 3; // small, so that tests reach the paging
    private final HttpServer server;
    private final NavigableMap<String, Stored> objects = new TreeMap<>();
    private final Deque<Fault> faults = new ArrayDeque<>();
    private final List<String> requests = new ArrayList<>();
    private boolean down;

    FakeS3() {
        try {
            server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        } catch (IOException e) {
            throw new IllegalStateException(e);
        }
        server.createContext("/", this::handle);
        server.start();
    }

    String endpoint() {
        return "http://127.0.0.1:" + server.getAddress().getPort();
    }

    /** Spoils the next requests, one each. */
    synchronized void fail(Fault... next) {
        faults.addAll(Arrays.asList(next));
    }

    /** Answers 503 to everything while true. */
    synchronized void down(boolean isDown) {
        down = isDown;
    }

    /** Keys without the bucket and their objects. */
    synchronized NavigableMap<String, Stored> objects() {
        return new TreeMap<>(objects);
    }

    synchronized void store(String key, Map<String, String> metadata) {
        objects.put(key, new Stored(new byte[0], metadata));
    }

    /** Methods of all requests so far, such as PUT. */
    synchronized List<String> requests() {
        return List.copyOf(requests);
    }

    @Override
    public void close() {
        server.stop(0);
    }

    private synchronized void handle(HttpExchange exchange) throws IOException {
        try (exchange) {
            byte[] body = exchange.getRequestBody().readAllBytes();
            String method = exchange.getRequestMethod();
            requests.add(method);
            Fault fault = down ? Fault.SLOW_DOWN : faults.poll();
            if (fault == Fault.CUT_BEFORE) {
                return;
            }
            if (fault == Fault.DAMAGED && body.length > 0) {
                body[body.length / 2] ^= 1;
            } else if (fault != null && fault != Fault.CUT_AFTER) {
                switch (fault) {
                    case SLOW_DOWN -> refuse(exchange, 503, "SlowDown");
                    case CONFLICT -> refuse(exchange, 409, "ConditionalRequestConflict");
                    case TOO_MANY_REQUESTS -> refuse(exchange, 429, "TooManyRequests");
                    case TIMED_OUT -> refuse(exchange, 408, "Timeout");
                    case BODY_STOPPED -> refuse(exchange, 400, "RequestTimeout");
                    case BODY_CUT -> refuse(exchange, 400, "IncompleteBody");
                    case CLOCKS_DIFFER -> refuse(exchange, 403, "RequestTimeTooSkewed");
                    default -> refuse(exchange, 403, "AccessDenied");
                }
                return;
            }
            String path = exchange.getRequestURI().getPath().replaceFirst("^/[^/]*/?", "");
            switch (method) {
                case "PUT" -> put(exchange, path, body, fault);
                case "HEAD" -> head(exchange, path);
                case "GET" -> list(exchange);
                default -> refuse(exchange, 405, "MethodNotAllowed");
            }
        }
    }

    private void put(HttpExchange exchange, String key, byte[] body, Fault fault) throws IOException {
        if ("*".equals(exchange.getRequestHeaders().getFirst("If-None-Match")) && objects.containsKey(key)) {
            refuse(exchange, 412, "PreconditionFailed");
            return;
        }
        String checksum = exchange.getRequestHeaders().getFirst("x-amz-checksum-crc32");
        if (checksum != null && !checksum.equals(crc32(body))) {
            refuse(exchange, 400, "BadDigest");
            return;
        }
        Map<String, String> metadata = new HashMap<>();
        exchange.getRequestHeaders().forEach((name, values) -> {
            if (name.toLowerCase().startsWith("x-amz-meta-")) {
                metadata.put(name.toLowerCase().substring("x-amz-meta-".length()), values.get(0));
            }
        });
        objects.put(key, new Stored(body, metadata));
        if (fault != Fault.CUT_AFTER) {
            exchange.sendResponseHeaders(200, -1);
        }
    }

    private void head(HttpExchange exchange, String key) throws IOException {
        Stored stored = objects.get(key);
        if (stored == null) {
            exchange.sendResponseHeaders(404, -1);
            return;
        }
        stored.metadata().forEach((name, value) -> exchange.getResponseHeaders().set("x-amz-meta-" + name, value));
        exchange.sendResponseHeaders(200, -1);
    }

    private void list(HttpExchange exchange) throws IOException {
        Map<String, String> query = Arrays.stream(exchange.getRequestURI().getRawQuery().split("&"))
                .map(pair -> pair.split("=", 2))
                .collect(Collectors.toMap(
                        pair -> pair[0], pair -> URLDecoder.decode(pair[1], StandardCharsets.UTF_8)));
        List<String> keys = objects.tailMap(query.getOrDefault("start-after", ""), false).keySet().stream()
                .filter(key -> key.startsWith(query.get("prefix"))).toList();
        StringBuilder xml = new StringBuilder("<ListBucketResult><IsTruncated>")
                .append(keys.size() > PAGE).append("</IsTruncated>");
        keys.stream().limit(PAGE)
                .forEach(key -> xml.append("<Contents><Key>").append(key).append("</Key></Contents>"));
        answer(exchange, 200, xml.append("</ListBucketResult>").toString());
    }

    private static String crc32(byte[] body) {
        CRC32 crc = new CRC32();
        crc.update(body);
        return Base64.getEncoder().encodeToString(ByteBuffer.allocate(4).putInt((int) crc.getValue()).array());
    }

    private static void refuse(HttpExchange exchange, int status, String code) throws IOException {
        answer(exchange, status, "<Error><Code>" + code + "</Code><Message>" + code + "</Message></Error>");
    }

    private static void answer(HttpExchange exchange, int status, String xml) throws IOException {
        byte[] bytes = xml.getBytes(StandardCharsets.UTF_8);
        if (exchange.getRequestMethod().equals("HEAD")) {
            exchange.sendResponseHeaders(status, -1);
            return;
        }
        exchange.getResponseHeaders().set("Content-Type", "application/xml");
        exchange.sendResponseHeaders(status, bytes.length);
        exchange.getResponseBody().write(bytes);
    }
}
