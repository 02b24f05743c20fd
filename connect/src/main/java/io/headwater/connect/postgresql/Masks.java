package io.headwater.connect.postgresql;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.debezium.data.Envelope;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Locale;
import java.util.Map;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Masks columns before a record leaves the connector, in the rows before and after a change: by {@code hmac}, the
 * HMAC-SHA-256 of a text's UTF-8 in lower-case hexadecimal digits, or by null. The lake's side makes the same masks in
 * {@code headwater/contract/masks.py}.
 *
 * <p>What is masked by {@code hmac} and comes as no text becomes null: its column has changed its type. Debezium's
 * placeholder for a TOASTed value that did not come along stays what it is.
 */
final class Masks {
    /** JSON: {@code {"schema.table": {"column": "hmac" or null}}}. Names of columns are compared without regard to capitals. */
    static final String COLUMNS_CONFIG = "headwater.mask.columns";
    /** The key, needed where there is an {@code hmac}. Debezium's log hides settings whose names end with "secret". */
    static final String KEY_CONFIG = "headwater.mask.secret";

    private static final String PREFIX_CONFIG = "topic.prefix";
    private static final String PLACEHOLDER = "__debezium_unavailable_value";
    private static final String HMAC = "hmac";
    private static final String ALGORITHM = "HmacSHA256";
    private static final int SHORTEST_KEY = 32;

    /** By topic and by column, whether its texts are masked by HMAC; else its values become null. */
    private final Map<String, Map<String, Boolean>> columns = new HashMap<>();
    private final Mac mac;

    /** Raises ConnectException where the settings are not as above, or the key is shorter than 32 bytes. */
    Masks(Map<String, String> config) {
        boolean keyed = false;
        for (Map.Entry<String, Map<String, String>> table : parse(config.get(COLUMNS_CONFIG)).entrySet()) {
            Map<String, Boolean> masked = new HashMap<>();
            table.getValue().forEach((column, how) -> masked.put(column.toLowerCase(Locale.ROOT), isHmac(how)));
            keyed |= masked.containsValue(true);
            columns.put(config.get(PREFIX_CONFIG) + "." + table.getKey(), masked);
        }
        mac = keyed ? mac(config.getOrDefault(KEY_CONFIG, "").getBytes(StandardCharsets.UTF_8)) : null;
    }

    private static Map<String, Map<String, String>> parse(String json) {
        try {
            return json == null ? Map.of() : new ObjectMapper().readValue(json, new TypeReference<>() {});
        } catch (JsonProcessingException e) {
            throw new ConnectException(COLUMNS_CONFIG + ": found " + json + ", expected columns by table, as JSON", e);
        }
    }

    private static boolean isHmac(String how) {
        if (how != null && !how.equals(HMAC)) {
            throw new ConnectException(COLUMNS_CONFIG + ": found " + how + ", expected " + HMAC + " or null");
        }
        return how != null;
    }

    private static Mac mac(byte[] key) {
        if (key.length < SHORTEST_KEY) {
            throw new ConnectException(
                    KEY_CONFIG + ": found " + key.length + " bytes, expected " + SHORTEST_KEY + " or more");
        }
        try {
            Mac mac = Mac.getInstance(ALGORITHM);
            mac.init(new SecretKeySpec(key, ALGORITHM));
            return mac;
        } catch (GeneralSecurityException e) {
            throw new ConnectException(ALGORITHM + " cannot be used", e);
        }
    }

    /** The record with its masks; itself where it has none. Raises ConnectException where its key has a masked column. */
    SourceRecord apply(SourceRecord record) {
        Map<String, Boolean> masked = columns.get(record.topic());
        if (masked == null) {
            return record;
        }
        if (record.key() instanceof Struct key) {
            refuse(record.topic(), key, masked);
        }
        if (!(record.value() instanceof Struct event)) {
            return record;
        }
        Struct changed = withRows(event, masked);
        return record.newRecord(
                record.topic(), record.kafkaPartition(), record.keySchema(), record.key(), changed.schema(), changed,
                record.timestamp(), record.headers());
    }

    private static void refuse(String topic, Struct key, Map<String, Boolean> masked) {
        for (Field column : key.schema().fields()) {
            if (isMasked(column, masked)) {
                throw new ConnectException(topic + ": found the masked column " + column.name()
                        + " in the primary key, expected another one: the primary key is in the key of each record");
            }
        }
    }

    private static boolean isMasked(Field column, Map<String, Boolean> masked) {
        return masked.containsKey(column.name().toLowerCase(Locale.ROOT));
    }

    private Struct withRows(Struct event, Map<String, Boolean> masked) {
        Map<String, Struct> rows = new HashMap<>();
        SchemaBuilder schema = SchemaBuilder.struct().name(event.schema().name());
        for (Field field : event.schema().fields()) {
            boolean isRow = field.name().equals(Envelope.FieldName.BEFORE) || field.name().equals(Envelope.FieldName.AFTER);
            if (isRow && event.getWithoutDefault(field.name()) instanceof Struct row) {
                rows.put(field.name(), masked(row, masked));
                schema.field(field.name(), rows.get(field.name()).schema());
            } else {
                schema.field(field.name(), field.schema());
            }
        }
        Struct copy = new Struct(schema.build());
        for (Field field : event.schema().fields()) {
            Struct row = rows.get(field.name());
            copy.put(field.name(), row != null ? row : event.getWithoutDefault(field.name()));
        }
        return copy;
    }

    private Struct masked(Struct row, Map<String, Boolean> masked) {
        SchemaBuilder schema = SchemaBuilder.struct().name(row.schema().name()).optional();
        for (Field column : row.schema().fields()) {
            // Without the column's default, which would stand in for null, and would be in clear.
            schema.field(column.name(), isMasked(column, masked) ? Schema.OPTIONAL_STRING_SCHEMA : column.schema());
        }
        Struct copy = new Struct(schema.build());
        for (Field column : row.schema().fields()) {
            Object value = row.getWithoutDefault(column.name());
            Boolean isHmac = masked.get(column.name().toLowerCase(Locale.ROOT));
            copy.put(column.name(), isHmac == null ? value : isHmac ? mask(value) : null);
        }
        return copy;
    }

    private String mask(Object value) {
        if (!(value instanceof String text)) {
            return null;
        }
        return text.equals(PLACEHOLDER)
                ? text
                : HexFormat.of().formatHex(mac.doFinal(text.getBytes(StandardCharsets.UTF_8)));
    }
}
