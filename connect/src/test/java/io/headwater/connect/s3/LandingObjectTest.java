package io.headwater.connect.s3;

import static org.assertj.core.api.Assertions.assertThat;

import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.sink.SinkRecord;
import org.junit.jupiter.api.Test;

class LandingObjectTest {
    @Test
    void aLineHoldsTheRecordsBytesUntouched() {
        LandingObject.Builder builder = new LandingObject.Builder(6, 0);
        builder.add(record(7, 1_700_000_000_123L, new byte[] {0, -1}, "{}".getBytes(StandardCharsets.UTF_8)));
        LandingObject object = builder.build();
        assertThat(Landed.lines(object.body())).as("what is new goes behind lake.format: docs/decisions/lake-format.md")
                .containsExactly("{\"offset\":7,\"timestamp\":1700000000123,"
                + "\"key\":\"AP8=\",\"value\":\"e30=\",\"headers\":[[\"a\\\"\\n\",\"AQ==\"],[\"é\",null]]}");
        assertThat(object.first()).isEqualTo(6);
        assertThat(object.next()).isEqualTo(8);
    }

    @Test
    void absentPartsAreNull() {
        LandingObject.Builder builder = new LandingObject.Builder(0, 0);
        builder.add(new SinkRecord("orders", 0, null, null, null, null, 0));
        assertThat(Landed.lines(builder.build().body())).containsExactly(
                "{\"offset\":0,\"timestamp\":null,\"key\":null,\"value\":null,\"headers\":[]}");
    }

    @Test
    void theSameRecordsGiveTheSameBytes() {
        assertThat(build(1).body()).isEqualTo(build(2).body());
    }

    @Test
    void countsUncompressedBytes() {
        LandingObject.Builder builder = new LandingObject.Builder(0, 0);
        builder.add(record(0, 1L, new byte[0], new byte[90_000]));
        long line = Landed.lines(builder.build().body()).get(0).getBytes(StandardCharsets.UTF_8).length;
        assertThat(builder.bytes()).isEqualTo(line + 1).isGreaterThan(120_000);
    }

    private static LandingObject build(long openedAt) {
        LandingObject.Builder builder = new LandingObject.Builder(0, openedAt);
        for (int offset = 0; offset < 100; offset++) {
            builder.add(record(offset, 5L, new byte[] {1}, new byte[] {2}));
        }
        return builder.build();
    }

    private static SinkRecord record(long offset, Long timestamp, byte[] key, byte[] value) {
        ConnectHeaders headers = new ConnectHeaders();
        headers.add("a\"\n", new byte[] {1}, null);
        headers.add("é", null, null);
        return new SinkRecord("orders", 0, null, key, null, value, offset, timestamp, TimestampType.CREATE_TIME, headers);
    }
}
