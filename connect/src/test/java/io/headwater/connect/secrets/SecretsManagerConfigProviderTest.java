package io.headwater.connect.secrets;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.common.config.ConfigData;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.config.ConfigTransformer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import software.amazon.awssdk.core.exception.SdkClientException;

class SecretsManagerConfigProviderTest {
    private static final String NAME = "headwater/dev/cdc";

    private final Map<String, String> texts = new HashMap<>();
    private int reads;
    private long now = 1_000_000;

    private SecretsManagerConfigProvider provider() {
        SecretsManagerConfigProvider provider = new SecretsManagerConfigProvider(() -> now, config ->
                new SecretsManagerConfigProvider.Secrets() {
                    @Override
                    public Optional<String> read(String name) {
                        reads++;
                        if (!texts.containsKey(name)) {
                            throw SdkClientException.create("no such secret");
                        }
                        return Optional.ofNullable(texts.get(name));
                    }

                    @Override
                    public void close() {
                        // nothing to close
                    }
                });
        provider.configure(Map.of("region", "eu-central-1", "cache.ms", "1000"));
        return provider;
    }

    @Test
    void putsFieldsIntoAConfiguration() {
        texts.put(NAME, "{\"username\":\"cdc\",\"password\":\"s3:cr}et\",\"port\":5432,\"tls\":true,\"more\":{\"a\":[1]}}");
        ConfigTransformer transformer = new ConfigTransformer(Map.of("secretsmanager", provider()));
        Map<String, String> data = transformer.transform(Map.of(
                "password", "${secretsmanager:headwater/dev/cdc:password}",
                "url", "${secretsmanager:headwater/dev/cdc:username}@db:${secretsmanager:headwater/dev/cdc:port}")).data();
        assertThat(data).containsEntry("password", "s3:cr}et").containsEntry("url", "cdc@db:5432");
    }

    @Test
    void returnsNoTtlBecauseConnectRestartsConnectorsOnOne() {
        texts.put(NAME, "{\"password\":\"x\"}");
        ConfigData data = provider().get(NAME, Set.of("password"));
        assertThat(data.ttl()).isNull();
    }

    @Test
    void readsASecretOnceUntilTheCacheIsOld() {
        SecretsManagerConfigProvider provider = provider();
        texts.put(NAME, "{\"password\":\"old\",\"username\":\"cdc\"}");
        provider.get(NAME, Set.of("password"));
        provider.get(NAME, Set.of("username"));
        texts.put(NAME, "{\"password\":\"new\"}");
        now += 999;
        assertThat(provider.get(NAME, Set.of("password")).data()).containsEntry("password", "old");
        assertThat(reads).isEqualTo(1);
        now += 1;
        assertThat(provider.get(NAME, Set.of("password")).data()).containsEntry("password", "new");
    }

    @Test
    void givesAllFieldsWhenNoneIsNamed() {
        texts.put(NAME, "{\"username\":\"cdc\",\"nothing\":null,\"more\":[]}");
        assertThat(provider().get(NAME).data()).containsOnly(Map.entry("username", "cdc"));
    }

    @ParameterizedTest
    @ValueSource(strings = {"{\"other\":\"hunter2\"}", "{\"password\":null}", "{\"password\":{\"x\":\"hunter2\"}}"})
    void namesTheSecretAndTheFieldThatIsMissing(String text) {
        texts.put(NAME, text);
        assertFails().contains(NAME).contains("password").doesNotContain("hunter2");
    }

    @ParameterizedTest
    @ValueSource(strings = {"hunter2", "\"hunter2\"", "{\"password\":hunter2}", "{\"password\":\"hunter2\"", "", "{}hunter2"})
    void neverShowsTheTextOfASecretThatIsNoJson(String text) {
        texts.put(NAME, text);
        assertFails().contains(NAME).contains("JSON object").doesNotContain("hunter2");
    }

    @Test
    void namesTheSecretThatCannotBeReadOrIsBinary() {
        assertFails().contains(NAME).contains("no such secret");
        texts.put(NAME, null);
        assertFails().contains(NAME).contains("binary");
    }

    @ParameterizedTest
    @ValueSource(strings = {"${s:password}", "${s:arn:aws:secretsmanager:eu-central-1:1:secret:x:password}"})
    void explainsAReferenceOfTheWrongForm(String reference) {
        ConfigTransformer transformer = new ConfigTransformer(Map.of("s", provider()));
        assertThatThrownBy(() -> transformer.transform(Map.of("password", reference)))
                .isInstanceOf(ConfigException.class).hasMessageContaining("${PROVIDER:SECRET:FIELD}");
    }

    @Test
    void asksSecretsManagersApi() throws IOException {
        System.setProperty("aws.accessKeyId", "test");
        System.setProperty("aws.secretAccessKey", "test");
        HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.createContext("/", exchange -> {
            try (exchange) {
                String request = new String(exchange.getRequestBody().readAllBytes(), StandardCharsets.UTF_8);
                boolean known = request.contains("\"SecretId\":\"" + NAME + "\"")
                        && "secretsmanager.GetSecretValue".equals(exchange.getRequestHeaders().getFirst("X-Amz-Target"));
                byte[] answer = (known ? "{\"SecretString\":\"{\\\"password\\\":\\\"hunter2\\\"}\"}"
                        : "{\"__type\":\"ResourceNotFoundException\"}").getBytes(StandardCharsets.UTF_8);
                exchange.sendResponseHeaders(known ? 200 : 400, answer.length);
                exchange.getResponseBody().write(answer);
            }
        });
        server.start();
        try (SecretsManagerConfigProvider provider = new SecretsManagerConfigProvider()) {
            provider.configure(Map.of("region", "eu-central-1",
                    "endpoint", "http://127.0.0.1:" + server.getAddress().getPort()));
            assertThat(provider.get(NAME, Set.of("password")).data()).containsEntry("password", "hunter2");
            assertThatThrownBy(() -> provider.get("absent", Set.of("password")))
                    .isInstanceOf(ConfigException.class).hasMessageContaining("absent");
        } finally {
            server.stop(0);
        }
    }

    private org.assertj.core.api.AbstractStringAssert<?> assertFails() {
        try {
            provider().get(NAME, Set.of("password"));
        } catch (ConfigException e) {
            StringWriter trace = new StringWriter();
            e.printStackTrace(new PrintWriter(trace)); // what a log would show, causes included
            return assertThat(trace.toString());
        }
        throw new AssertionError("expected a ConfigException");
    }
}
