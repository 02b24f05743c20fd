package io.headwater.connect.postgresql;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.source.SourceRecord;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class MasksTest {
    private static final String KEY = "0123456789abcdef0123456789abcdef";
    /** HMAC-SHA-256 of hunter2 under that key; test_masks.py has the same. */
    private static final String MASK = "3920d54ec70f500ee54e1da041d2364a8e57dd252f7a81ed8acd58ad6cf3b6d0";
    private static final String PLACEHOLDER = "__debezium_unavailable_value";
    private static final Schema ROW = SchemaBuilder.struct()
            .optional()
            .field("id", Schema.INT32_SCHEMA)
            .field("Email", SchemaBuilder.string().defaultValue("hunter2").build())
            .field("pin", Schema.INT32_SCHEMA)
            .build();
    private static final Schema EVENT = SchemaBuilder.struct()
            .name("event")
            .field("before", ROW)
            .field("after", ROW)
            .field("op", Schema.STRING_SCHEMA)
            .build();

    @Test
    void bothRowsAreMaskedAndAllElseStays() {
        SourceRecord record = record(null, row("hunter2"), row("hunter2"));
        SourceRecord sent = masks("{\"shop.people\": {\"email\": \"hmac\", \"pin\": null}}").apply(record);
        Struct event = (Struct) sent.value();
        event.validate();
        assertThat(sent.valueSchema()).isEqualTo(event.schema());
        for (String name : new String[] {"before", "after"}) {
            Struct row = event.getStruct(name);
            assertThat(row.get("id")).isEqualTo(1);
            assertThat(row.get("Email")).isEqualTo(MASK);
            assertThat(row.get("pin")).isNull();
        }
        assertThat(event.get("op")).isEqualTo("u");
        assertThat(sent.sourceOffset()).isSameAs(record.sourceOffset());
        assertThat(event.schema().field("after").schema().field("Email").schema().defaultValue()).isNull();
    }

    @Test
    void aMissingRowStaysMissing() {
        SourceRecord sent = masks("{\"shop.people\": {\"email\": \"hmac\"}}").apply(record(null, null, row("hunter2")));
        Struct event = (Struct) sent.value();
        event.validate();
        assertThat(event.get("before")).isNull();
        assertThat(event.getStruct("after").get("Email")).isEqualTo(MASK);
    }

    @Test
    void aPlaceholderStaysOneAndNullStaysNull() {
        Masks masks = masks("{\"shop.people\": {\"email\": \"hmac\"}}");
        assertThat(email(masks, PLACEHOLDER)).isEqualTo(PLACEHOLDER);
        assertThat(email(masks("{\"shop.people\": {\"email\": null}}"), PLACEHOLDER)).isNull();
        assertThat((String) email(masks, "")).hasSize(64);
        assertThat(((Struct) masks("{\"shop.people\": {\"pin\": \"hmac\"}}").apply(record(null, null, row("x"))).value())
                        .getStruct("after").get("pin"))
                .isNull();
    }

    @Test
    void recordsOfOtherTablesAreTheSame() {
        SourceRecord record = record(null, null, row("hunter2"));
        assertThat(masks("{\"shop.others\": {\"email\": \"hmac\"}}").apply(record)).isSameAs(record);
        assertThat(new Masks(Map.of("topic.prefix", "t")).apply(record)).isSameAs(record);
    }

    @Test
    void aMaskedColumnInTheKeyOfARecordIsRefused() {
        Masks masks = masks("{\"shop.people\": {\"email\": \"hmac\"}}");
        assertThatThrownBy(() -> masks.apply(record(row("hunter2"), null, row("hunter2"))))
                .isInstanceOf(ConnectException.class)
                .hasMessageContaining("t.shop.people: found the masked column Email in the primary key")
                .hasMessageNotContaining("hunter2");
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "{\"shop.people\": {\"email\": \"hmac\"}} | short | headwater.mask.secret: found 5 bytes",
                "{\"shop.people\": {\"email\": \"hmac\"}} |       | headwater.mask.secret: found 0 bytes",
                "{\"shop.people\": {\"email\": \"sha\"}}  | x     | headwater.mask.columns: found sha",
                "[1]                                      | x     | headwater.mask.columns: found [1]",
            })
    void settingsThatMaskNothingAreRefused(String columns, String key, String message) {
        assertThatThrownBy(() -> masks(columns, key == null ? "" : key))
                .isInstanceOf(ConnectException.class)
                .hasMessageContaining(message);
    }

    private static Object email(Masks masks, String text) {
        return ((Struct) masks.apply(record(null, null, row(text))).value()).getStruct("after").get("Email");
    }

    private static Masks masks(String columns) {
        return masks(columns, KEY);
    }

    private static Masks masks(String columns, String key) {
        Map<String, String> config = new HashMap<>(Map.of("topic.prefix", "t", "headwater.mask.columns", columns));
        config.put("headwater.mask.secret", key);
        return new Masks(config);
    }

    private static Struct row(String email) {
        return new Struct(ROW).put("id", 1).put("Email", email).put("pin", 4711);
    }

    private static SourceRecord record(Struct key, Struct before, Struct after) {
        Struct event = new Struct(EVENT).put("before", before).put("after", after).put("op", "u");
        return new SourceRecord(Map.of(), Map.of("lsn", 1L), "t.shop.people", null, ROW, key, EVENT, event);
    }
}
