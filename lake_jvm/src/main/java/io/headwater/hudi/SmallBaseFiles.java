package io.headwater.hudi;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.IndexedRecord;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.util.functional.FutureIO;
import org.apache.hudi.avro.HoodieAvroReaderContext;
import org.apache.hudi.common.model.HoodieFileFormat;
import org.apache.hudi.common.table.HoodieTableMetaClient;
import org.apache.hudi.common.util.Option;
import org.apache.hudi.common.util.collection.ClosableIterator;
import org.apache.hudi.hadoop.fs.HadoopFSUtils;
import org.apache.hudi.storage.HoodieStorage;
import org.apache.hudi.storage.StoragePathInfo;
import org.apache.parquet.ParquetReadOptions;
import org.apache.parquet.avro.AvroReadSupport;
import org.apache.parquet.column.page.PageReadStore;
import org.apache.parquet.hadoop.CodecFactory;
import org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.parquet.hadoop.api.ReadSupport.ReadContext;
import org.apache.parquet.hadoop.metadata.FileMetaData;
import org.apache.parquet.io.ColumnIOFactory;
import org.apache.parquet.io.DelegatingSeekableInputStream;
import org.apache.parquet.io.InputFile;
import org.apache.parquet.io.MessageColumnIO;
import org.apache.parquet.io.RecordReader;
import org.apache.parquet.io.SeekableInputStream;
import org.apache.parquet.io.api.RecordMaterializer;
import org.apache.parquet.schema.MessageType;
import org.apache.parquet.schema.Type;

/**
 * Has Hudi read small base files whole, by one request each: its own reader asks S3 nine times, and parses Hadoop's default
 * configuration for each file. A file that has not the columns in just the types that are asked for is left to it.
 */
final class SmallBaseFiles extends HoodieAvroReaderContext {
    private static final long MOST_BYTES = 4 << 20;

    SmallBaseFiles(HoodieTableMetaClient table) {
        super(table.getStorageConf(), table.getTableConfig(), Option.empty(), Option.empty());
    }

    @Override
    public ClosableIterator<IndexedRecord> getFileRecordIterator(
            StoragePathInfo file, long start, long length, Schema stored, Schema required, HoodieStorage storage)
            throws IOException {
        boolean isSmall = start == 0 && file.getLength() > 0 && file.getLength() <= MOST_BYTES;
        boolean isParquet = file.getPath().getFileExtension().equals(HoodieFileFormat.PARQUET.getFileExtension());
        if (!isSmall || !isParquet) {
            return super.getFileRecordIterator(file, start, length, stored, required, storage);
        }
        Configuration configuration = storage.getConf().unwrapCopyAs(Configuration.class);
        List<IndexedRecord> records = records(new Whole(read(file, storage)), required, configuration);
        return records == null
                ? super.getFileRecordIterator(file, start, length, stored, required, storage)
                : ClosableIterator.wrap(records.iterator());
    }

    /** S3A would look how long the file is, and fetch its end, its footer and its rows each by itself. */
    private static byte[] read(StoragePathInfo file, HoodieStorage storage) throws IOException {
        byte[] content = new byte[(int) file.getLength()];
        var opened = ((FileSystem) storage.getFileSystem())
                .openFile(HadoopFSUtils.convertToHadoopPath(file.getPath()))
                .opt("fs.option.openfile.length", Long.toString(content.length))
                .opt("fs.option.openfile.read.policy", "whole-file");
        try (FSDataInputStream in = FutureIO.awaitFuture(opened.build())) {
            in.readFully(content);
        }
        return content;
    }

    /** The records of a file in a schema; null where its columns have other types. */
    private static List<IndexedRecord> records(InputFile file, Schema required, Configuration configuration)
            throws IOException {
        AvroReadSupport.setRequestedProjection(configuration, required);
        AvroReadSupport.setAvroReadSchema(configuration, required);
        configuration.setBoolean(AvroReadSupport.AVRO_COMPATIBILITY, false);
        AvroReadSupport<IndexedRecord> support = new AvroReadSupport<>(GenericData.get());
        CodecFactory codecs = new CodecFactory(configuration, 0);
        List<IndexedRecord> found = new ArrayList<>();
        try (ParquetFileReader reader = ParquetFileReader.open(
                file, ParquetReadOptions.builder().withCodecFactory(codecs).build())) {
            FileMetaData meta = reader.getFooter().getFileMetaData();
            ReadContext context = support.init(configuration, meta.getKeyValueMetaData(), meta.getSchema());
            if (!context.getRequestedSchema().getFields().stream().allMatch(column -> has(meta.getSchema(), column))) {
                return null;
            }
            RecordMaterializer<IndexedRecord> materializer =
                    support.prepareForRead(configuration, meta.getKeyValueMetaData(), meta.getSchema(), context);
            reader.setRequestedSchema(context.getRequestedSchema());
            MessageColumnIO columns = new ColumnIOFactory(meta.getCreatedBy())
                    .getColumnIO(context.getRequestedSchema(), meta.getSchema());
            for (PageReadStore group; (group = reader.readNextRowGroup()) != null; ) {
                RecordReader<IndexedRecord> rows = columns.getRecordReader(group, materializer);
                for (long row = 0; row < group.getRowCount(); row++) {
                    found.add(rows.read());
                }
            }
        } finally {
            codecs.release();
        }
        return found;
    }

    private static boolean has(MessageType file, Type column) {
        if (!column.isPrimitive() || !file.containsField(column.getName())) {
            return false;
        }
        Type found = file.getType(column.getName());
        return found.isPrimitive()
                && Objects.equals(found.getLogicalTypeAnnotation(), column.getLogicalTypeAnnotation())
                && found.asPrimitiveType().getPrimitiveTypeName() == column.asPrimitiveType().getPrimitiveTypeName()
                && found.asPrimitiveType().getTypeLength() == column.asPrimitiveType().getTypeLength();
    }

    /** A file's content, for Parquet. */
    private record Whole(byte[] content) implements InputFile {
        @Override
        public long getLength() {
            return content.length;
        }

        @Override
        public SeekableInputStream newStream() {
            TableStorage.Place place = new TableStorage.Place(content);
            return new DelegatingSeekableInputStream(place) {
                @Override
                public long getPos() {
                    return place.position();
                }

                @Override
                public void seek(long to) throws IOException {
                    place.seek(to);
                }
            };
        }
    }
}
