package io.headwater.connect.postgresql;

import java.util.AbstractList;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.source.SourceRecord;

/** An array that Debezium cannot carry, as PostgreSQL prints it. It is an empty list until its record is complete,
 * because the schema of its column takes nothing else. Then the text replaces the list. */
final class UnfitArray extends AbstractList<Object> {
    private final String literal;

    UnfitArray(String literal) {
        this.literal = literal;
    }

    @Override
    public Object get(int index) {
        throw new IndexOutOfBoundsException(index);
    }

    @Override
    public int size() {
        return 0;
    }

    /** The record with texts in the place of such arrays. */
    static SourceRecord asText(SourceRecord record) {
        if (record.key() instanceof Struct key && asText(key) != key) {
            throw new ConnectException(
                    record.topic() + ": found an array in the primary key that Debezium cannot carry, expected one "
                            + "dimension, and numbers");
        }
        if (!(record.value() instanceof Struct event)) {
            return record;
        }
        Struct changed = asText(event);
        return changed == event
                ? record
                : record.newRecord(
                        record.topic(), record.kafkaPartition(), record.keySchema(), record.key(), changed.schema(),
                        changed, record.timestamp(), record.headers());
    }

    /** Returns the struct itself if it holds no such array. */
    private static Struct asText(Struct struct) {
        Map<String, Object> changed = new HashMap<>();
        for (Field field : struct.schema().fields()) {
            Object value = struct.getWithoutDefault(field.name());
            if (value instanceof UnfitArray array) {
                changed.put(field.name(), array.literal);
            } else if (value instanceof Struct inner && asText(inner) != inner) {
                changed.put(field.name(), asText(inner));
            }
        }
        if (changed.isEmpty()) {
            return struct;
        }
        SchemaBuilder schema = SchemaBuilder.struct().name(struct.schema().name()).optional();
        for (Field field : struct.schema().fields()) {
            Object value = changed.get(field.name());
            Schema text = value instanceof Struct inner ? inner.schema() : Schema.OPTIONAL_STRING_SCHEMA;
            schema.field(field.name(), value == null ? field.schema() : text);
        }
        Struct copy = new Struct(schema.build());
        for (Field field : struct.schema().fields()) {
            copy.put(field.name(), changed.getOrDefault(field.name(), struct.getWithoutDefault(field.name())));
        }
        return copy;
    }
}
