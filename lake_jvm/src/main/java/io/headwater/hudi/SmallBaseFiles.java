package io.headwater.hudi;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.NoSuchElementException;
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
 * Makes Hudi read a small base file whole, by one request.
 *
 * <p>Hudi's own reader sends S3 nine requests, and parses Hadoop's default configuration for each file. It still reads
 * files in which a wanted column is missing or has another type.
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
        Rows rows = Rows.of(new Whole(read(file, storage)), required, configuration);
        return rows == null ? super.getFileRecordIterator(file, start, length, stored, required, storage) : rows;
    }

    /** Returns a file's content. By itself, S3A would request length, end, footer and rows one by one. */
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

    /** Returns the rows of a file in a schema. A row is read when the caller takes it. */
    private static final class Rows implements ClosableIterator<IndexedRecord> {
        private final ParquetFileReader reader;
        private final CodecFactory codecs;
        private final MessageColumnIO columns;
        private final RecordMaterializer<IndexedRecord> materializer;
        private RecordReader<IndexedRecord> ofGroup;
        private long left;

        private Rows(
                ParquetFileReader reader,
                CodecFactory codecs,
                MessageColumnIO columns,
                RecordMaterializer<IndexedRecord> materializer) {
            this.reader = reader;
            this.codecs = codecs;
            this.columns = columns;
            this.materializer = materializer;
        }

        /** Returns null if the file's columns have other types. */
        static Rows of(InputFile file, Schema required, Configuration configuration) throws IOException {
            AvroReadSupport.setRequestedProjection(configuration, required);
            AvroReadSupport.setAvroReadSchema(configuration, required);
            configuration.setBoolean(AvroReadSupport.AVRO_COMPATIBILITY, false);
            AvroReadSupport<IndexedRecord> support = new AvroReadSupport<>(GenericData.get());
            CodecFactory codecs = new CodecFactory(configuration, 0);
            ParquetFileReader reader = ParquetFileReader.open(
                    file, ParquetReadOptions.builder().withCodecFactory(codecs).build());
            try {
                return of(reader, codecs, support, configuration);
            } catch (RuntimeException failed) {
                reader.close();
                codecs.release();
                throw failed;
            }
        }

        private static Rows of(
                ParquetFileReader reader,
                CodecFactory codecs,
                AvroReadSupport<IndexedRecord> support,
                Configuration configuration)
                throws IOException {
            FileMetaData meta = reader.getFooter().getFileMetaData();
            ReadContext context = support.init(configuration, meta.getKeyValueMetaData(), meta.getSchema());
            MessageType requested = context.getRequestedSchema();
            if (!requested.getFields().stream().allMatch(column -> has(meta.getSchema(), column))) {
                reader.close();
                codecs.release();
                return null;
            }
            reader.setRequestedSchema(requested);
            return new Rows(
                    reader,
                    codecs,
                    new ColumnIOFactory(meta.getCreatedBy()).getColumnIO(requested, meta.getSchema()),
                    support.prepareForRead(configuration, meta.getKeyValueMetaData(), meta.getSchema(), context));
        }

        @Override
        public boolean hasNext() {
            try {
                for (PageReadStore group; left == 0 && (group = reader.readNextRowGroup()) != null; ) {
                    ofGroup = columns.getRecordReader(group, materializer);
                    left = group.getRowCount();
                }
            } catch (IOException failed) {
                throw new UncheckedIOException(failed);
            }
            return left > 0;
        }

        @Override
        public IndexedRecord next() {
            if (!hasNext()) {
                throw new NoSuchElementException();
            }
            left--;
            return ofGroup.read();
        }

        @Override
        public void close() {
            try {
                reader.close();
            } catch (IOException failed) {
                throw new UncheckedIOException(failed);
            }
            codecs.release();
        }
    }

    /** A file's content in Parquet's interface. */
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
