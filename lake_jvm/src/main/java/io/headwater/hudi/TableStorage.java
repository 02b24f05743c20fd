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
 * A table's storage for its only writer.
 *
 * <p>It writes a delta commit's files without a check whether they exist. It reads recently written log files from
 * memory: a compaction merges them soon after, and would send S3 four requests for each.
 */
class TableStorage extends HoodieHadoopStorage {
    private static final Recent RECENT = new Recent(64 << 20);
    /**
     * A larger file is read from S3: in memory it would displace many small files, and each of those saves as many
     * requests.
     */
    private static final int MOST_OF_ONE = 4 << 20;

    TableStorage(StoragePath path, StorageConfiguration<?> configuration) {
        super(path, configuration);
    }

    @Override
    public SeekableDataInputStream openSeekable(StoragePath path, int bufferSize, boolean wrapStream)
            throws IOException {
        byte[] content = RECENT.get(path);
        return content == null ? super.openSeekable(path, bufferSize, wrapStream) : new Read(new Place(content));
    }

    /** Hudi's readers copy the storage that they get, and change the copy's configuration. */
    @Override
    public HoodieStorage newInstance(StoragePath path, StorageConfiguration<?> configuration) {
        return new TableStorage(path, configuration);
    }

    /**
     * Creates a file, without a check for files that only this table's writer names.
     *
     * <p>A delta commit's files on the timeline have its instant's name, which only its writer uses. A compaction's
     * files may also be written by a writer that takes the table over and runs the compaction again.
     */
    @Override
    public OutputStream create(StoragePath path, boolean overwrite) throws IOException {
        String name = path.getName();
        boolean isOwn = name.endsWith(HoodieTimeline.DELTA_COMMIT_EXTENSION)
                || name.endsWith(HoodieTimeline.INFLIGHT_DELTA_COMMIT_EXTENSION);
        return isOwn ? createUnseen(path) : super.create(path, overwrite);
    }

    /** Creates a file without a check. By default S3A looks for a file and a folder of the name first. */
    OutputStream createUnseen(StoragePath path) throws IOException {
        FileSystem files = (FileSystem) getFileSystem();
        FSDataOutputStreamBuilder<?, ?> file = files.createFile(HadoopFSUtils.convertToHadoopPath(path));
        file.overwrite(true).recursive();
        file.opt("fs.s3a.create.performance", true);
        return file.build();
    }

    @Override
    public boolean deleteFile(StoragePath path) throws IOException {
        RECENT.forget(path);
        return super.deleteFile(path);
    }

    /** Returns the storage for log files that do not exist yet. */
    TableStorage forLogFiles() {
        return new LogFiles(new StoragePath(getUri()), getConf());
    }

    private static final class LogFiles extends TableStorage {
        LogFiles(StoragePath path, StorageConfiguration<?> configuration) {
            super(path, configuration);
        }

        @Override
        public boolean exists(StoragePath path) {
            return false;
        }

        @Override
        public OutputStream create(
                StoragePath path, boolean overwrite, Integer bufferSize, Short replication, Long sizeThreshold)
                throws IOException {
            return new Kept(path, createUnseen(path));
        }
    }

    /** Writes a file, and keeps its bytes in memory once all are written, unless the file is large. */
    private static final class Kept extends FilterOutputStream {
        private final StoragePath path;
        /** The bytes so far; null once some are unknown or too many. */
        private ByteArrayOutputStream content = new ByteArrayOutputStream();

        Kept(StoragePath path, OutputStream file) {
            super(file);
            this.path = path;
        }

        @Override
        public void write(int one) throws IOException {
            write(new byte[] {(byte) one}, 0, 1);
        }

        @Override
        public void write(byte[] bytes, int from, int length) throws IOException {
            ByteArrayOutputStream before = content;
            content = null;
            out.write(bytes, from, length);
            if (before != null && before.size() + length <= MOST_OF_ONE) {
                before.write(bytes, from, length);
                content = before;
            }
        }

        @Override
        public void close() throws IOException {
            ByteArrayOutputStream whole = content;
            content = null;
            out.close();
            if (whole != null) {
                RECENT.put(path, whole.toByteArray());
            }
        }
    }

    /** A position in a content. */
    static final class Place extends ByteArrayInputStream {
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

    /** Reads a content through Hudi's interface. */
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

    /** The contents written last, of all tables; the oldest are dropped when their total size exceeds the limit. */
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

        synchronized void forget(StoragePath path) {
            byte[] content = contents.remove(path);
            bytes -= content == null ? 0 : content.length;
        }

        synchronized void put(StoragePath path, byte[] content) {
            forget(path);
            contents.put(path, content);
            bytes += content.length;
            for (Iterator<byte[]> oldest = contents.values().iterator(); bytes > most; oldest.remove()) {
                bytes -= oldest.next().length;
            }
        }
    }
}
