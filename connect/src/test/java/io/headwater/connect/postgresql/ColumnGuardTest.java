package io.headwater.connect.postgresql;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.headwater.connect.postgresql.TableColumns.Identity;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.source.SourceRecord;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class ColumnGuardTest {
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
    private static final TableColumns COLUMNS =
            new TableColumns(Map.of("id", Set.of(), "Email", Set.of(), "pin", Set.of()), Set.of("id"), Identity.OTHER);
    private static final Schema EVENT = SchemaBuilder.struct()
            .name("event")
            .field("before", ROW)
            .field("after", ROW)
            .field("op", Schema.STRING_SCHEMA)
            .build();

    @Test
    void bothRowsAreMaskedAndAllElseStays() {
        SourceRecord record = record(null, row("hunter2"), row("hunter2"));
        SourceRecord sent = guard("{\"shop.people\": {\"email\": \"hmac\", \"pin\": null}}").apply(record);
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
        SourceRecord sent = guard("{\"shop.people\": {\"email\": \"hmac\"}}").apply(record(null, null, row("hunter2")));
        Struct event = (Struct) sent.value();
        event.validate();
        assertThat(event.get("before")).isNull();
        assertThat(event.getStruct("after").get("Email")).isEqualTo(MASK);
    }

    @Test
    void aPlaceholderStaysOneAndNullStaysNull() {
        ColumnGuard guard = guard("{\"shop.people\": {\"email\": \"hmac\"}}");
        assertThat(email(guard, PLACEHOLDER)).isEqualTo(PLACEHOLDER);
        assertThat(email(guard("{\"shop.people\": {\"email\": null}}"), PLACEHOLDER)).isNull();
        assertThat((String) email(guard, "")).hasSize(64);
        assertThat(((Struct) guard("{\"shop.people\": {\"pin\": \"hmac\"}}").apply(record(null, null, row("x"))).value())
                        .getStruct("after").get("pin"))
                .isNull();
    }

    @Test
    void recordsOfOtherTablesAreTheSame() {
        SourceRecord record = record(null, null, row("hunter2"));
        assertThat(guard("{\"shop.others\": {\"email\": \"hmac\"}}").apply(record)).isSameAs(record);
        assertThat(new ColumnGuard(Map.of("topic.prefix", "t"), (table, hidden) -> COLUMNS).apply(record)).isSameAs(record);
    }

    @Test
    void aHiddenColumnIsInNoKeyAndInNoHeader() {
        SourceRecord sent = guard("{\"shop.people\": {\"email\": \"hmac\"}}")
                .apply(record(row("hunter2"), null, row("hunter2"), row("hunter2")));
        assertThat(((Struct) sent.key()).schema().fields()).extracting(Field::name).containsExactly("id", "pin");
        assertThat(sent.keySchema()).isEqualTo(((Struct) sent.key()).schema());
        assertThat(sent.toString()).doesNotContain("hunter2");
        assertThat(((Struct) sent.headers().lastWithName("__debezium.oldkey").value()).get("pin")).isEqualTo(4711);
    }

    @Test
    void excludedColumnsAndThoseThatAreNotIncludedAreRemoved() {
        for (Map<String, String> config : List.of(
                Map.of("headwater.exclude.columns", "{\"shop.people\": [\"EMAIL\"]}"),
                Map.of("headwater.include.columns", "{\"shop.people\": [\"Id\", \"pin\"]}"))) {
            Struct event = (Struct) guard(config, COLUMNS).apply(record(null, row("x"), row("hunter2"))).value();
            event.validate();
            assertThat(names(event.getStruct("after"))).containsExactly("id", "pin");
            assertThat(names(event.getStruct("before"))).containsExactly("id", "pin");
        }
    }

    @Test
    void aColumnThatTheCatalogueDoesNotConfirmIsRemovedIfItsTableHidesAny() {
        TableColumns others = new TableColumns(Map.of("id", Set.of(), "Email", Set.of()), Set.of("id"), Identity.OTHER);
        SourceRecord record = record(null, null, row("a"));
        Map<String, String> hides = Map.of("headwater.exclude.columns", "{\"shop.people\": [\"password\"]}");
        Struct event = (Struct) guard(hides, others).apply(record).value();
        assertThat(names(event.getStruct("after"))).containsExactly("id", "Email");
        assertThat(guard(Map.of(), others).apply(record)).isSameAs(record);
    }

    @Test
    void aColumnThatWasRenamedStaysHidden() {
        TableColumns renamed =
                new TableColumns(Map.of("id", Set.of(), "Email", Set.of("password"), "pin", Set.of("Code")), Set.of("id"), Identity.OTHER);
        Map<String, String> hides = Map.of(
                "headwater.exclude.columns", "{\"shop.people\": [\"Password\"]}",
                "headwater.mask.columns", "{\"shop.people\": {\"code\": null}}");
        Struct event = (Struct) guard(hides, renamed).apply(record(null, null, row("hunter2"))).value();
        assertThat(names(event.getStruct("after"))).containsExactly("id", "pin");
        assertThat(event.getStruct("after").get("pin")).isNull();
        Map<String, String> older = Map.of("headwater.exclude.columns", "{\"shop.people\": [\"other\"]}");
        event = (Struct) guard(older, renamed).apply(record(null, null, row("hunter2"))).value();
        assertThat(names(event.getStruct("after"))).containsExactly("id");
    }

    @Test
    void theCatalogueIsReadOnceForEachSchema() {
        List<String> read = new ArrayList<>();
        ColumnGuard guard = new ColumnGuard(Map.of("topic.prefix", "t"), (table, hidden) -> {
            read.add(table);
            return COLUMNS;
        });
        guard.apply(record(null, null, row("a")));
        guard.apply(record(null, null, row("b")));
        assertThat(read).containsExactly("shop.people");
        Schema other = SchemaBuilder.struct().field("after", ROW).field("op", Schema.STRING_SCHEMA).build();
        Struct event = new Struct(other).put("after", row("c")).put("op", "c");
        guard.apply(new SourceRecord(Map.of(), Map.of(), "t.shop.people", null, null, null, other, event));
        assertThat(read).hasSize(2);
    }

    @Test
    void changesWithoutAnOldKeyAreMarked() {
        TableColumns byIndex = new TableColumns(COLUMNS.hiddenAs(), Set.of("id"), Identity.INDEX);
        TableColumns whole = new TableColumns(COLUMNS.hiddenAs(), Set.of("id"), Identity.FULL);
        SourceRecord update = record(row("a"), null, row("a"));
        assertThat(identity(guard(Map.of(), byIndex).apply(update))).isEqualTo("index");
        assertThat(identity(guard(Map.of(), COLUMNS).apply(update))).isNull();
        assertThat(identity(guard(Map.of(), whole).apply(update))).isEqualTo("index");
        assertThat(identity(guard(Map.of(), whole).apply(record(row("a"), row("b"), row("a"))))).isNull();
        Schema keys = SchemaBuilder.struct().field("id", Schema.OPTIONAL_INT32_SCHEMA).build();
        assertThat(identity(guard(Map.of(), COLUMNS).apply(record(new Struct(keys), null, row("a"))))).isEqualTo("index");
        assertThat(identity(guard(Map.of(), COLUMNS).apply(record(row("a"), null, row("a"), new Struct(keys)))))
                .isEqualTo("index");
        TableColumns nullable = new TableColumns(COLUMNS.hiddenAs(), Set.of(), Identity.OTHER);
        assertThat(identity(guard(Map.of(), nullable).apply(record(new Struct(keys), null, row("a"))))).isNull();
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
        assertThatThrownBy(() -> guard(columns, key == null ? "" : key))
                .isInstanceOf(ConnectException.class)
                .hasMessageContaining(message);
    }

    private static Object email(ColumnGuard guard, String text) {
        return ((Struct) guard.apply(record(null, null, row(text))).value()).getStruct("after").get("Email");
    }

    private static Object identity(SourceRecord record) {
        Header header = record.headers().lastWithName("headwater.identity");
        return header == null ? null : header.value();
    }

    private static List<String> names(Struct row) {
        return row.schema().fields().stream().map(Field::name).toList();
    }

    private static ColumnGuard guard(String columns) {
        return guard(columns, KEY);
    }

    private static ColumnGuard guard(String columns, String key) {
        return guard(Map.of("headwater.mask.columns", columns, "headwater.mask.secret", key), COLUMNS);
    }

    private static ColumnGuard guard(Map<String, String> settings, TableColumns catalogue) {
        Map<String, String> config = new HashMap<>(settings);
        config.put("topic.prefix", "t");
        return new ColumnGuard(config, (table, hidden) -> catalogue);
    }

    private static Struct row(String email) {
        return new Struct(ROW).put("id", 1).put("Email", email).put("pin", 4711);
    }

    private static SourceRecord record(Struct key, Struct before, Struct after) {
        Struct event = new Struct(EVENT).put("before", before).put("after", after).put("op", "u");
        Schema keySchema = key == null ? null : key.schema();
        return new SourceRecord(
                Map.of(), Map.of("lsn", 1L), "t.shop.people", null, keySchema, key, EVENT, event);
    }

    private static SourceRecord record(Struct key, Struct before, Struct after, Struct oldKey) {
        SourceRecord record = record(key, before, after);
        record.headers().add("__debezium.oldkey", oldKey, oldKey.schema());
        return record;
    }
}
