package io.headwater.connect.json;

import io.headwater.connect.PluginVersion;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigDef.Importance;
import org.apache.kafka.common.config.ConfigDef.Range;
import org.apache.kafka.common.config.ConfigDef.Type;
import org.apache.kafka.connect.components.Versioned;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.storage.Converter;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Converts Debezium's change events to Kafka's JSON without schemas, in a bounded number of bytes.
 *
 * <p>A producer that meets a record above its limit fails for good: it meets the record again after each restart. So
 * this converter shrinks an event whose JSON would be too large. First the event's old row loses its large columns,
 * because readers use only its key and partition. If the event is still too large, its new row goes as well, and the
 * field {@value #REFUSED} takes its place. The lake's writer quarantines such an event, because it lacks the row that
 * its operation needs. The field holds the row's small columns, among them its key.
 */
public final class BoundedJsonConverter implements Converter, Versioned {
    /** Option: the maximum size of the JSON, in bytes. */
    public static final String MAX_BYTES = "max.bytes";

    static final String REFUSED = "refused";

    private static final Logger LOG = LoggerFactory.getLogger(BoundedJsonConverter.class);
    private static final String BEFORE = "before";
    private static final String AFTER = "after";
    // A table has at most 1,600 columns, so columns up to the second size always fit.
    private static final int[] SMALL_COLUMN_BYTES = {64 << 10, 1 << 10};
    private static final ConfigDef DEFINITION = new ConfigDef()
            .define(MAX_BYTES, Type.INT, ConfigDef.NO_DEFAULT_VALUE, Range.atLeast(4 << 20), Importance.HIGH,
                    "The largest JSON of a change event, in bytes; a larger event loses large columns.");

    private final JsonConverter json = new JsonConverter();
    private int maxBytes;

    @Override
    public void configure(Map<String, ?> properties, boolean isKey) {
        maxBytes = (Integer) DEFINITION.parse(properties).get(MAX_BYTES);
        Map<String, Object> withoutSchemas = new HashMap<>(properties);
        withoutSchemas.put("schemas.enable", "false");
        // Debezium's schemas contain the columns' defaults. A null must stay null and not become a default.
        withoutSchemas.put("replace.null.with.default", "false");
        json.configure(withoutSchemas, isKey);
    }

    @Override
    public ConfigDef config() {
        return DEFINITION;
    }

    @Override
    public byte[] fromConnectData(String topic, Schema schema, Object value) {
        if (!isChangeOfRow(value)) {
            return json.fromConnectData(topic, schema, value);
        }
        Struct event = (Struct) value;
        byte[] whole = bounded(topic, event);
        if (whole != null) {
            return whole;
        }
        for (int small : SMALL_COLUMN_BYTES) {
            byte[] withoutBefore = bounded(topic, narrowed(topic, event, small));
            if (withoutBefore != null) {
                return withoutBefore;
            }
        }
        for (int small : SMALL_COLUMN_BYTES) {
            Struct refusal = refusal(topic, event, small);
            byte[] refused = bounded(topic, refusal);
            if (refused != null) {
                LOG.error("{}: a row is refused, because its event would exceed {} bytes; its large columns are {}",
                        topic, maxBytes, refusal.getStruct(REFUSED).getArray("left_out"));
                return refused;
            }
        }
        throw new IllegalStateException("A change event without its large columns is above " + maxBytes + " bytes");
    }

    @Override
    public SchemaAndValue toConnectData(String topic, byte[] value) {
        return json.toConnectData(topic, value);
    }

    @Override
    public String version() {
        return PluginVersion.of(BoundedJsonConverter.class);
    }

    private static boolean isChangeOfRow(Object value) {
        if (!(value instanceof Struct event)) {
            return false;
        }
        Schema schema = event.schema();
        return schema.field("op") != null && isRow(schema.field(BEFORE)) && isRow(schema.field(AFTER));
    }

    private static boolean isRow(Field field) {
        return field != null && field.schema().type() == Schema.Type.STRUCT;
    }

    /** Returns the JSON, or null if it is too large. Makes no JSON that cannot fit. */
    private byte[] bounded(String topic, Struct event) {
        if (atLeast(event) > maxBytes) {
            return null;
        }
        byte[] bytes = json.fromConnectData(topic, event.schema(), event);
        return bytes.length <= maxBytes ? bytes : null;
    }

    /** Returns the event without the large columns of its old row. */
    private Struct narrowed(String topic, Struct event, int small) {
        return with(event, BEFORE, smallColumns(topic, event.getStruct(BEFORE), small, new ArrayList<>()), null);
    }

    /** Returns the event without its new row. The field with the reason has the row's small columns. */
    private Struct refusal(String topic, Struct event, int small) {
        List<String> leftOut = new ArrayList<>();
        Struct row = smallColumns(topic, event.getStruct(AFTER), small, leftOut);
        SchemaBuilder schema = SchemaBuilder.struct()
                .field("max_bytes", Schema.INT32_SCHEMA)
                .field("left_out", SchemaBuilder.array(Schema.STRING_SCHEMA).build());
        if (row != null) {
            schema.field("row", row.schema());
        }
        Struct refused = new Struct(schema.build()).put("max_bytes", maxBytes).put("left_out", leftOut);
        if (row != null) {
            refused.put("row", row);
        }
        return with(with(event, BEFORE, smallColumns(topic, event.getStruct(BEFORE), small, new ArrayList<>()), null),
                AFTER, null, refused);
    }

    /** Returns a copy of the event with another row, and with a refusal if there is one. */
    private static Struct with(Struct event, String field, Struct row, Struct refused) {
        SchemaBuilder schema = SchemaBuilder.struct().name(event.schema().name());
        for (Field known : event.schema().fields()) {
            Schema same = known.schema();
            schema.field(known.name(), known.name().equals(field) && row != null ? row.schema() : same);
        }
        if (refused != null) {
            schema.field(REFUSED, refused.schema());
        }
        Struct copy = new Struct(schema.build());
        for (Field known : event.schema().fields()) {
            copy.put(known.name(), known.name().equals(field) ? row : event.getWithoutDefault(known.name()));
        }
        return refused == null ? copy : copy.put(REFUSED, refused);
    }

    /** Returns a row without its large columns, whose names are added to {@code leftOut}; null for no row. */
    private Struct smallColumns(String topic, Struct row, int small, List<String> leftOut) {
        if (row == null) {
            return null;
        }
        SchemaBuilder schema = SchemaBuilder.struct().optional();
        List<Field> kept = new ArrayList<>();
        for (Field column : row.schema().fields()) {
            Object value = row.getWithoutDefault(column.name());
            if (atLeast(value) <= small && json.fromConnectData(topic, column.schema(), value).length <= small) {
                schema.field(column.name(), column.schema());
                kept.add(column);
            } else {
                leftOut.add(column.name());
            }
        }
        Struct narrow = new Struct(schema.build());
        kept.forEach(column -> narrow.put(column.name(), row.getWithoutDefault(column.name())));
        return narrow;
    }

    /** Returns a lower bound of a value's JSON in bytes: a character takes at least one, a surrogate pair four. */
    private static long atLeast(Object value) {
        if (value instanceof String text) {
            return text.length();
        }
        if (value instanceof List<?> list) {
            return list.stream().mapToLong(BoundedJsonConverter::atLeast).sum();
        }
        if (value instanceof Map<?, ?> map) {
            return atLeast(new ArrayList<>(map.values()));
        }
        if (value instanceof Struct struct) {
            return struct.schema().fields().stream()
                    .mapToLong(field -> atLeast(struct.getWithoutDefault(field.name()))).sum();
        }
        return 0;
    }
}
