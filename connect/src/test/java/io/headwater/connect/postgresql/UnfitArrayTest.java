package io.headwater.connect.postgresql;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.debezium.connector.postgresql.UnchangedToastedReplicationMessageColumn;
import io.debezium.relational.Column;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.source.SourceRecord;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class UnfitArrayTest {
    private static final Schema ROW = SchemaBuilder.struct()
            .optional()
            .field("id", Schema.INT32_SCHEMA)
            .field("sizes", SchemaBuilder.array(Schema.OPTIONAL_INT32_SCHEMA).optional().build())
            .build();
    private static final Schema EVENT = SchemaBuilder.struct()
            .name("event")
            .field("before", ROW)
            .field("after", ROW)
            .field("op", Schema.STRING_SCHEMA)
            .build();

    @Test
    void itsTextTakesItsPlaceAndAllElseStays() {
        Struct before = row(1, List.of(1, 2));
        SourceRecord record = record(row(1, List.of()), before, row(1, new UnfitArray("{{1}}")));
        SourceRecord sent = UnfitArray.asText(record);
        Struct event = (Struct) sent.value();
        event.validate();
        assertThat(sent.valueSchema()).isEqualTo(event.schema());
        assertThat(event.getStruct("after").get("sizes")).isEqualTo("{{1}}");
        assertThat(event.getStruct("after").get("id")).isEqualTo(1);
        assertThat(event.getStruct("before")).isSameAs(before);
        assertThat(event.get("op")).isEqualTo("u");
        assertThat(sent.key()).isSameAs(record.key());
        assertThat(sent.sourceOffset()).isSameAs(record.sourceOffset());
    }

    @Test
    void aRecordWithoutOneIsTheSame() {
        SourceRecord record = record(row(1, List.of()), row(1, List.of()), row(1, null));
        assertThat(UnfitArray.asText(record)).isSameAs(record);
    }

    @Test
    void anUnchangedToastedArrayIsDebeziumsPlaceholder() {
        Column column = Column.editor().name("sizes").nativeType(1231).create();
        Object toasted = UnchangedToastedReplicationMessageColumn.UNCHANGED_TOAST_VALUE;
        Object value = ValueConverters.convert(column, true, unknown -> null, toasted);
        SourceRecord sent = UnfitArray.asText(record(row(1, List.of()), null, row(1, (List<?>) value)));
        assertThat(((Struct) sent.value()).getStruct("after").get("sizes")).isEqualTo("__debezium_unavailable_value");
    }

    @Test
    void oneInAKeyIsRefused() {
        SourceRecord record = record(row(1, new UnfitArray("{{1}}")), null, row(1, null));
        assertThatThrownBy(() -> UnfitArray.asText(record))
                .isInstanceOf(ConnectException.class)
                .hasMessageContaining("shop.things: found an array in the primary key");
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "1007 | {{1,2},{3,4}}     | true",
                "1007 | [2:2][0:1]={{1,2}} | true",
                "1007 | {1,2}             | false",
                "1007 | [0:1]={1,2}       | false",
                "1007 | {}                | false",
                "1009 | {\"{{a}}\",NaN}   | false",
                "1231 | {1.5,NaN}         | true",
                "1231 | {-Infinity}       | true",
                "1231 | {1.5,NULL}        | false",
                "1022 | {1.5,NaN}         | false",
            })
    void arraysThatDebeziumWouldChangeAreUnfit(int type, String literal, boolean unfit) {
        assertThat(ValueConverters.isUnfit(type, literal)).isEqualTo(unfit);
    }

    private static Struct row(int id, List<?> sizes) {
        return new Struct(ROW).put("id", id).put("sizes", sizes);
    }

    private static SourceRecord record(Struct key, Struct before, Struct after) {
        Struct event = new Struct(EVENT).put("before", before).put("after", after).put("op", "u");
        return new SourceRecord(Map.of(), Map.of("lsn", 1L), "shop.things", null, ROW, key, EVENT, event);
    }
}
