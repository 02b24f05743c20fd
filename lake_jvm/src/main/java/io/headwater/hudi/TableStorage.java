package io.headwater.hudi;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hudi.common.table.timeline.HoodieTimeline;
import org.apache.hudi.hadoop.fs.HadoopFSUtils;
import org.apache.hudi.io.SeekableDataInputStream;
import org.apache.hudi.storage.HoodieStorage;
import org.apache.hudi.storage.StorageConfiguration;
import org.apache.hudi.storage.StoragePath;
import org.apache.hudi.storage.hadoop.HoodieHadoopStorage;

/**
 * A table's storage for its one writer. It looks less whether a file is there before it writes it, and reads the log files
 * that this driver has written lately from memory: a compaction merges them soon after, and would ask S3 four times for
 * each.
 */
class TableStorage extends HoodieHadoopStorage {
    private static final Recent RECENT = new Recent(64L << 20);

    TableStorage(HoodieStorage storage) {
        super((FileSystem) storage.getFileSystem());
    }

    private TableStorage(StoragePath path, StorageConfiguration<?> configuration) {
        super(path, configuration);
    }

    @Override
    public SeekableDataInputStream openSeekable(StoragePath path, int bufferSize, boolean wrapStream)
            throws IOException {
        byte[] content = RECENT.get(path);
        return content == null ? super.openSeekable(path, bufferSize, wrapStream) : new Read(new Place(content));
    }

    /** Hudi's readers make one of their own of what they are given, with a configuration that they change. */
    @Override
    public HoodieStorage newInstance(StoragePath path, StorageConfiguration<?> configuration) {
        return new TableStorage(path, configuration);
    }

    /** Only of a requested instant can there be another writer's: what follows has its name, or one of its own. */
    @Override
    public OutputStream create(StoragePath path, boolean overwrite) throws IOException {
        return path.getName().endsWith(HoodieTimeline.REQUESTED_EXTENSION)
                ? super.create(path, overwrite)
                : createUnseen(path);
    }

    /** S3A would look for a file, and for a folder; where it knows the option, it looks for neither. */
    private OutputStream createUnseen(StoragePath path) throws IOException {
        FileSystem files = (FileSystem) getRawStorage().getFileSystem();
        FSDataOutputStreamBuilder<?, ?> file = files.createFile(HadoopFSUtils.convertToHadoopPath(path));
        file.overwrite(true).recursive();
        file.opt("fs.s3a.create.performance", true);
        return file.build();
    }

    /** For log files. */
    TableStorage forLogFiles() {
        return new LogFiles(this);
    }

    private static final class LogFiles extends TableStorage {
        LogFiles(HoodieStorage storage) {
            super(storage);
        }

        @Override
        public boolean exists(StoragePath path) {
            return false;
        }

        @Override
        public OutputStream create(
                StoragePath path, boolean overwrite, Integer bufferSize, Short replication, Long sizeThreshold)
                throws IOException {
            return new Kept(path, create(path, overwrite));
        }
    }

    /** Writes a file, and keeps what it is made of once it is whole. */
    private static final class Kept extends FilterOutputStream {
        private final StoragePath path;
        private final ByteArrayOutputStream content = new ByteArrayOutputStream();
        private boolean isClosed;

        Kept(StoragePath path, OutputStream file) {
            super(file);
            this.path = path;
        }

        @Override
        public void write(int one) throws IOException {
            out.write(one);
            content.write(one);
        }

        @Override
        public void write(byte[] bytes, int from, int length) throws IOException {
            out.write(bytes, from, length);
            content.write(bytes, from, length);
        }

        @Override
        public void close() throws IOException {
            if (!isClosed) {
                isClosed = true;
                out.close();
                RECENT.put(path, content.toByteArray());
            }
        }
    }

    /** A place in a content. */
    private static final class Place extends ByteArrayInputStream {
        Place(byte[] content) {
            super(content);
        }

        long position() {
            return pos;
        }

        void seek(long to) throws EOFException {
            if (to < 0 || to > count) {
                throw new EOFException("found the position " + to + ", expected one from 0 to " + count);
            }
            pos = (int) to;
        }
    }

    /** Reads a content, for Hudi. */
    private static final class Read extends SeekableDataInputStream {
        private final Place place;

        Read(Place place) {
            super(place);
            this.place = place;
        }

        @Override
        public long getPos() {
            return place.position();
        }

        @Override
        public void seek(long to) throws EOFException {
            place.seek(to);
        }
    }

    /** The contents that were written last, all tables' together; the oldest go where they would be more bytes. */
    private static final class Recent {
        private final long most;
        private final Map<StoragePath, byte[]> contents = new LinkedHashMap<>();
        private long bytes;

        Recent(long most) {
            this.most = most;
        }

        synchronized byte[] get(StoragePath path) {
            return contents.get(path);
        }

        synchronized void put(StoragePath path, byte[] content) {
            byte[] before = contents.put(path, content);
            bytes += content.length - (before == null ? 0 : before.length);
            for (Iterator<byte[]> oldest = contents.values().iterator(); bytes > most; oldest.remove()) {
                bytes -= oldest.next().length;
            }
        }
    }
}
