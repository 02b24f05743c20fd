package io.headwater.connect.json;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.ServiceLoader;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.storage.Converter;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class BoundedJsonConverterTest {
    private static final int MAX = 4 << 20;
    private static final Schema ROW = SchemaBuilder.struct().optional().name("row")
            .field("id", Schema.INT32_SCHEMA)
            .field("body", Schema.STRING_SCHEMA)
            .field("tags", SchemaBuilder.array(Schema.OPTIONAL_STRING_SCHEMA).optional().build())
            .build();
    private static final Schema EVENT = SchemaBuilder.struct().name("envelope")
            .field("before", ROW).field("after", ROW).field("op", Schema.STRING_SCHEMA).build();

    private final BoundedJsonConverter converter = new BoundedJsonConverter();

    @BeforeEach
    void configure() {
        converter.configure(Map.of("max.bytes", Integer.toString(MAX)), false);
    }

    private static Struct row(String body) {
        return new Struct(ROW).put("id", 7).put("body", body);
    }

    private static Struct event(String op, Struct before, Struct after) {
        return new Struct(EVENT).put("op", op).put("before", before).put("after", after);
    }

    private String convert(Struct event) {
        byte[] bytes = converter.fromConnectData("topic", event.schema(), event);
        assertThat(bytes.length).isLessThanOrEqualTo(MAX);
        return new String(bytes, StandardCharsets.UTF_8);
    }

    private static String text(int length) {
        return "x".repeat(length);
    }

    @Test
    void whatFitsIsKafkasJson() {
        assertThat(convert(event("u", row("a"), row("é\n")))).isEqualTo(
                "{\"before\":{\"id\":7,\"body\":\"a\",\"tags\":null},"
                        + "\"after\":{\"id\":7,\"body\":\"é\\n\",\"tags\":null},\"op\":\"u\"}");
    }

    @Test
    void aNullInAColumnWithADefaultStaysNull() {
        Schema withDefaults = SchemaBuilder.struct().optional()
                .field("id", Schema.INT32_SCHEMA)
                .field("state", SchemaBuilder.string().optional().defaultValue("new").build())
                .field("body", Schema.OPTIONAL_STRING_SCHEMA)
                .build();
        Schema schema = SchemaBuilder.struct()
                .field("before", withDefaults).field("after", withDefaults).field("op", Schema.STRING_SCHEMA).build();
        Struct before = new Struct(withDefaults).put("id", 7).put("state", null);
        Struct after = new Struct(withDefaults).put("id", 7).put("state", null).put("body", "b");
        assertThat(convert(new Struct(schema).put("op", "u").put("before", before).put("after", after))).isEqualTo(
                "{\"before\":{\"id\":7,\"state\":null,\"body\":null},"
                        + "\"after\":{\"id\":7,\"state\":null,\"body\":\"b\"},\"op\":\"u\"}");
        // Also where large columns are left out of the row before, or of a row that is refused.
        before.put("body", text(5 << 20));
        assertThat(convert(new Struct(schema).put("op", "d").put("before", before)))
                .isEqualTo("{\"before\":{\"id\":7,\"state\":null},\"after\":null,\"op\":\"d\"}");
        after.put("body", text(5 << 20));
        assertThat(convert(new Struct(schema).put("op", "c").put("after", after)))
                .endsWith("\"left_out\":[\"body\"],\"row\":{\"id\":7,\"state\":null}}}");
    }

    @Test
    void anEventOfTheLargestSizeIsWhole() {
        int rest = convert(event("c", null, row(""))).length();
        assertThat(convert(event("c", null, row(text(MAX - rest))))).hasSize(MAX).doesNotContain("refused");
        assertThat(convert(event("c", null, row(text(MAX - rest + 1))))).contains("refused");
    }

    @Test
    void theRowBeforeLosesItsLargeColumnsFirst() {
        assertThat(convert(event("u", row(text(3 << 20)), row(text(3 << 20)))))
                .startsWith("{\"before\":{\"id\":7,\"tags\":null},\"after\":{\"id\":7,\"body\":\"xxx")
                .doesNotContain("refused");
        assertThat(convert(event("d", row(text(9 << 20)), null)))
                .isEqualTo("{\"before\":{\"id\":7,\"tags\":null},\"after\":null,\"op\":\"d\"}");
    }

    @Test
    void aRowThatIsTooLargeIsRefusedWithItsSmallColumns() {
        assertThat(convert(event("u", row("old"), row(text(5 << 20))))).isEqualTo(
                "{\"before\":{\"id\":7,\"body\":\"old\",\"tags\":null},\"after\":null,\"op\":\"u\",\"refused\":"
                        + "{\"max_bytes\":4194304,\"left_out\":[\"body\"],\"row\":{\"id\":7,\"tags\":null}}}");
    }

    @ParameterizedTest
    @ValueSource(strings = {"\u0001", "é", "😀", "\""})
    void sizesAreBytesOfJson(String character) {
        String small = character.repeat(600_000 / character.length());
        assertThat(convert(event("c", null, row(small)))).doesNotContain("refused");
        String large = character.repeat((MAX - 100) / character.length());
        assertThat(convert(event("c", null, row(large)))).contains("\"left_out\":[\"body\"]");
    }

    @Test
    void longArraysAreLargeColumns() {
        Struct after = row("").put("tags", List.of(text(3 << 20), text(3 << 20)));
        assertThat(convert(event("c", null, after))).contains("\"left_out\":[\"tags\"],\"row\":{\"id\":7,\"body\":\"\"}");
    }

    @Test
    void manyColumnsThatAreNotSmallAreLeftOutToo() {
        SchemaBuilder wide = SchemaBuilder.struct().optional();
        for (int i = 0; i < 1600; i++) {
            wide.field("c" + i, Schema.OPTIONAL_STRING_SCHEMA);
        }
        Schema schema = wide.build();
        Struct row = new Struct(schema);
        for (int i = 0; i < 1600; i++) {
            row.put("c" + i, i == 0 ? "key" : text(30_000));
        }
        Struct event = new Struct(SchemaBuilder.struct()
                .field("before", schema).field("after", schema).field("op", Schema.STRING_SCHEMA).build())
                .put("op", "u").put("before", row).put("after", row);
        assertThat(convert(event)).startsWith("{\"before\":{\"c0\":\"key\"},\"after\":null").endsWith("{\"c0\":\"key\"}}}");
    }

    @Test
    void whatIsNoChangeOfARowIsConvertedAsItIs() {
        Schema schema = SchemaBuilder.struct().field("ts_ms", Schema.INT64_SCHEMA).build();
        assertThat(convert(new Struct(schema).put("ts_ms", 1L))).isEqualTo("{\"ts_ms\":1}");
        assertThat(converter.fromConnectData("topic", null, null)).isNull();
        SchemaAndValue read = converter.toConnectData("topic", "{\"a\":1}".getBytes(StandardCharsets.UTF_8));
        assertThat(read.value()).isEqualTo(Map.of("a", 1L));
    }

    @Test
    void connectFindsItAsAServiceAndItsLimitIsRequired() {
        assertThat(ServiceLoader.load(Converter.class).stream().map(ServiceLoader.Provider::type))
                .contains(BoundedJsonConverter.class);
        assertThatThrownBy(() -> new BoundedJsonConverter().configure(Map.of(), false))
                .isInstanceOf(ConfigException.class).hasMessageContaining("max.bytes");
        assertThatThrownBy(() -> new BoundedJsonConverter().configure(Map.of("max.bytes", "5"), false))
                .isInstanceOf(ConfigException.class).hasMessageContaining("max.bytes");
    }
}
