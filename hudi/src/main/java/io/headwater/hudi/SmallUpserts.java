package io.headwater.hudi;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Date;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericRecord;
import org.apache.hudi.AvroConversionUtils;
import org.apache.hudi.DataSourceUtils;
import org.apache.hudi.avro.HoodieAvroUtils;
import org.apache.hudi.client.SparkRDDWriteClient;
import org.apache.hudi.common.config.TypedProperties;
import org.apache.hudi.common.fs.FSUtils;
import org.apache.hudi.common.model.HoodieAvroIndexedRecord;
import org.apache.hudi.common.model.HoodieCommitMetadata;
import org.apache.hudi.common.model.HoodieDeltaWriteStat;
import org.apache.hudi.common.model.HoodieKey;
import org.apache.hudi.common.model.HoodieLogFile;
import org.apache.hudi.common.model.HoodieRecord;
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
import org.apache.hudi.common.table.view.TableFileSystemView;
import org.apache.hudi.common.util.CommitUtils;
import org.apache.hudi.common.util.Option;
import org.apache.hudi.config.HoodieWriteConfig;
import org.apache.hudi.index.bucket.BucketIdentifier;
import org.apache.hudi.keygen.BaseKeyGenerator;
import org.apache.hudi.keygen.factory.HoodieSparkKeyGeneratorFactory;
import org.apache.hudi.storage.StoragePath;
import org.apache.hudi.storage.hadoop.HadoopStorageConfiguration;
import org.apache.hudi.table.HoodieSparkTable;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Function1;

/**
 * Commits small batches to a merge-on-read table with a simple bucket index: one log file for each file group that has a
 * change, all written at once by the driver. Hudi's own upsert does the same by a row of Spark jobs, whose work for each
 * file group is many times that of its rows.
 *
 * <p>What is written is what Hudi's upsert writes, by Hudi's own converter, key generator, bucket hash and log format, and
 * the two may follow each other on one table. One object stands for one table, whose only writer the caller is, and is
 * of no use after an exception, or after another commit to the table than its own.
 */
public final class SmallUpserts implements AutoCloseable {
    private static final String ORDER = "_order";
    private static final int META_FIELDS = HoodieRecord.HOODIE_META_COLUMNS.size();
    /** Writes wait for S3 more than they compute. The tables of a driver share it. */
    private static final ExecutorService WRITES = Executors.newFixedThreadPool(32, task -> {
        Thread thread = new Thread(task, "small-upserts");
        thread.setDaemon(true);
        return thread;
    });

    private final SparkRDDWriteClient<?> client;
    private final HoodieWriteConfig config;
    private final BaseKeyGenerator keys;
    private final Schema schema;
    private final Schema schemaWithMeta;
    private final StructType type;
    private final HoodieTableMetaClient table;
    /** The last log file of each file group, by partition and bucket, of the partitions that were written to. */
    private final Map<String, Map<Integer, LogFile>> logFiles = new HashMap<>();
    private TableFileSystemView.SliceView files;
    private String latest;
    private int commits;
    private int commitsSinceCompaction;
    private int archiveAfter;
    private boolean compacted;

    /**
     * Opens a table that has a commit, and rolls back what a crash left of an unfinished one.
     *
     * @param options Hudi's options of the table's writer
     */
    public SmallUpserts(JavaSparkContext spark, String basePath, Map<String, String> options)
            throws Exception {
        table = HoodieTableMetaClient.builder()
                .setConf(new HadoopStorageConfiguration(spark.hadoopConfiguration()))
                .setBasePath(basePath)
                .setLoadActiveTimelineOnLoad(true)
                .build();
        schema = new TableSchemaResolver(table).getTableAvroSchema(false);
        schemaWithMeta = HoodieAvroUtils.addMetadataFields(schema, false);
        type = AvroConversionUtils.convertAvroSchemaToStructType(schema);
        TypedProperties properties = new TypedProperties();
        properties.putAll(options);
        keys = (BaseKeyGenerator) HoodieSparkKeyGeneratorFactory.createKeyGenerator(properties);
        String name = table.getTableConfig().getTableName();
        client = DataSourceUtils.createHoodieClient(spark, schema.toString(), basePath, name, options);
        client.setOperationType(WriteOperationType.UPSERT);
        config = client.getConfig();
        client.rollbackFailedWrites(table);
        readTimeline();
    }

    /** Whether rows of this type are those of the table: the same columns, each of the same type. */
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
     * @param mostBytes how many bytes of rows a task may give
     * @param metadata what the commit carries besides
     * @return the commit's instant and the partitions it wrote to, in this order; null, and nothing is written, where a
     *     task has more bytes or a row is the first of its file group: Hudi's own upsert makes the group's base file
     */
    public List<String> commit(Dataset<Row> rows, long mostBytes, Map<String, String> metadata) throws Exception {
        compacted = false;
        List<UnsafeRow> collected = rows.queryExecution()
                .toRdd()
                .toJavaRDD()
                .mapPartitions(new UpTo(mostBytes))
                .collect();
        if (collected.contains(null)) {
            return null;
        }
        String instant = nextInstant();
        Map<LogFile, List<HoodieRecord>> records = byLogFile(latestOf(collected), instant);
        if (records == null) {
            return null;
        }
        HoodieActiveTimeline timeline = table.getActiveTimeline();
        HoodieInstant requested = instant(HoodieInstant.State.REQUESTED, instant);
        timeline.createNewInstant(requested);
        timeline.transitionRequestedToInflight(requested, Option.of(metadata(planned(records.keySet()), Map.of())));
        List<HoodieWriteStat> stats = write(records, instant);
        HoodieInstant inflight = instant(HoodieInstant.State.INFLIGHT, instant);
        timeline.saveAsComplete(false, inflight, Option.of(metadata(stats, metadata)));
        for (LogFile file : records.keySet()) {
            logFiles.get(file.partition()).put(BucketIdentifier.bucketIdFromFileId(file.fileId()), file);
        }
        latest = instant;
        commits++;
        commitsSinceCompaction++;
        maintain();
        List<String> answer = new ArrayList<>(List.of(instant));
        records.keySet().stream().map(LogFile::partition).distinct().forEach(answer::add);
        return answer;
    }

    /** Whether the last {@link #commit} has compacted the table after it. */
    public boolean compacted() {
        return compacted;
    }

    @Override
    public void close() {
        client.close();
    }

    private void readTimeline() {
        HoodieActiveTimeline timeline = table.reloadActiveTimeline();
        latest = timeline.lastInstant().map(HoodieInstant::requestedTime).orElse("");
        commits = timeline.getCommitsTimeline().filterCompletedInstants().countInstants();
        Option<HoodieInstant> compaction = timeline.getCommitTimeline().filterCompletedInstants().lastInstant();
        HoodieTimeline deltas = timeline.getDeltaCommitTimeline().filterCompletedInstants();
        commitsSinceCompaction = compaction.isPresent()
                ? deltas.findInstantsAfter(compaction.get().requestedTime()).countInstants()
                : deltas.countInstants();
        if (!timeline.filterPendingCompactionTimeline().empty()) {
            commitsSinceCompaction = Integer.MAX_VALUE / 2;
        }
        archiveAfter = Math.max(config.getMaxCommitsToKeep(), commits);
        files = HoodieSparkTable.create(config, client.getEngineContext(), table).getSliceView();
        logFiles.clear();
    }

    private String nextInstant() throws InterruptedException {
        String now;
        while ((now = HoodieInstantTimeGenerator.formatDate(new Date())).compareTo(latest) <= 0) {
            Thread.sleep(1);
        }
        return now;
    }

    private HoodieInstant instant(HoodieInstant.State state, String time) {
        return table.createNewInstant(state, HoodieTimeline.DELTA_COMMIT_ACTION, time);
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

    /** The record with the greatest order of each partition and key. Of two with the same order the later one counts. */
    private Map<HoodieKey, GenericRecord> latestOf(List<UnsafeRow> rows) {
        Function1<InternalRow, GenericRecord> toAvro =
                AvroConversionUtils.createInternalRowToAvroConverter(type, schema, false);
        int order = schema.getField(ORDER).pos();
        Map<HoodieKey, GenericRecord> found = new LinkedHashMap<>();
        for (UnsafeRow row : rows) {
            GenericRecord record = toAvro.apply(row);
            found.merge(keys.getKey(record), record, (one, other) ->
                    other.get(order).toString().compareTo(one.get(order).toString()) < 0 ? one : other);
        }
        return found;
    }

    /** The records by the log file that each is to be written to; null where one needs a file group that is not there. */
    private Map<LogFile, List<HoodieRecord>> byLogFile(Map<HoodieKey, GenericRecord> records, String instant)
            throws ExecutionException, InterruptedException {
        Map<String, Map<Integer, List<HoodieRecord>>> sorted = new LinkedHashMap<>();
        long count = 0;
        for (Map.Entry<HoodieKey, GenericRecord> entry : records.entrySet()) {
            HoodieKey key = entry.getKey();
            int bucket = BucketIdentifier.getBucketId(
                    key.getRecordKey(), config.getBucketIndexHashFieldWithDefault(), config.getBucketIndexNumBuckets());
            GenericRecord record = new GenericData.Record(schemaWithMeta);
            for (Schema.Field field : schema.getFields()) {
                record.put(META_FIELDS + field.pos(), entry.getValue().get(field.pos()));
            }
            record.put(HoodieRecord.COMMIT_TIME_METADATA_FIELD, instant);
            record.put(HoodieRecord.COMMIT_SEQNO_METADATA_FIELD, HoodieRecord.generateSequenceId(instant, 0, count++));
            record.put(HoodieRecord.RECORD_KEY_METADATA_FIELD, key.getRecordKey());
            record.put(HoodieRecord.PARTITION_PATH_METADATA_FIELD, key.getPartitionPath());
            sorted.computeIfAbsent(key.getPartitionPath(), path -> new LinkedHashMap<>())
                    .computeIfAbsent(bucket, number -> new ArrayList<>())
                    .add(new HoodieAvroIndexedRecord(key, record));
        }
        readFileGroups(sorted.keySet());
        Map<LogFile, List<HoodieRecord>> found = new LinkedHashMap<>();
        for (Map.Entry<String, Map<Integer, List<HoodieRecord>>> partition : sorted.entrySet()) {
            for (Map.Entry<Integer, List<HoodieRecord>> bucket : partition.getValue().entrySet()) {
                LogFile last = logFiles.get(partition.getKey()).get(bucket.getKey());
                if (last == null) {
                    return null;
                }
                found.put(last.next(instant), bucket.getValue());
            }
        }
        found.forEach((file, rows) -> {
            for (HoodieRecord row : rows) {
                ((GenericRecord) row.getData()).put(HoodieRecord.FILENAME_METADATA_FIELD, file.fileId());
            }
        });
        return found;
    }

    /** Finds the file groups of those of the partitions that are not known yet, all at once. */
    private void readFileGroups(Iterable<String> partitions) throws ExecutionException, InterruptedException {
        Map<String, Future<Map<Integer, LogFile>>> listed = new HashMap<>();
        for (String partition : partitions) {
            if (!logFiles.containsKey(partition)) {
                listed.put(partition, WRITES.submit(() -> fileGroups(partition)));
            }
        }
        for (Map.Entry<String, Future<Map<Integer, LogFile>>> entry : listed.entrySet()) {
            logFiles.put(entry.getKey(), entry.getValue().get());
        }
    }

    private Map<Integer, LogFile> fileGroups(String partition) {
        Map<Integer, LogFile> found = new HashMap<>();
        // With those whose compaction is planned: what comes after the plan goes to log files of their new slice.
        files.getLatestFileSlices(partition).forEach(slice -> {
            int version = slice.getLatestLogFile().map(HoodieLogFile::getLogVersion).orElse(0);
            int bucket = BucketIdentifier.bucketIdFromFileId(slice.getFileId());
            found.put(bucket, new LogFile(partition, slice.getFileId(), slice.getBaseInstantTime(), version, ""));
        });
        return found;
    }

    /** What is written, as far as it is known before: Hudi takes from it what to roll back. */
    private static List<HoodieWriteStat> planned(Iterable<LogFile> files) {
        List<HoodieWriteStat> stats = new ArrayList<>();
        files.forEach(file -> stats.add(file.stat()));
        return stats;
    }

    private List<HoodieWriteStat> write(Map<LogFile, List<HoodieRecord>> records, String instant)
            throws ExecutionException, InterruptedException {
        List<Future<HoodieWriteStat>> writes = new ArrayList<>();
        records.forEach((file, rows) -> writes.add(WRITES.submit(() -> write(file, rows, instant))));
        List<HoodieWriteStat> stats = new ArrayList<>();
        ExecutionException failed = null;
        for (Future<HoodieWriteStat> write : writes) {
            try {
                stats.add(write.get());
            } catch (ExecutionException error) {
                // The others are awaited: none may write when the commit is rolled back.
                failed = error;
            }
        }
        if (failed != null) {
            throw failed;
        }
        return stats;
    }

    private HoodieWriteStat write(LogFile file, List<HoodieRecord> rows, String instant)
            throws IOException, InterruptedException {
        Map<HeaderMetadataType, String> header = new HashMap<>();
        header.put(HeaderMetadataType.INSTANT_TIME, instant);
        header.put(HeaderMetadataType.SCHEMA, schemaWithMeta.toString());
        StoragePath folder = FSUtils.constructAbsolutePath(table.getBasePath(), file.partition());
        try (HoodieLogFormat.Writer writer = HoodieLogFormat.newWriterBuilder()
                .onParentPath(folder)
                .withFileId(file.fileId())
                .withInstantTime(file.baseInstant())
                .withFileExtension(HoodieLogFile.DELTA_EXTENSION)
                .withLogVersion(file.version())
                .withLogWriteToken(file.writeToken())
                .withStorage(table.getStorage())
                .withTableVersion(table.getTableConfig().getTableVersion())
                .build()) {
            AppendResult appended = writer.appendBlock(
                    new HoodieAvroDataBlock(rows, header, HoodieRecord.RECORD_KEY_METADATA_FIELD));
            HoodieDeltaWriteStat stat = file.stat();
            stat.setNumWrites(rows.size());
            stat.setNumUpdateWrites(rows.size());
            stat.setTotalWriteBytes(appended.size());
            stat.setFileSizeInBytes(appended.size());
            return stat;
        }
    }

    /** Compacts and archives as often as Hudi's options say. */
    private void maintain() {
        if (commitsSinceCompaction >= config.getInlineCompactDeltaCommitMax()) {
            client.runAnyPendingCompactions();
            Option<String> planned = client.scheduleCompaction(Option.empty());
            if (planned.isPresent()) {
                client.compact(planned.get(), true);
            }
            compacted = true;
        }
        if (commits > archiveAfter) {
            client.archive();
        } else if (!compacted) {
            return;
        }
        readTimeline();
    }

    /** A log file of a file group's latest slice; {@code version} is 0 where it has none yet. */
    private record LogFile(String partition, String fileId, String baseInstant, int version, String writeToken) {
        /** The next one, which no other commit has a file like. */
        LogFile next(String instant) {
            String token = instant.substring(0, 8) + "-" + instant.substring(8) + "-0";
            return new LogFile(partition, fileId, baseInstant, version + 1, token);
        }

        HoodieDeltaWriteStat stat() {
            String name = FSUtils.makeLogFileName(
                    fileId, HoodieLogFile.DELTA_EXTENSION, baseInstant, version, writeToken);
            HoodieDeltaWriteStat stat = new HoodieDeltaWriteStat();
            stat.setPartitionPath(partition);
            stat.setFileId(fileId);
            stat.setPath(partition.isEmpty() ? name : partition + "/" + name);
            stat.setPrevCommit(baseInstant);
            stat.setBaseFile("");
            stat.setLogFiles(new ArrayList<>(List.of(name)));
            stat.setLogVersion(version);
            stat.setLogOffset(0);
            return stat;
        }
    }

    /** Copies of rows, until they have that many bytes; then a null instead of the rest. */
    private record UpTo(long mostBytes) implements FlatMapFunction<Iterator<InternalRow>, UnsafeRow> {
        @Override
        public Iterator<UnsafeRow> call(Iterator<InternalRow> rows) {
            List<UnsafeRow> found = new ArrayList<>();
            long bytes = 0;
            while (rows.hasNext()) {
                UnsafeRow row = (UnsafeRow) rows.next();
                bytes += row.getSizeInBytes();
                if (bytes > mostBytes) {
                    return Collections.<UnsafeRow>singletonList(null).iterator();
                }
                found.add(row.copy());
            }
            return found.iterator();
        }
    }
}
