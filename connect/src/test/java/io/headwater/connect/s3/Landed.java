package io.headwater.connect.s3;

import static org.assertj.core.api.Assertions.assertThat;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.zip.GZIPInputStream;

/** Reads landing objects back, with nothing of the code under test. */
final class Landed {
    private Landed() {}

    /** Lines of an object. */
    static List<String> lines(byte[] body) {
        try (GZIPInputStream in = new GZIPInputStream(new ByteArrayInputStream(body))) {
            return new String(in.readAllBytes(), StandardCharsets.UTF_8).lines().toList();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** Names of a partition's objects without the suffix, as numbers. */
    static List<Long> firsts(FakeS3 s3, FakeTopic topic) {
        return s3.objects().keySet().stream()
                .filter(key -> key.startsWith(folder(topic)))
                .map(key -> key.substring(folder(topic).length()))
                .peek(name -> assertThat(name).matches("[0-9]{20}\\.jsonl\\.gz"))
                .map(name -> Long.parseLong(name.substring(0, 20)))
                .toList();
    }

    /** Asserts that the objects tile the offsets up to {@code end} and hold each of the topic's records once. */
    static void assertEveryOffsetOnce(FakeS3 s3, FakeTopic topic, long end) {
        List<Long> offsets = new ArrayList<>();
        long next = -1;
        for (long first : firsts(s3, topic)) {
            FakeS3.Stored object = s3.objects().get(key(topic, first));
            if (next >= 0) {
                assertThat(first).as("objects follow each other").isEqualTo(next);
            }
            next = Long.parseLong(object.metadata().get("next-offset"));
            for (String line : lines(object.body())) {
                long offset = offset(line);
                assertThat(offset).as("offset in the object's range").isBetween(first, next - 1);
                offsets.add(offset);
            }
        }
        assertThat(next).as("end of the last object").isEqualTo(end);
        assertThat(offsets).isEqualTo(topic.offsets().stream().filter(offset -> offset < end).toList());
    }

    static String key(FakeTopic topic, long first) {
        return folder(topic) + String.format("%020d.jsonl.gz", first);
    }

    private static String folder(FakeTopic topic) {
        return "landing/" + topic.partition.topic() + "/" + topic.partition.partition() + "/";
    }

    private static long offset(String line) {
        try (JsonParser json = new JsonFactory().createParser(line)) {
            assertThat(json.nextToken()).isEqualTo(JsonToken.START_OBJECT);
            assertThat(json.nextFieldName()).isEqualTo("offset");
            return json.nextLongValue(-1);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
