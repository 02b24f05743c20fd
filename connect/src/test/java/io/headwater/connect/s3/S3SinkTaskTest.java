package io.headwater.connect.s3;

import static io.headwater.connect.s3.Landed.assertEveryOffsetOnce;
import static io.headwater.connect.s3.Landed.firsts;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.headwater.connect.s3.FakeS3.Fault;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.sink.SinkRecord;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

class S3SinkTaskTest {
    private static final int ALL = 1_000;

    private final FakeS3 s3 = new FakeS3();
    private final FakeWorker.Clock clock = new FakeWorker.Clock();
    private final Map<TopicPartition, Long> committed = new HashMap<>();
    private final FakeTopic topic = new FakeTopic("orders", 0);
    private final List<FakeWorker> workers = new ArrayList<>();

    @BeforeAll
    static void credentials() {
        System.setProperty("aws.accessKeyId", "test");
        System.setProperty("aws.secretAccessKey", "test");
    }

    @AfterEach
    void stop() {
        workers.forEach(worker -> worker.task.stop());
        s3.close();
    }

    private FakeWorker worker(String... options) {
        Map<String, String> properties = new HashMap<>(Map.of(
                "name", "headwater-landing",
                "s3.bucket", "lake",
                "s3.region", "eu-central-1",
                "s3.endpoint", s3.endpoint(),
                "flush.records", "10",
                "flush.interval.ms", "5000"));
        for (int i = 0; i < options.length; i += 2) {
            properties.put(options[i], options[i + 1]);
        }
        FakeWorker worker = new FakeWorker(properties, clock, committed);
        workers.add(worker);
        return worker;
    }

    private FakeWorker assignedWorker(String... options) {
        FakeWorker worker = worker(options);
        worker.assign(topic);
        return worker;
    }

    // ---- flushing

    @Test
    void objectsTileTheOffsetsWhenFlushedByCount() {
        topic.produce(35);
        FakeWorker worker = assignedWorker();
        worker.poll(ALL);
        assertThat(firsts(s3, topic)).containsExactly(0L, 10L, 20L);
        assertEveryOffsetOnce(s3, topic, 30);
        assertThat(worker.commitRequested()).isTrue();
        worker.commit();
        assertThat(committed).containsEntry(topic.partition, 30L);
    }

    @Test
    void flushesByUncompressedBytes() {
        for (int i = 0; i < 10; i++) {
            topic.produce("a".repeat(600)); // compresses well: only uncompressed bytes can reach the limit
        }
        assignedWorker("flush.records", "1000", "flush.bytes", "4900").poll(ALL);
        assertThat(firsts(s3, topic)).containsExactly(0L, 3L, 6L); // a line has 1663: 800 of key, 800 of value
    }

    @Test
    void flushesByAgeAndSoonWhatComesAfterASilence() {
        topic.produce(3);
        FakeWorker worker = assignedWorker();
        worker.poll(ALL);
        assertThat(firsts(s3, topic)).isEmpty();
        assertThat(worker.requestedTimeout()).isEqualTo(500);
        clock.now += 400;
        topic.produce(1); // belongs to what has just begun
        worker.poll(ALL);
        assertThat(firsts(s3, topic)).isEmpty();
        worker.pollAfterTimeout();
        assertEveryOffsetOnce(s3, topic, 4);
        clock.now += 1000;
        topic.produce(2);
        worker.poll(ALL);
        assertThat(worker.requestedTimeout()).isEqualTo(4000); // there is one object in five seconds
        clock.now += 3900;
        worker.poll(ALL);
        assertThat(firsts(s3, topic)).containsExactly(0L);
        worker.pollAfterTimeout();
        assertThat(firsts(s3, topic)).containsExactly(0L, 4L);
        clock.now += 4900;
        topic.produce(1);
        worker.poll(ALL);
        assertThat(worker.requestedTimeout()).isEqualTo(500);
        worker.pollAfterTimeout();
        assertEveryOffsetOnce(s3, topic, 7);
    }

    @Test
    void theIntervalCountsFromAnObjectOfItsOwn() {
        topic.produce(11);
        FakeWorker worker = assignedWorker();
        worker.poll(ALL); // stores 0 to 9, as they are ten
        assertThat(firsts(s3, topic)).containsExactly(0L);
        assertThat(worker.requestedTimeout()).isEqualTo(5000);
        s3.store(Landed.key(topic, 10), Map.of("next-offset", "12"));
        worker.pollAfterTimeout(); // another task's object is there
        topic.produce(2);
        worker.poll(ALL);
        assertThat(worker.position(topic)).isEqualTo(13);
        assertThat(worker.requestedTimeout()).isEqualTo(500);
        worker.pollAfterTimeout();
        assertThat(firsts(s3, topic)).containsExactly(0L, 10L, 12L);
    }

    @Test
    void doesNotCommitWhatIsOnlyBuffered() {
        topic.produce(3);
        FakeWorker worker = assignedWorker();
        worker.poll(ALL);
        worker.commit();
        assertThat(committed.getOrDefault(topic.partition, 0L)).isZero();
    }

    @Test
    void offsetsWithoutRecordsBelongToTheNextObject() {
        topic.produce(10);
        topic.skip(5);
        topic.produce(8);
        topic.skip(2);
        topic.produce(2);
        assignedWorker("missing.offsets", "accept").poll(ALL);
        assertThat(firsts(s3, topic)).containsExactly(0L, 10L);
        assertEveryOffsetOnce(s3, topic, 27);
    }

    @Test
    void intoAnEmptyBucketTheFirstAvailableRecordNamesTheFirstObject() {
        topic.skip(42);
        topic.produce(10);
        assignedWorker().poll(ALL);
        assertThat(firsts(s3, topic)).containsExactly(42L);
        assertEveryOffsetOnce(s3, topic, 52);
    }

    // ---- position

    @Test
    void theBucketAndNotTheConsumerGroupTellsThePosition() {
        topic.produce(25);
        FakeWorker first = assignedWorker();
        first.poll(ALL);
        committed.clear(); // a new consumer group
        FakeWorker second = assignedWorker();
        assertThat(second.position(topic)).isEqualTo(20);
        second.poll(ALL);
        second.pollAfterTimeout();
        assertEveryOffsetOnce(s3, topic, 25);

        committed.put(topic.partition, 7L); // a group that is behind the bucket
        assertThat(assignedWorker().position(topic)).isEqualTo(25);
        committed.put(topic.partition, 99L); // and one that is ahead of it
        assertThat(assignedWorker().position(topic)).isEqualTo(25);
    }

    @ParameterizedTest
    @ValueSource(ints = {1, 2, 3, 4, 7, 64, 500})
    void findsTheNewestOfManyObjectsInFewRequests(int count) {
        Random random = new Random(count);
        long first = random.nextInt(1_000_000);
        for (int i = 0; i < count; i++) {
            long next = first + 1 + random.nextInt(i % 10 == 0 ? 100_000 : 10);
            s3.store(Landed.key(topic, first), Map.of("next-offset", Long.toString(next)));
            first = next;
        }
        s3.store("landing/orders/0/_note", Map.of()); // others' objects and neighbours are not ours
        s3.store("landing/orders/01/" + "9".repeat(20) + ".jsonl.gz", Map.of());
        FakeWorker worker = assignedWorker();
        assertThat(worker.position(topic)).isEqualTo(first);
        assertThat(s3.requests().size()).isLessThan(60);
    }

    @Test
    void refusesAnObjectWithoutItsEnd() {
        s3.store(Landed.key(topic, 5), Map.of());
        assertThatThrownBy(this::assignedWorker).isInstanceOf(ConnectException.class)
                .hasMessageContaining("00000000000000000005.jsonl.gz").hasMessageContaining("next-offset");
    }

    @Test
    void refusesATopicThatStartsOverInsteadOfDroppingItsRecords() {
        topic.produce(20);
        FakeWorker worker = assignedWorker();
        worker.poll(ALL);
        topic.recreate();
        topic.produce(5);
        FakeWorker next = assignedWorker();
        assertThat(next.position(topic)).isEqualTo(20);
        assertThatThrownBy(() -> next.task.put(topic.read(0, ALL))).isInstanceOf(ConnectException.class)
                .hasMessageContaining("offset 0 of orders-0").hasMessageContaining("created again");
    }

    @ParameterizedTest
    @ValueSource(ints = {1, 5})
    void failsWhereKafkaNoLongerHasTheNextRecord(int missing) {
        topic.produce(10);
        assignedWorker().poll(ALL);
        topic.skip(missing);
        topic.produce(10);
        FakeWorker worker = assignedWorker();
        long found = 10 + missing;
        assertThatThrownBy(() -> worker.poll(ALL)).isInstanceOf(ConnectException.class)
                .hasMessageContaining("no record at offset 10 of orders-0")
                .hasMessageContaining("goes on at " + found)
                .hasMessageContaining("missing.offsets = accept");
        assertThatThrownBy(() -> assignedWorker().poll(ALL)).isInstanceOf(ConnectException.class); // so does a restart
        assertThat(firsts(s3, topic)).containsExactly(0L);
        assignedWorker("missing.offsets", "accept").poll(ALL);
        assertEveryOffsetOnce(s3, topic, found + 10);
        topic.produce(10);
        assignedWorker().poll(ALL); // past the gap, it need no longer be accepted
        assertEveryOffsetOnce(s3, topic, found + 20);
    }

    @Test
    void failsWhereRecordsAreMissingAmongThoseThatItReads() {
        topic.produce(5);
        topic.skip(1);
        topic.produce(5);
        FakeWorker worker = assignedWorker();
        assertThatThrownBy(() -> worker.poll(ALL)).isInstanceOf(ConnectException.class)
                .hasMessageContaining("no record at offset 5 of orders-0");
    }

    // ---- others at work

    @Test
    void afterACrashBetweenPutAndCommitNothingIsLostOrStoredTwice() {
        topic.produce(15);
        FakeWorker crashed = assignedWorker();
        crashed.poll(ALL); // has put 0 to 9, holds 10 to 14, has committed nothing
        assertThat(committed).isEmpty();
        topic.produce(10);
        FakeWorker successor = assignedWorker();
        successor.poll(ALL);
        successor.pollAfterTimeout();
        assertEveryOffsetOnce(s3, topic, 25);
    }

    @Test
    void adoptsTheEndOfAnObjectThatAZombieStored() {
        topic.produce(4);
        FakeWorker zombie = assignedWorker();
        zombie.poll(ALL);
        FakeWorker successor = assignedWorker();
        topic.produce(30);
        zombie.pollAfterTimeout(); // stores 0 to 3, and buffers
        successor.poll(ALL); // 0 to 9 is refused
        assertThat(firsts(s3, topic)).containsExactly(0L);
        successor.poll(ALL);
        assertThat(successor.position(topic)).isEqualTo(34);
        assertThat(firsts(s3, topic)).containsExactly(0L, 4L, 14L, 24L);
        assertEveryOffsetOnce(s3, topic, 34);
        zombie.poll(ALL);
        zombie.poll(ALL);
        assertEveryOffsetOnce(s3, topic, 34);
    }

    @Test
    void recordsThatFollowARefusalInTheSameBatchAreReadAgain() {
        topic.produce(35);
        FakeWorker task = assignedWorker();
        s3.store(Landed.key(topic, 0), Map.of("next-offset", "12"));
        task.poll(ALL);
        assertThat(firsts(s3, topic)).containsExactly(0L);
        task.poll(ALL);
        assertThat(firsts(s3, topic)).containsExactly(0L, 12L, 22L);
        assertThat(Landed.lines(s3.objects().get(Landed.key(topic, 12)).body())).hasSize(10);
    }

    @Test
    void aRebalanceDropsBuffersAndTheOthersGoOn() {
        FakeTopic other = new FakeTopic("orders", 1);
        topic.produce(5);
        other.produce(5);
        FakeWorker left = worker();
        left.assign(topic, other);
        left.poll(ALL);
        left.revoke(other);
        FakeWorker right = worker();
        right.assign(other);
        left.pollAfterTimeout();
        assertEveryOffsetOnce(s3, topic, 5);
        assertThat(firsts(s3, other)).isEmpty(); // the old owner has forgotten it
        right.poll(ALL);
        right.pollAfterTimeout();
        assertEveryOffsetOnce(s3, other, 5);

        right.revoke(other);
        other.produce(3);
        left.assign(other);
        left.poll(ALL);
        left.pollAfterTimeout();
        assertEveryOffsetOnce(s3, other, 8);
    }

    @ParameterizedTest
    @ValueSource(ints = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})
    void anyMixOfZombiesCrashesRebalancesAndFaultsStoresEveryOffsetOnce(int seed) {
        Random random = new Random(seed);
        List<FakeWorker> alive = new ArrayList<>();
        for (int step = 0; step < 150; step++) {
            switch (random.nextInt(8)) {
                case 0 -> topic.produce(random.nextInt(25));
                case 1 -> topic.skip(random.nextInt(3));
                case 2 -> {
                    if (alive.size() == 3 || (!alive.isEmpty() && random.nextBoolean())) {
                        alive.remove(random.nextInt(alive.size())); // kill -9
                    }
                    alive.add(assignedWorker("missing.offsets", "accept"));
                }
                case 3 -> s3.fail(Fault.values()[random.nextInt(2)], Fault.CUT_AFTER);
                case 4 -> s3.fail(Fault.CUT_AFTER);
                case 5 -> clock.now += random.nextInt(6000);
                default -> {
                    if (!alive.isEmpty()) {
                        alive.get(random.nextInt(alive.size())).poll(random.nextInt(40));
                    }
                }
            }
        }
        topic.produce(1);
        FakeWorker last = assignedWorker("missing.offsets", "accept");
        for (int i = 0; i < 40; i++) {
            clock.now += 6000;
            last.poll(ALL);
        }
        assertEveryOffsetOnce(s3, topic, topic.offsets().get(topic.offsets().size() - 1) + 1);
    }

    // ---- failures of S3

    @ParameterizedTest
    @EnumSource(value = Fault.class, names = "DENIED", mode = EnumSource.Mode.EXCLUDE)
    void triesAgainAndStoresOnce(Fault fault) {
        topic.produce(10);
        FakeWorker worker = assignedWorker();
        s3.fail(fault, fault);
        worker.poll(ALL);
        assertThat(worker.paused()).containsExactly(topic.partition);
        assertThat(worker.requestedTimeout()).isEqualTo(150); // 200, less a quarter by the fixed jitter
        worker.poll(ALL); // too early
        assertThat(s3.requests()).filteredOn("PUT"::equals).hasSize(1);
        worker.pollAfterTimeout();
        if (fault == Fault.CUT_AFTER) { // the put is refused then, and the answer to the head is good
            assertThat(s3.requests()).filteredOn("PUT"::equals).hasSize(2);
        } else {
            assertThat(worker.requestedTimeout()).isEqualTo(300);
            worker.pollAfterTimeout();
        }
        assertEveryOffsetOnce(s3, topic, 10);
        assertThat(worker.paused()).isEmpty();
        worker.commit();
        assertThat(committed).containsEntry(topic.partition, 10L);
    }

    @Test
    void holdsAtMostOneBatchWhileS3IsDown() {
        topic.produce(100);
        FakeWorker worker = assignedWorker();
        s3.down(true);
        assertThat(worker.poll(25)).hasSize(25);
        for (int i = 0; i < 8; i++) {
            clock.now += 20_000;
            assertThat(worker.poll(25)).isEmpty();
            worker.commit();
            assertThat(committed.getOrDefault(topic.partition, 0L)).isZero();
        }
        s3.down(false);
        worker.pollAfterTimeout();
        worker.poll(ALL);
        worker.pollAfterTimeout();
        assertEveryOffsetOnce(s3, topic, 100);
    }

    @Test
    void failsWhenS3HasNotWorkedForTheTimeout() {
        topic.produce(10);
        FakeWorker worker = assignedWorker("retry.timeout.ms", "1000");
        s3.down(true);
        worker.poll(ALL);
        assertThatThrownBy(() -> {
            for (int i = 0; i < 10; i++) {
                worker.pollAfterTimeout();
            }
        }).isInstanceOf(ConnectException.class).hasMessageContaining("retry.timeout.ms = 1000")
                .hasMessageContaining("s3://lake/landing/orders/0/00000000000000000000.jsonl.gz");
    }

    @Test
    void findsThePositionLaterWhenS3IsDownAtAssignment() {
        topic.produce(25);
        assignedWorker().poll(ALL);
        s3.down(true);
        committed.put(topic.partition, 3L);
        FakeWorker worker = assignedWorker();
        worker.poll(ALL);
        worker.commit();
        assertThat(committed).containsEntry(topic.partition, 3L); // it knows no offset to commit
        s3.down(false);
        worker.pollAfterTimeout();
        worker.poll(ALL);
        assertThat(worker.paused()).isEmpty();
        worker.pollAfterTimeout();
        assertEveryOffsetOnce(s3, topic, 25);
    }

    @Test
    void failsAtOnceWhenAccessIsDenied() {
        topic.produce(10);
        FakeWorker worker = assignedWorker();
        s3.fail(Fault.DENIED);
        assertThatThrownBy(() -> worker.poll(ALL)).isInstanceOf(ConnectException.class)
                .hasMessageContaining("S3 put s3://lake/landing/orders/0/");
    }

    // ---- input

    @Test
    void refusesRecordsThatAConverterHasInterpreted() {
        FakeWorker worker = assignedWorker();
        SinkRecord record = new SinkRecord("orders", 0, null, null, Schema.STRING_SCHEMA, "text", 0);
        assertThatThrownBy(() -> worker.task.put(List.of(record))).isInstanceOf(DataException.class)
                .hasMessageContaining("value of orders-0 offset 0").hasMessageContaining("ByteArrayConverter");
    }

    @Test
    void storesRecordsUnderTheTopicTheyCameFromWhenATransformRenamesIt() {
        FakeWorker worker = assignedWorker("flush.records", "1");
        SinkRecord record = new SinkRecord("orders", 0, null, null, null, new byte[] {1}, 0);
        worker.task.put(List.of(record.newRecord("renamed", 7, null, null, null, new byte[] {1}, null)));
        assertThat(firsts(s3, topic)).containsExactly(0L);
    }
}
