package io.headwater.hudi;

import io.headwater.lake.HeldRows;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Date;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.ForkJoinWorkerThread;
import java.util.concurrent.Future;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.generic.IndexedRecord;
import org.apache.hudi.AvroConversionUtils;
import org.apache.hudi.DataSourceUtils;
import org.apache.hudi.avro.HoodieAvroUtils;
import org.apache.hudi.avro.model.HoodieCompactionPlan;
import org.apache.hudi.client.SparkRDDWriteClient;
import org.apache.hudi.client.WriteStatus;
import org.apache.hudi.client.timeline.TimelineArchivers;
import org.apache.hudi.common.config.TypedProperties;
import org.apache.hudi.common.data.HoodieData;
import org.apache.hudi.common.engine.HoodieEngineContext;
import org.apache.hudi.common.engine.HoodieLocalEngineContext;
import org.apache.hudi.common.engine.HoodieReaderContext;
import org.apache.hudi.common.engine.EngineProperty;
import org.apache.hudi.common.engine.TaskContextSupplier;
import org.apache.hudi.common.fs.FSUtils;
import org.apache.hudi.common.model.CompactionOperation;
import org.apache.hudi.common.model.FileSlice;
import org.apache.hudi.common.model.HoodieAvroIndexedRecord;
import org.apache.hudi.common.model.HoodieCommitMetadata;
import org.apache.hudi.common.model.HoodieDeltaWriteStat;
import org.apache.hudi.common.model.HoodieKey;
import org.apache.hudi.common.model.HoodieLogFile;
import org.apache.hudi.common.model.HoodieRecord;
import org.apache.hudi.common.model.HoodieRecord.HoodieRecordType;
import org.apache.hudi.common.model.HoodieWriteStat;
import org.apache.hudi.common.model.WriteOperationType;
import org.apache.hudi.common.table.HoodieTableMetaClient;
import org.apache.hudi.common.table.TableSchemaResolver;
import org.apache.hudi.common.table.log.AppendResult;
import org.apache.hudi.common.table.log.HoodieLogFormat;
import org.apache.hudi.common.table.log.block.HoodieAvroDataBlock;
import org.apache.hudi.common.table.log.block.HoodieLogBlock.HeaderMetadataType;
import org.apache.hudi.common.table.timeline.HoodieActiveTimeline;
import org.apache.hudi.common.table.timeline.HoodieInstant;
import org.apache.hudi.common.table.timeline.HoodieInstantTimeGenerator;
import org.apache.hudi.common.table.timeline.HoodieTimeline;
import org.apache.hudi.common.table.view.TableFileSystemView.SliceView;
import org.apache.hudi.common.table.read.HoodieFileGroupReader;
import org.apache.hudi.common.util.CommitUtils;
import org.apache.hudi.common.util.Option;
import org.apache.hudi.common.util.collection.ClosableIterator;
import org.apache.hudi.config.HoodieCompactionConfig;
import org.apache.hudi.config.HoodieWriteConfig;
import org.apache.hudi.exception.HoodieException;
import org.apache.hudi.exception.HoodieInsertException;
import org.apache.hudi.index.bucket.BucketIdentifier;
import org.apache.hudi.io.HoodieCreateHandle;
import org.apache.hudi.keygen.BaseKeyGenerator;
import org.apache.hudi.keygen.factory.HoodieSparkKeyGeneratorFactory;
import org.apache.hudi.storage.StoragePath;
import org.apache.hudi.storage.StoragePathInfo;
import org.apache.hudi.storage.hadoop.HadoopStorageConfiguration;
import org.apache.hudi.table.HoodieSparkTable;
import org.apache.hudi.table.HoodieTable;
import org.apache.hudi.table.action.HoodieWriteMetadata;
import org.apache.hudi.table.action.compact.CompactHelpers;
import org.apache.hudi.table.action.compact.HoodieCompactor;
import org.apache.hudi.table.action.compact.HoodieSparkMergeOnReadTableCompactor;
import org.apache.hudi.table.action.compact.RunCompactionActionExecutor;
import org.apache.hudi.table.marker.WriteMarkersFactory;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Function1;
import scala.Tuple2;

/**
 * Commits small batches to a merge-on-read table with a simple bucket index.
 *
 * <p>The driver writes all files at once. A file group that has a change gets a log file, or its first base file if it
 * is new. Hudi's own upsert does the same by several Spark jobs, whose overhead for each file group is many times the
 * work for its rows.
 *
 * <p>The rows lie where Hudi's upsert puts them, by Hudi's own converter, key generator, bucket hash and writers. So
 * both may follow each other on one table. One object serves one table, and its caller is the table's only writer.
 * After an exception, or after another writer's commit to the table, the object cannot be used any more.
 */
public final class SmallUpserts implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(SmallUpserts.class);
    private static final String ORDER = "_order";
    private static final String DELETED = "_deleted";
    private static final long MEGABYTE = 1 << 20;
    /** How far the clock may be behind the table's latest instant. */
    private static final long CLOCK_NANOS = 30_000_000_000L;
    private static final int META_FIELDS = HoodieRecord.HOODIE_META_COLUMNS.size();
    /** Pool for writes, which mostly wait for S3. All tables of a driver share it, each within its {@link Share}. */
    private static final ExecutorService REQUESTS = requests("small-upserts", 64);

    /** A pool of its own, so that one table's scan of many file groups does not delay other tables' commits. */
    private static final ExecutorService READS = requests("small-upserts-reads", 32);

    /**
     * Pool for compactions. Hudi's parallel streams run in the pool that starts them, and the common pool's class loader
     * does not see our jars. {@link #MERGES} says how many of its threads merge at once.
     */
    private static final ForkJoinPool COMPACTIONS = pool(16);
    /**
     * Pool for listing and archiving. Commits wait for a part of this work, and waiting compactions would fill their
     * own pool.
     */
    private static final ForkJoinPool LISTINGS = pool(8);

    /** Commits keep half of the cores for themselves, unless a commit waits for a compaction. */
    private static final Merges MERGES = new Merges(Math.max(Runtime.getRuntime().availableProcessors() / 2, 1));
    /** With this many log files in a file group, the compactions have fallen behind, and use the commits' cores too. */
    private static final int MANY_LOG_FILES = 30;
    /** With this many log files in a file group, a commit waits for the running compaction. */
    private static final int MOST_LOG_FILES = 90;

    private final Share requests = new Share(REQUESTS, new Semaphore(16));
    private final Share reads = new Share(READS, new Semaphore(8));
    private final JavaSparkContext spark;
    private final SparkRDDWriteClient<?> client;
    private final long mostCompacted;
    private final HoodieWriteConfig config;
    private final BaseKeyGenerator keys;
    private final List<String> place;
    private final HoodieTableMetaClient metaClient;
    private final TableStorage logFiles;
    private final Schema schema;
    private final Schema schemaWithMeta;
    private final StructType type;
    /** The known file groups, by partition and bucket, of the partitions that were written to. */
    private final Map<String, Map<Integer, FileGroup>> fileGroups = new HashMap<>();
    private HoodieSparkTable<?> table;
    private String latest;
    private int commits;
    private int untilCompaction;
    private boolean isCompactionOpen;
    private boolean isMoreToCompact;
    private int archiveAfter;
    /** The largest number of log files that a file group of the last commit had before it. */
    private int mostLogFiles;
    private Compaction compaction;
    private Future<Integer> archiving;

    /**
     * Opens a table, and rolls back an unfinished commit that a crash has left.
     *
     * @param options Hudi's options of the table's writer
     * @param place the columns of a row's location: the partition's, and the record key
     * @param mostCompacted how many megabytes of base and log files are read without a Spark job
     * @param firstType the columns of a table without a commit; null if the table has one
     */
    public SmallUpserts(
            JavaSparkContext spark,
            String basePath,
            Map<String, String> options,
            List<String> place,
            long mostCompacted,
            StructType firstType)
            throws Exception {
        this.spark = spark;
        this.place = new ArrayList<>(place);
        this.mostCompacted = mostCompacted;
        TableStorage storage = new TableStorage(
                new StoragePath(basePath), new HadoopStorageConfiguration(spark.hadoopConfiguration()));
        logFiles = storage.forLogFiles();
        metaClient = HoodieTableMetaClient.builder()
                .setStorage(storage)
                .setBasePath(basePath)
                .setLoadActiveTimelineOnLoad(true)
                .build();
        String name = metaClient.getTableConfig().getTableName();
        schema = firstType == null
                ? new TableSchemaResolver(metaClient).getTableAvroSchema(false)
                : schemaOf(firstType, name);
        schemaWithMeta = HoodieAvroUtils.addMetadataFields(schema, false);
        type = AvroConversionUtils.convertAvroSchemaToStructType(schema);
        TypedProperties properties = new TypedProperties();
        properties.putAll(options);
        keys = (BaseKeyGenerator) HoodieSparkKeyGeneratorFactory.createKeyGenerator(properties);
        client = DataSourceUtils.createHoodieClient(spark, schema.toString(), basePath, name, options);
        client.setOperationType(WriteOperationType.UPSERT);
        config = client.getConfig();
        try {
            client.rollbackFailedWrites(metaClient);
            readTable();
            if (firstType != null && commits > 0) {
                throw new HoodieException(basePath + ": found " + commits
                        + " commits, expected none: another writer has committed to the table");
            }
            untilCompaction = config.getInlineCompactDeltaCommitMax() - commitsSinceCompaction();
        } catch (RuntimeException failed) {
            client.close();
            throw failed;
        }
    }

    /** Returns the Avro schema that Hudi's Spark writer gives to rows of a table. */
    private static Schema schemaOf(StructType type, String table) {
        Tuple2<String, String> names = AvroConversionUtils.getAvroRecordNameAndNamespace(table);
        return AvroConversionUtils.convertStructTypeToAvroSchema(type, names._1(), names._2());
    }

    private static ExecutorService requests(String name, int threads) {
        return Executors.newFixedThreadPool(threads, task -> {
            Thread thread = new Thread(task, name);
            thread.setDaemon(true);
            return thread;
        });
    }

    private static ForkJoinPool pool(int threads) {
        return new ForkJoinPool(
                threads,
                pool -> {
                    ForkJoinWorkerThread thread = ForkJoinPool.defaultForkJoinWorkerThreadFactory.newThread(pool);
                    thread.setContextClassLoader(SmallUpserts.class.getClassLoader());
                    return thread;
                },
                null,
                false);
    }

    /** Whether rows of this type have the table's columns, each of the same type. */
    public boolean fits(StructType rows) {
        if (rows.length() != type.length()) {
            return false;
        }
        for (int at = 0; at < type.length(); at++) {
            StructField found = rows.apply(at);
            StructField expected = type.apply(at);
            if (!found.name().equals(expected.name()) || !found.dataType().sameType(expected.dataType())) {
                return false;
            }
        }
        return true;
    }

    /**
     * Commits the latest change of each partition and key as one atomic step.
     *
     * @param rows rows that {@link #fits} accepts
     * @param mostBytes the largest size of the latest rows in bytes
     * @param metadata further metadata of the commit
     * @return the commit's instant, then the partitions it wrote to. If the rows of a task have more than its share of
     *     these bytes, nothing is written, and the result is null
     */
    public List<String> commit(Dataset<Row> rows, long mostBytes, Map<String, String> metadata) throws Exception {
        JavaRDD<InternalRow> all = rows.queryExecution().toRdd().toJavaRDD();
        long mostOfTask = mostBytes / Math.max(all.getNumPartitions(), 1);
        List<UnsafeRow> collected = all.mapPartitions(LatestRows.of(rows.schema(), place, mostOfTask)).collect();
        return collected.contains(null) ? null : commit(latest(collected, null), metadata);
    }

    /**
     * Commits rows that are in the driver, without a Spark job. A row older than the truncate marker becomes a
     * tombstone.
     *
     * @param held rows whose first columns are those that {@link #fits} accepts
     * @param floor the truncate marker, or null if there is none
     * @return as above; null, and nothing is written, if the table is too large to find the ended rows here
     */
    public List<String> commit(HeldRows held, Floor floor, Map<String, String> metadata) throws Exception {
        Map<HoodieKey, GenericRecord> records = latest(held.rows(), floor);
        if (floor != null && floor.mayEnd()) {
            List<GenericRecord> ended = ended(floor);
            if (ended == null) {
                return null;
            }
            ended.forEach(record -> add(records, record));
        }
        return commit(records, metadata);
    }

    /**
     * A truncate marker of a table: what happens to rows whose order is lower.
     *
     * @param order the tombstones' order
     * @param kept the columns whose values a tombstone keeps
     * @param mayEnd whether rows in the table may be older
     * @param mostRows the largest number of rows in the table for which they are found here
     */
    public record Floor(String order, List<String> kept, boolean mayEnd, int mostRows) {
        boolean ends(GenericRecord record) {
            return record.get(ORDER).toString().compareTo(order) < 0;
        }

        GenericRecord tombstone(GenericRecord row, Schema schema) {
            GenericRecord record = new GenericData.Record(schema);
            kept.forEach(name -> record.put(name, row.get(name)));
            record.put(ORDER, order);
            record.put(DELETED, true);
            return record;
        }
    }

    private List<String> commit(Map<HoodieKey, GenericRecord> records, Map<String, String> metadata) throws Exception {
        Map<FileGroup, List<HoodieRecord>> written = byFileGroup(records);
        String instant = begin(written.keySet());
        try {
            List<HoodieWriteStat> stats = write(written, instant);
            HoodieInstant inflight = instant(HoodieInstant.State.INFLIGHT, instant);
            metaClient.getActiveTimeline().saveAsComplete(false, inflight, Option.of(metadata(stats, metadata)));
        } catch (Exception failed) {
            removeAfterRollback(written.keySet(), instant, failed);
            throw failed;
        }
        if (written.keySet().stream().anyMatch(FileGroup::isNew)) {
            WriteMarkersFactory.get(config.getMarkersType(), table, instant)
                    .quietDeleteMarkerDir(new HoodieLocalEngineContext(metaClient.getStorageConf()), 1);
        }
        written.keySet().forEach(group -> put(group.after(instant)));
        latest = instant;
        commits++;
        untilCompaction--;
        mostLogFiles = written.keySet().stream().mapToInt(FileGroup::logVersion).max().orElse(0);
        List<String> answer = new ArrayList<>(List.of(instant));
        written.keySet().stream().map(FileGroup::partition).distinct().forEach(answer::add);
        return answer;
    }

    /** Leaves an incomplete compaction to the next writer of the table. */
    @Override
    public void close() throws InterruptedException {
        try {
            if (compaction != null) {
                compaction.end();
            }
        } finally {
            try {
                if (archiving != null) {
                    awaitEnd(archiving);
                }
            } finally {
                client.close();
            }
        }
    }

    /**
     * Opens a commit as the newest instant of a timeline that no other writer has touched.
     *
     * <p>A writer that takes the table over later sees the instant and rolls it back. If another writer has taken the
     * table over before, this method finds its instant and throws.
     */
    private String begin(Iterable<FileGroup> groups) throws InterruptedException {
        String instant = nextInstant();
        HoodieInstant requested = instant(HoodieInstant.State.REQUESTED, instant);
        metaClient.getActiveTimeline().createNewInstant(requested);
        List<String> newest = metaClient.reloadActiveTimeline()
                .getReverseOrderedInstants()
                .map(HoodieInstant::requestedTime)
                .distinct()
                .limit(2)
                .collect(Collectors.toList());
        List<String> expected = latest.isEmpty() ? List.of(instant) : List.of(instant, latest);
        if (!newest.equals(expected)) {
            metaClient.getActiveTimeline().deletePending(requested);
            throw new HoodieException(metaClient.getBasePath() + ": found the instants " + newest
                    + ", expected " + expected + ": another writer has committed to the table");
        }
        // If the commit is not completed, Hudi reads from its plan what to roll back.
        List<HoodieWriteStat> planned = new ArrayList<>();
        groups.forEach(group -> planned.add(group.nextLog(instant)));
        metaClient
                .getActiveTimeline()
                .transitionRequestedToInflight(requested, Option.of(metadata(planned, Map.of())));
        return instant;
    }

    /**
     * Removes a commit's files if another writer has rolled it back meanwhile.
     *
     * <p>Otherwise readers would read the files once the timeline begins after their instant. If the commit is still
     * open, the next rollback removes them.
     */
    private void removeAfterRollback(Iterable<FileGroup> groups, String instant, Exception failed) {
        try {
            if (metaClient.reloadActiveTimeline().containsInstant(instant)) {
                return;
            }
            for (FileGroup group : groups) {
                StoragePath folder = FSUtils.constructAbsolutePath(metaClient.getBasePath(), group.partition());
                String mark = group.isNew() ? instant : FileGroup.writeToken(instant);
                for (StoragePathInfo file : metaClient.getStorage().listDirectEntries(
                        folder, path -> path.getName().contains(group.fileId()) && path.getName().contains(mark))) {
                    metaClient.getStorage().deleteFile(file.getPath());
                }
            }
        } catch (Exception error) {
            failed.addSuppressed(error);
        }
    }

    private void readTable() {
        readTimeline();
        fileGroups.clear();
    }

    private void readTimeline() {
        HoodieActiveTimeline timeline = metaClient.reloadActiveTimeline();
        latest = timeline.lastInstant().map(HoodieInstant::requestedTime).orElse("");
        commits = timeline.getCommitsTimeline().filterCompletedInstants().countInstants();
        archiveAfter = Math.max(config.getMaxCommitsToKeep(), commits);
        isCompactionOpen = !timeline.filterPendingCompactionTimeline().empty();
        table = HoodieSparkTable.create(config, client.getEngineContext(), metaClient);
    }

    private int commitsSinceCompaction() {
        HoodieActiveTimeline timeline = metaClient.getActiveTimeline();
        Option<HoodieInstant> compaction = timeline.getCommitTimeline().filterCompletedInstants().lastInstant();
        HoodieTimeline deltas = timeline.getDeltaCommitTimeline().filterCompletedInstants();
        return compaction.isPresent()
                ? deltas.findInstantsAfter(compaction.get().requestedTime()).countInstants()
                : deltas.countInstants();
    }

    private String nextInstant() throws InterruptedException {
        long began = System.nanoTime();
        String now;
        while ((now = HoodieInstantTimeGenerator.formatDate(new Date())).compareTo(latest) <= 0) {
            if (System.nanoTime() - began > CLOCK_NANOS) {
                throw new IllegalStateException(metaClient.getBasePath() + ": found " + now
                        + " as the time, expected a later one than the latest commit's, " + latest);
            }
            Thread.sleep(1);
        }
        return now;
    }

    private HoodieInstant instant(HoodieInstant.State state, String time) {
        return metaClient.createNewInstant(state, HoodieTimeline.DELTA_COMMIT_ACTION, time);
    }

    private HoodieCommitMetadata metadata(List<HoodieWriteStat> stats, Map<String, String> extra) {
        return CommitUtils.buildMetadata(
                stats,
                Collections.emptyMap(),
                Option.of(new HashMap<>(extra)),
                WriteOperationType.UPSERT,
                schema.toString(),
                HoodieTimeline.DELTA_COMMIT_ACTION);
    }

    /** Returns the latest row of each location, after the truncate marker. */
    private Map<HoodieKey, GenericRecord> latest(List<? extends InternalRow> rows, Floor floor) {
        Function1<InternalRow, GenericRecord> toAvro =
                AvroConversionUtils.createInternalRowToAvroConverter(type, schema, false);
        Map<HoodieKey, GenericRecord> found = new LinkedHashMap<>();
        for (InternalRow row : rows) {
            GenericRecord record = toAvro.apply(row);
            add(found, floor != null && floor.ends(record) ? floor.tombstone(record, schema) : record);
        }
        return found;
    }

    /** Adds a row unless its location has a later one; of two rows with the same order the last one counts. */
    private void add(Map<HoodieKey, GenericRecord> rows, GenericRecord row) {
        rows.merge(keys.getKey(row), row, (one, other) ->
                other.get(ORDER).toString().compareTo(one.get(ORDER).toString()) < 0 ? one : other);
    }

    /** Returns the tombstones of the rows that a truncate marker ends; null if they are in too many rows or bytes. */
    private List<GenericRecord> ended(Floor floor) throws ExecutionException, InterruptedException {
        HoodieLocalEngineContext here = new HoodieLocalEngineContext(metaClient.getStorageConf());
        metaClient.reloadActiveTimeline();
        // The table's own view lacks the commits since it was read.
        SliceView now = HoodieSparkTable.create(config, here, metaClient).getSliceView();
        List<String> partitions = LISTINGS
                .submit(() -> FSUtils.getAllPartitionPaths(here, metaClient, false))
                .get();
        List<FileSlice> slices = awaited(partitions.stream()
                        .map(partition -> requests.submit(
                                () -> now.getLatestMergedFileSlicesBeforeOrOn(partition, latest)))
                        .collect(Collectors.toList()))
                .stream()
                .flatMap(found -> found)
                .collect(Collectors.toList());
        if (slices.stream().mapToLong(FileSlice::getTotalFileSize).sum() > mostCompacted * MEGABYTE) {
            return null;
        }
        List<String> columns = new ArrayList<>(floor.kept());
        columns.add(ORDER);
        columns.add(DELETED);
        Schema read = HoodieAvroUtils.projectSchema(schemaWithMeta, columns);
        AtomicInteger left = new AtomicInteger(floor.mostRows());
        List<List<GenericRecord>> ended = awaited(slices.stream()
                .map(slice -> reads.submit(() -> ended(slice, read, floor, left)))
                .collect(Collectors.toList()));
        return left.get() < 0 ? null : ended.stream().flatMap(List::stream).collect(Collectors.toList());
    }

    private List<GenericRecord> ended(FileSlice slice, Schema read, Floor floor, AtomicInteger left)
            throws IOException {
        List<GenericRecord> found = new ArrayList<>();
        try (HoodieFileGroupReader<IndexedRecord> reader = HoodieFileGroupReader.<IndexedRecord>newBuilder()
                        .withReaderContext(new SmallBaseFiles(metaClient))
                        .withHoodieTableMetaClient(metaClient)
                        .withLatestCommitTime(latest)
                        .withPartitionPath(slice.getPartitionPath())
                        .withFileSlice(slice)
                        .withDataSchema(schemaWithMeta)
                        .withRequestedSchema(read)
                        .withProps(TypedProperties.copy(config.getProps()))
                        .build();
                ClosableIterator<IndexedRecord> rows = reader.getClosableIterator()) {
            while (rows.hasNext() && left.get() >= 0) {
                GenericRecord row = (GenericRecord) rows.next();
                if (floor.ends(row) && !Boolean.TRUE.equals(row.get(DELETED))) {
                    left.decrementAndGet();
                    found.add(floor.tombstone(row, schema));
                }
            }
        }
        return found;
    }

    private Map<FileGroup, List<HoodieRecord>> byFileGroup(Map<HoodieKey, GenericRecord> records)
            throws ExecutionException, InterruptedException {
        Map<String, Map<Integer, List<HoodieRecord>>> sorted = new LinkedHashMap<>();
        records.forEach((key, record) -> {
            int bucket = BucketIdentifier.getBucketId(
                    key.getRecordKey(), config.getBucketIndexHashFieldWithDefault(), config.getBucketIndexNumBuckets());
            sorted.computeIfAbsent(key.getPartitionPath(), path -> new LinkedHashMap<>())
                    .computeIfAbsent(bucket, number -> new ArrayList<>())
                    .add(new HoodieAvroIndexedRecord(key, record));
        });
        readFileGroups(sorted.keySet());
        Map<FileGroup, List<HoodieRecord>> found = new LinkedHashMap<>();
        sorted.forEach((partition, buckets) -> buckets.forEach((bucket, rows) -> {
            FileGroup known = fileGroups.get(partition).get(bucket);
            found.put(known == null ? FileGroup.first(partition, bucket) : known, rows);
        }));
        return found;
    }

    /** Finds, all at once, the file groups of the partitions that are not known yet. */
    private void readFileGroups(Iterable<String> partitions) throws ExecutionException, InterruptedException {
        List<Future<Stream<FileSlice>>> listed = new ArrayList<>();
        for (String partition : partitions) {
            if (!fileGroups.containsKey(partition)) {
                fileGroups.put(partition, new HashMap<>());
                // Include file groups with a planned compaction: writes after the plan go to log files of their new
                // slice.
                listed.add(requests.submit(() -> table.getSliceView().getLatestFileSlices(partition)));
            }
        }
        awaited(listed).forEach(slices -> slices.forEach(slice -> put(FileGroup.of(slice))));
    }

    private void put(FileGroup group) {
        FileGroup known = fileGroups.get(group.partition()).put(group.bucket(), group);
        if (known != null && !known.fileId().equals(group.fileId())) {
            throw new HoodieException(
                    metaClient.getBasePath() + ": found two file groups of one bucket, " + known + " and " + group);
        }
    }

    /** Returns the results of all tasks. Each task has ended before this returns or throws. */
    private static <T> List<T> awaited(List<Future<T>> tasks) throws ExecutionException, InterruptedException {
        List<T> results = new ArrayList<>();
        ExecutionException failed = null;
        InterruptedException interrupted = null;
        for (Future<T> task : tasks) {
            while (true) {
                try {
                    results.add(task.get());
                } catch (ExecutionException error) {
                    if (failed == null) {
                        failed = error;
                    } else {
                        failed.addSuppressed(error);
                    }
                } catch (InterruptedException error) {
                    interrupted = error;
                    continue;
                }
                break;
            }
        }
        if (interrupted != null) {
            throw interrupted;
        }
        if (failed != null) {
            throw failed;
        }
        return results;
    }

    private List<HoodieWriteStat> write(Map<FileGroup, List<HoodieRecord>> records, String instant)
            throws ExecutionException, InterruptedException {
        List<Future<HoodieWriteStat>> writes = new ArrayList<>();
        records.forEach((group, rows) -> {
            int number = writes.size();
            writes.add(requests.submit(() -> group.isNew()
                    ? writeBaseFile(group, rows, instant, number)
                    : writeLogFile(group, rows, instant, number)));
        });
        return awaited(writes);
    }

    @SuppressWarnings({"rawtypes", "unchecked"})
    private HoodieWriteStat writeBaseFile(FileGroup group, List<HoodieRecord> rows, String instant, int number) {
        HoodieCreateHandle handle =
                new HoodieCreateHandle(config, instant, table, group.partition(), group.fileId(), new Task(number));
        rows.forEach(row -> handle.write(row, schema, config.getProps()));
        WriteStatus status = (WriteStatus) handle.close().get(0);
        if (status.hasErrors()) {
            throw new HoodieInsertException(
                    "Could not write a row of " + group, status.getErrors().values().iterator().next());
        }
        return status.getStat();
    }

    private HoodieWriteStat writeLogFile(FileGroup group, List<HoodieRecord> rows, String instant, int number)
            throws IOException, InterruptedException {
        List<HoodieRecord> whole = new ArrayList<>();
        for (HoodieRecord row : rows) {
            String sequence = HoodieRecord.generateSequenceId(instant, number, whole.size());
            whole.add(new HoodieAvroIndexedRecord(row.getKey(), withMeta(row, group, instant, sequence)));
        }
        Map<HeaderMetadataType, String> header = new HashMap<>();
        header.put(HeaderMetadataType.INSTANT_TIME, instant);
        header.put(HeaderMetadataType.SCHEMA, schemaWithMeta.toString());
        HoodieDeltaWriteStat stat = group.nextLog(instant);
        try (HoodieLogFormat.Writer writer = HoodieLogFormat.newWriterBuilder()
                .onParentPath(FSUtils.constructAbsolutePath(metaClient.getBasePath(), group.partition()))
                .withFileId(group.fileId())
                .withInstantTime(group.baseInstant())
                .withFileExtension(HoodieLogFile.DELTA_EXTENSION)
                .withLogVersion(group.logVersion() + 1)
                .withLogWriteToken(FileGroup.writeToken(instant))
                .withStorage(logFiles)
                .withTableVersion(metaClient.getTableConfig().getTableVersion())
                .build()) {
            AppendResult appended =
                    writer.appendBlock(new HoodieAvroDataBlock(whole, header, HoodieRecord.RECORD_KEY_METADATA_FIELD));
            stat.setNumWrites(rows.size());
            stat.setNumUpdateWrites(rows.size());
            stat.setTotalWriteBytes(appended.size());
            stat.setFileSizeInBytes(appended.size());
        }
        return stat;
    }

    private GenericRecord withMeta(HoodieRecord row, FileGroup group, String instant, String sequence) {
        GenericRecord plain = (GenericRecord) row.getData();
        GenericRecord record = new GenericData.Record(schemaWithMeta);
        for (Schema.Field field : schema.getFields()) {
            record.put(META_FIELDS + field.pos(), plain.get(field.pos()));
        }
        record.put(HoodieRecord.COMMIT_TIME_METADATA_FIELD, instant);
        record.put(HoodieRecord.COMMIT_SEQNO_METADATA_FIELD, sequence);
        record.put(HoodieRecord.RECORD_KEY_METADATA_FIELD, row.getRecordKey());
        record.put(HoodieRecord.PARTITION_PATH_METADATA_FIELD, row.getPartitionPath());
        record.put(HoodieRecord.FILENAME_METADATA_FIELD, group.fileId());
        return record;
    }

    /** Whether {@link #maintain} may have something to do. */
    public boolean isMaintenanceDue() {
        boolean isBegun = archiving != null || compaction != null || isCompactionOpen;
        return isBegun || commits > archiveAfter || isMoreToCompact || untilCompaction <= 0;
    }

    /**
     * Compacts and archives as often as Hudi's options say, one after the other, beside the commits.
     *
     * <p>Call it after each commit, once the commit is reported. A call takes as long as a few requests, unless it has
     * to wait for a compaction, or Spark has to run one again.
     *
     * @return whether a compaction has become complete
     */
    public boolean maintain() throws ExecutionException, InterruptedException {
        boolean archived = archiving != null;
        if (archived) {
            if (!archiving.isDone()) {
                return false;
            }
            awaitEnd(archiving);
            archiving = null;
            // No file slice has changed. If nothing could be archived, not every commit tries again.
            commits = metaClient.reloadActiveTimeline().getCommitsTimeline().filterCompletedInstants().countInstants();
            int atOnce = config.getMaxCommitsToKeep() - config.getMinCommitsToKeep();
            archiveAfter = Math.max(config.getMaxCommitsToKeep(), commits + atOnce);
        }
        boolean compacted = false;
        if (compaction != null) {
            compacted = settle(mostLogFiles >= MOST_LOG_FILES);
            if (!compacted) {
                if (compaction != null && mostLogFiles >= MANY_LOG_FILES) {
                    compaction.hurry();
                }
                return false;
            }
        }
        compacted |= runOpenCompaction();
        if (commits > archiveAfter && !archived) {
            archive();
        } else if (isMoreToCompact || untilCompaction <= 0) {
            boolean isDue = untilCompaction <= 0;
            isMoreToCompact = false;
            boolean goesOn = compact();
            if (isDue) {
                // If no file group needs compaction yet, another plan would cost a listing of the table.
                int most = config.getInlineCompactDeltaCommitMax();
                untilCompaction = goesOn ? most : Math.max(most / 4, 1);
            }
        }
        return compacted;
    }

    /**
     * Runs the compaction that a killed writer, or a failure, has left open: hudi-rs leaves out the commits after it.
     *
     * @return whether there was one
     */
    public boolean runOpenCompaction() {
        if (!isCompactionOpen) {
            return false;
        }
        client.runAnyPendingCompactions();
        untilCompaction = config.getInlineCompactDeltaCommitMax();
        readTable();
        return true;
    }

    /** Begins to archive the oldest instants of the timeline, which no commit reads. */
    @SuppressWarnings({"rawtypes", "unchecked"})
    private void archive() {
        HoodieLocalEngineContext here = new HoodieLocalEngineContext(metaClient.getStorageConf());
        HoodieTableMetaClient ofArchive = HoodieTableMetaClient.reload(metaClient);
        HoodieTable archived = HoodieSparkTable.create(config, here, ofArchive);
        archiving = LISTINGS.submit(
                () -> TimelineArchivers.getInstance(ofArchive.getTimelineLayoutVersion(), config, archived)
                        .archiveIfRequired(here));
    }

    /**
     * Begins a compaction that Hudi plans, beside the following commits.
     *
     * <p>It runs in this process, or as a Spark job if there is much to read. Returns whether there is anything to
     * compact.
     */
    private boolean compact() throws ExecutionException, InterruptedException {
        HoodieLocalEngineContext here = new HoodieLocalEngineContext(metaClient.getStorageConf());
        // The commits use the other cores.
        HoodieTableMetaClient ofCompaction = HoodieTableMetaClient.reload(metaClient);
        // Hudi would count the commits again.
        TypedProperties always = TypedProperties.copy(config.getProps());
        always.setProperty(HoodieCompactionConfig.INLINE_COMPACT_NUM_DELTA_COMMITS.key(), "1");
        always.setProperty(HoodieCompactionConfig.COMPACTION_STRATEGY.key(), BoundedPlans.class.getName());
        HoodieWriteConfig itsConfig =
                HoodieWriteConfig.newBuilder().withProperties(always).build();
        HoodieSparkTable<?> planned = HoodieSparkTable.create(itsConfig, here, ofCompaction);
        String instant = nextInstant();
        Option<HoodieCompactionPlan> plan = LISTINGS
                .submit(() -> planned.scheduleCompaction(here, instant, Option.empty()))
                .get();
        if (!plan.isPresent()) {
            return false;
        }
        boolean isMuch = plan.get().getOperations().stream()
                .anyMatch(operation -> BoundedPlans.megabytesToRead(operation) > mostCompacted);
        ofCompaction.reloadActiveTimeline();
        HoodieEngineContext by = isMuch ? client.getEngineContext() : here;
        HoodieCompactor<?, ?, ?, ?> compactor =
                isMuch ? new HoodieSparkMergeOnReadTableCompactor<>() : new AvroCompactor<>();
        HoodieSparkTable<?> written = isMuch ? HoodieSparkTable.create(itsConfig, by, ofCompaction) : planned;
        AtomicBoolean hurries = new AtomicBoolean();
        Future<HoodieCommitMetadata> files = COMPACTIONS.submit(() -> {
            try {
                return compact(by, itsConfig, written, instant, compactor);
            } finally {
                // From here on nothing has to hurry.
                if (hurries.getAndSet(true)) {
                    MERGES.hurry(false);
                }
            }
        });
        compaction = new Compaction(planned, instant, files, hurries);
        isMoreToCompact = BoundedPlans.isFull(plan.get());
        readTimeline();
        // Commits from now on go to the file slices after the plan. A listing would include all replaced files.
        plan.get().getOperations().stream()
                .filter(operation -> fileGroups.containsKey(operation.getPartitionPath()))
                .forEach(operation ->
                        put(new FileGroup(operation.getPartitionPath(), operation.getFileId(), instant, 0)));
        return true;
    }

    /** Writes the files of a plan. Returns the metadata of the commit that completes the compaction. */
    @SuppressWarnings({"rawtypes", "unchecked"})
    private HoodieCommitMetadata compact(
            HoodieEngineContext by, HoodieWriteConfig itsConfig, HoodieTable written, String instant, HoodieCompactor compactor) {
        // Threads inherit the pool of the table that created them.
        spark.setLocalProperty("spark.scheduler.pool", "compactions");
        var work = new RunCompactionActionExecutor(
                by, itsConfig, written, instant, compactor, WriteOperationType.COMPACT);
        HoodieWriteMetadata<HoodieData<WriteStatus>> done = work.execute();
        HoodieCommitMetadata metadata = done.getCommitMetadata().get();
        for (WriteStatus status : done.getWriteStatuses().collectAsList()) {
            if (status.hasErrors()) {
                throw new HoodieException("Could not compact the file group " + status.getFileId());
            }
            metadata.addWriteStat(status.getStat().getPartitionPath(), status.getStat());
        }
        return metadata;
    }

    /** Whether a compaction runs beside the commits. */
    public boolean isCompacting() {
        return compaction != null;
    }

    /**
     * Completes the running compaction if its files are written; with {@code wait}, waits until they are.
     *
     * <p>If the files could not be written, Spark runs the compaction after the next commit.
     *
     * @return whether the compaction is complete
     */
    public boolean settle(boolean wait) throws InterruptedException {
        if (compaction == null || !(wait || compaction.written().isDone())) {
            return false;
        }
        Compaction done = compaction;
        compaction = null;
        HoodieCommitMetadata metadata;
        try {
            metadata = done.metadata();
        } catch (ExecutionException | HoodieException failed) {
            LOG.warn("{}: a compaction failed; Spark repeats it after the next commit", metaClient.getBasePath(), failed);
            readTable();
            return false;
        }
        HoodieTimeline timeline = metaClient.reloadActiveTimeline();
        String newest = timeline.lastInstant().map(HoodieInstant::requestedTime).orElse("");
        if (!newest.equals(latest) || timeline.filterPendingCompactionTimeline()
                .filter(instant -> instant.requestedTime().equals(done.instant()))
                .empty()) {
            throw new HoodieException(metaClient.getBasePath() + ": found " + newest + " as the newest instant, expected "
                    + latest + ", with " + done.instant() + " open: another writer has committed to the table");
        }
        done.complete(metadata, config);
        // The completed slices are known since the plan.
        readTimeline();
        return true;
    }

    /**
     * A table's share of a pool: at most {@code free} of its tasks are in the pool at once. If S3 throttles one table's
     * prefix and answers nothing, the other tables still have threads.
     */
    private record Share(ExecutorService pool, Semaphore free) {
        <T> Future<T> submit(Callable<T> task) {
            free.acquireUninterruptibly();
            return pool.submit(() -> {
                try {
                    return task.call();
                } finally {
                    free.release();
                }
            });
        }
    }

    /** A file group and its latest slice; {@code logVersion} is 0 if the slice has no log file. */
    private record FileGroup(String partition, String fileId, String baseInstant, int logVersion) {
        static FileGroup first(String partition, int bucket) {
            String fileId = FSUtils.createNewFileId(BucketIdentifier.newBucketFileIdPrefix(bucket), 0);
            return new FileGroup(partition, fileId, HoodieWriteStat.NULL_COMMIT, 0);
        }

        static FileGroup of(FileSlice slice) {
            int version = slice.getLatestLogFile().map(HoodieLogFile::getLogVersion).orElse(0);
            return new FileGroup(slice.getPartitionPath(), slice.getFileId(), slice.getBaseInstantTime(), version);
        }

        /** Distinguishes a commit's log file from one of the same version that a crash left. */
        static String writeToken(String instant) {
            return instant.substring(0, 8) + "-" + instant.substring(8) + "-0";
        }

        int bucket() {
            return BucketIdentifier.bucketIdFromFileId(fileId);
        }

        boolean isNew() {
            return baseInstant.equals(HoodieWriteStat.NULL_COMMIT);
        }

        FileGroup after(String instant) {
            return new FileGroup(partition, fileId, isNew() ? instant : baseInstant, isNew() ? 0 : logVersion + 1);
        }

        HoodieDeltaWriteStat nextLog(String instant) {
            HoodieDeltaWriteStat stat = new HoodieDeltaWriteStat();
            stat.setPartitionPath(partition);
            stat.setFileId(fileId);
            stat.setPrevCommit(baseInstant);
            stat.setBaseFile("");
            if (!isNew()) {
                String name = FSUtils.makeLogFileName(
                        fileId, HoodieLogFile.DELTA_EXTENSION, baseInstant, logVersion + 1, writeToken(instant));
                stat.setPath(partition.isEmpty() ? name : partition + "/" + name);
                stat.setLogFiles(new ArrayList<>(List.of(name)));
                stat.setLogVersion(logVersion + 1);
                stat.setLogOffset(0);
            }
            return stat;
        }
    }

    /** The task context that Hudi's writers expect; the number is the file group's within its commit. */
    private static final class Task extends TaskContextSupplier {
        private final int number;

        Task(int number) {
            this.number = number;
        }

        @Override
        public Supplier<Integer> getPartitionIdSupplier() {
            return () -> number;
        }

        @Override
        public Supplier<Integer> getStageIdSupplier() {
            return () -> 0;
        }

        @Override
        public Supplier<Long> getAttemptIdSupplier() {
            return () -> 0L;
        }

        @Override
        public Option<String> getProperty(EngineProperty property) {
            return Option.empty();
        }

        @Override
        public Supplier<Integer> getTaskAttemptNumberSupplier() {
            return () -> 0;
        }

        @Override
        public Supplier<Integer> getStageAttemptNumberSupplier() {
            return () -> 0;
        }
    }

    /** A compaction whose files other threads write. Readers do not see it until it is completed. */
    private record Compaction(
            HoodieSparkTable<?> table, String instant, Future<HoodieCommitMetadata> written, AtomicBoolean hurries) {
        /** Lets the compaction use more than its share of the cores, until its files are written. */
        void hurry() {
            if (hurries.compareAndSet(false, true)) {
                MERGES.hurry(true);
            }
        }

        /** The metadata of the written files, once all are written. */
        HoodieCommitMetadata metadata() throws ExecutionException, InterruptedException {
            hurry();
            return written.get();
        }

        void complete(HoodieCommitMetadata metadata, HoodieWriteConfig config) {
            List<HoodieWriteStat> stats = metadata.getWriteStats();
            table.finalizeWrite(table.getContext(), instant, stats);
            CompactHelpers.getInstance().completeInflightCompaction(table, instant, metadata);
            WriteMarkersFactory.get(config.getMarkersType(), table, instant)
                    .quietDeleteMarkerDir(table.getContext(), 1);
        }

        /** Waits until no thread writes any more. */
        void end() throws InterruptedException {
            hurry();
            awaitEnd(written);
        }
    }

    private static void awaitEnd(Future<?> work) throws InterruptedException {
        try {
            work.get();
        } catch (ExecutionException failed) {
            LOG.warn("Maintenance beside the commits failed", failed);
        }
    }

    /** Limits how many file groups all tables of the driver merge at once. */
    private static final class Merges extends Semaphore {
        private static final int MORE = 16;

        Merges(int atOnce) {
            super(atOnce);
        }

        /** Lets more file groups merge at once while a commit waits for a compaction. */
        void hurry(boolean waits) {
            if (waits) {
                release(MORE);
            } else {
                reducePermits(MORE);
            }
        }
    }

    /** Merges file groups by Hudi's own reader and writer of Avro records, which need no engine. */
    private static final class AvroCompactor<T>
            extends HoodieCompactor<T, HoodieData<HoodieRecord<T>>, HoodieData<HoodieKey>, HoodieData<WriteStatus>> {
        @Override
        public void preCompact(
                HoodieTable planned, HoodieTimeline pending, WriteOperationType operation, String instant) {
            // The plan has just been made.
        }

        @Override
        public void maybePersist(
                HoodieData<WriteStatus> statuses, HoodieEngineContext context, HoodieWriteConfig config, String instant) {
            // The written records are in a list.
        }

        @Override
        public List<WriteStatus> compact(
                HoodieWriteConfig config,
                CompactionOperation operation,
                String instant,
                HoodieReaderContext reader,
                HoodieTable planned,
                String newest,
                TaskContextSupplier task)
                throws IOException {
            MERGES.acquireUninterruptibly();
            try {
                return super.compact(config, operation, instant, reader, planned, newest, task);
            } finally {
                MERGES.release();
            }
        }

        @Override
        protected HoodieRecordType getEngineRecordType() {
            return HoodieRecordType.AVRO;
        }
    }

    /** Returns a task's latest row of each partition and key; a single null if they exceed the bytes. */
    private record LatestRows(int[] place, DataType[] types, int order, long mostBytes)
            implements FlatMapFunction<Iterator<InternalRow>, UnsafeRow> {
        static LatestRows of(StructType rows, List<String> place, long mostBytes) {
            int[] at = place.stream().mapToInt(rows::fieldIndex).toArray();
            DataType[] types = Arrays.stream(at).mapToObj(field -> rows.apply(field).dataType()).toArray(DataType[]::new);
            return new LatestRows(at, types, rows.fieldIndex(ORDER), mostBytes);
        }

        @Override
        public Iterator<UnsafeRow> call(Iterator<InternalRow> rows) {
            Map<List<Object>, UnsafeRow> found = new LinkedHashMap<>();
            long bytes = 0;
            while (rows.hasNext()) {
                UnsafeRow row = (UnsafeRow) rows.next();
                List<Object> key = placeOf(row);
                UnsafeRow before = found.get(key);
                if (before != null && row.getUTF8String(order).compareTo(before.getUTF8String(order)) < 0) {
                    continue;
                }
                bytes += row.getSizeInBytes() - (before == null ? 0 : before.getSizeInBytes());
                if (bytes > mostBytes) {
                    return Collections.<UnsafeRow>singletonList(null).iterator();
                }
                found.put(key, row.copy());
            }
            return found.values().iterator();
        }

        private List<Object> placeOf(UnsafeRow row) {
            List<Object> key = new ArrayList<>(place.length);
            for (int at = 0; at < place.length; at++) {
                Object value = row.isNullAt(place[at]) ? null : row.get(place[at], types[at]);
                key.add(value instanceof UTF8String text ? text.clone() : value);
            }
            return key;
        }
    }
}
