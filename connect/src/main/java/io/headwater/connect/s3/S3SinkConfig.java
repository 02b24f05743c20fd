package io.headwater.connect.s3;

import java.net.URI;
import java.net.URISyntaxException;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigDef.Importance;
import org.apache.kafka.common.config.ConfigDef.NonEmptyString;
import org.apache.kafka.common.config.ConfigDef.Range;
import org.apache.kafka.common.config.ConfigDef.Type;
import org.apache.kafka.common.config.ConfigDef.ValidString;
import org.apache.kafka.common.config.ConfigException;

/** The sink's options, each defined and documented in one place. */
final class S3SinkConfig extends AbstractConfig {
    static final String BUCKET = "s3.bucket";
    static final String PREFIX = "s3.prefix";
    static final String REGION = "s3.region";
    static final String ENDPOINT = "s3.endpoint";
    static final String FLUSH_RECORDS = "flush.records";
    static final String FLUSH_BYTES = "flush.bytes";
    static final String FLUSH_INTERVAL_MS = "flush.interval.ms";
    static final String RETRY_BACKOFF_MS = "retry.backoff.ms";
    static final String RETRY_MAX_BACKOFF_MS = "retry.max.backoff.ms";
    static final String RETRY_TIMEOUT_MS = "retry.timeout.ms";
    static final String MISSING_OFFSETS = "missing.offsets";
    static final String FAIL = "fail";
    static final String ACCEPT = "accept";

    // An object is held in memory, compressed, until S3 has it, so its size must stay below an array's limit.
    private static final int MAX_FLUSH_BYTES = 1 << 30;

    static final ConfigDef DEFINITION = new ConfigDef()
            .define(BUCKET, Type.STRING, ConfigDef.NO_DEFAULT_VALUE, new NonEmptyString(), Importance.HIGH,
                    "Name of the landing bucket.")
            .define(PREFIX, Type.STRING, "landing", S3SinkConfig::checkPrefix, Importance.HIGH,
                    "Folder in the bucket; objects are PREFIX/TOPIC/PARTITION/FIRST-OFFSET.jsonl.gz.")
            .define(REGION, Type.STRING, ConfigDef.NO_DEFAULT_VALUE, new NonEmptyString(), Importance.HIGH,
                    "AWS region of the bucket.")
            .define(ENDPOINT, Type.STRING, "", S3SinkConfig::checkEndpoint, Importance.LOW,
                    "URL of an S3 API other than AWS's; buckets are then addressed in the path.")
            .define(FLUSH_RECORDS, Type.INT, 10_000, Range.atLeast(1), Importance.MEDIUM,
                    "An object is written when it has this many records.")
            .define(FLUSH_BYTES, Type.INT, 16 << 20, Range.between(1, MAX_FLUSH_BYTES), Importance.MEDIUM,
                    "An object is written when its uncompressed lines reach this many bytes.")
            .define(FLUSH_INTERVAL_MS, Type.LONG, 10_000L, Range.atLeast(1), Importance.MEDIUM,
                    "An object is written this long after the previous one. After a pause it is written when its first record"
                            + " has waited a tenth of this.")
            .define(RETRY_BACKOFF_MS, Type.LONG, 200L, Range.atLeast(1), Importance.LOW,
                    "Wait after the first failed S3 request; it doubles with each further failure, with jitter.")
            .define(RETRY_MAX_BACKOFF_MS, Type.LONG, 10_000L, Range.atLeast(1), Importance.LOW,
                    "Longest wait between two tries of an S3 request.")
            .define(RETRY_TIMEOUT_MS, Type.LONG, 300_000L, Range.atLeast(0), Importance.MEDIUM,
                    "The task fails after S3 has failed for this long; nothing is lost, restart it.")
            .define(MISSING_OFFSETS, Type.STRING, FAIL, ValidString.in(FAIL, ACCEPT), Importance.HIGH,
                    "What to do if Kafka no longer has the next record: fail, or accept that it is lost, log it "
                            + "and go on. Topics with compaction or transactions have offsets without a record, so "
                            + "they need accept.");

    S3SinkConfig(Map<String, String> properties) {
        super(DEFINITION, properties);
    }

    /** The URL of the S3 API, or empty for AWS's own. */
    Optional<URI> endpoint() {
        String endpoint = getString(ENDPOINT);
        return endpoint.isEmpty() ? Optional.empty() : Optional.of(URI.create(endpoint));
    }

    private static void checkPrefix(String name, Object value) {
        String prefix = (String) value;
        if (prefix.isEmpty() || prefix.startsWith("/") || prefix.endsWith("/")) {
            throw new ConfigException(name, value, "must be a folder without a slash at either end, such as landing");
        }
    }

    private static void checkEndpoint(String name, Object value) {
        String endpoint = (String) value;
        if (endpoint.isEmpty()) {
            return;
        }
        try {
            URI uri = new URI(endpoint);
            if (uri.getHost() == null || !("http".equals(uri.getScheme()) || "https".equals(uri.getScheme()))) {
                throw new ConfigException(name, value, "must be a URL such as http://localhost:9000");
            }
        } catch (URISyntaxException e) {
            throw new ConfigException(name, value, "must be a URL such as http://localhost:9000");
        }
    }
}
