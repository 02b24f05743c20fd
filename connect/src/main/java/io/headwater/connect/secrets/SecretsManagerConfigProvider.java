package io.headwater.connect.secrets;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.net.URI;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import java.util.function.LongSupplier;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigData;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigDef.Importance;
import org.apache.kafka.common.config.ConfigDef.NonEmptyString;
import org.apache.kafka.common.config.ConfigDef.Range;
import org.apache.kafka.common.config.ConfigDef.Type;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.config.provider.ConfigProvider;
import software.amazon.awssdk.core.exception.SdkException;
import software.amazon.awssdk.http.apache.ApacheHttpClient;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.secretsmanager.SecretsManagerClient;
import software.amazon.awssdk.services.secretsmanager.SecretsManagerClientBuilder;

/**
 * Puts fields of Secrets Manager secrets into a configuration.
 *
 * <p>{@code ${secretsmanager:headwater/dev/cdc:password}} is the field {@code password} of the JSON object in the
 * secret {@code headwater/dev/cdc}.
 *
 * <p>The provider caches secrets itself and returns no TTL, because Connect restarts a connector whenever a TTL
 * expires. No message or exception holds a secret's value.
 */
public final class SecretsManagerConfigProvider implements ConfigProvider {
    static final String REGION = "region";
    static final String ENDPOINT = "endpoint";
    static final String CACHE_MS = "cache.ms";

    static final ConfigDef DEFINITION = new ConfigDef()
            .define(REGION, Type.STRING, ConfigDef.NO_DEFAULT_VALUE, new NonEmptyString(), Importance.HIGH,
                    "AWS region of the secrets.")
            .define(ENDPOINT, Type.STRING, "", Importance.LOW,
                    "URL of a Secrets Manager API other than AWS's.")
            .define(CACHE_MS, Type.LONG, 300_000L, Range.atLeast(0), Importance.LOW,
                    "How long a secret is cached before it is read again.");

    /** A store of secrets. */
    interface Secrets extends AutoCloseable {
        /**
         * Returns a secret's text, or empty if the secret is binary.
         *
         * @throws SdkException if the secret cannot be read
         */
        Optional<String> read(String name);

        @Override
        void close();
    }

    private record Cached(Map<String, String> fields, long readAt) {}

    private final LongSupplier clock;
    private final Function<AbstractConfig, Secrets> opener;
    private final Map<String, Cached> cache = new HashMap<>();
    private Secrets secrets;
    private long cacheMillis;

    /** Connect calls this constructor. */
    public SecretsManagerConfigProvider() {
        this(() -> TimeUnit.NANOSECONDS.toMillis(System.nanoTime()), SecretsManagerConfigProvider::open);
    }

    /** @param clock monotonic time in milliseconds */
    SecretsManagerConfigProvider(LongSupplier clock, Function<AbstractConfig, Secrets> opener) {
        this.clock = clock;
        this.opener = opener;
    }

    @Override
    public void configure(Map<String, ?> properties) {
        AbstractConfig config = new AbstractConfig(DEFINITION, properties);
        cacheMillis = config.getLong(CACHE_MS);
        secrets = opener.apply(config);
    }

    /** Returns all fields of a secret that hold a single value. */
    @Override
    public ConfigData get(String path) {
        return new ConfigData(fields(path));
    }

    /**
     * Returns the named fields of a secret.
     *
     * @throws ConfigException if the secret cannot be read or lacks such a field
     */
    @Override
    public ConfigData get(String path, Set<String> keys) {
        if (path.isEmpty() || path.equals("arn")) {
            throw new ConfigException("Expected ${PROVIDER:SECRET:FIELD} with a secret's name and a field of it; found "
                    + (path.isEmpty() ? "no field" : "an ARN instead of the name") + ".");
        }
        Map<String, String> fields = fields(path);
        Map<String, String> named = new HashMap<>();
        for (String key : keys) {
            String value = fields.get(key);
            if (value == null) {
                throw new ConfigException("Secret " + path + " has no field " + key
                        + " that holds a string, number or boolean.");
            }
            named.put(key, value);
        }
        return new ConfigData(named);
    }

    @Override
    public void close() {
        if (secrets != null) {
            secrets.close();
        }
    }

    private synchronized Map<String, String> fields(String name) {
        long now = clock.getAsLong();
        Cached cached = cache.get(name);
        if (cached == null || now - cached.readAt >= cacheMillis) {
            cached = new Cached(parse(name, read(name)), now);
            cache.put(name, cached);
        }
        return cached.fields;
    }

    private String read(String name) {
        try {
            return secrets.read(name).orElseThrow(
                    () -> new ConfigException("Secret " + name + " is binary, expected a JSON object."));
        } catch (SdkException e) {
            throw new ConfigException("Secret " + name + " cannot be read: " + e.getMessage());
        }
    }

    private static Map<String, String> parse(String name, String text) {
        Map<String, String> fields = new HashMap<>();
        try (JsonParser json = new JsonFactory().createParser(text)) {
            if (json.nextToken() != JsonToken.START_OBJECT) {
                throw notAnObject(name);
            }
            while (json.nextToken() != JsonToken.END_OBJECT) {
                String field = json.currentName();
                JsonToken value = json.nextToken();
                if (value.isScalarValue() && value != JsonToken.VALUE_NULL) {
                    fields.put(field, json.getText());
                } else {
                    json.skipChildren();
                }
            }
            if (json.nextToken() != null) {
                throw notAnObject(name);
            }
            return fields;
        } catch (IOException e) {
            throw notAnObject(name); // without the cause, whose message quotes the secret
        }
    }

    private static ConfigException notAnObject(String name) {
        return new ConfigException("Secret " + name + " is not a JSON object.");
    }

    private static Secrets open(AbstractConfig config) {
        SecretsManagerClientBuilder builder = SecretsManagerClient.builder()
                .region(Region.of(config.getString(REGION)))
                .httpClientBuilder(ApacheHttpClient.builder());
        if (!config.getString(ENDPOINT).isEmpty()) {
            builder.endpointOverride(URI.create(config.getString(ENDPOINT)));
        }
        SecretsManagerClient client = builder.build();
        return new Secrets() {
            @Override
            public Optional<String> read(String name) {
                return Optional.ofNullable(client.getSecretValue(request -> request.secretId(name)).secretString());
            }

            @Override
            public void close() {
                client.close();
            }
        };
    }
}
