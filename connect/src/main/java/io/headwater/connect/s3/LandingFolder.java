package io.headwater.connect.s3;

import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.OptionalLong;
import java.util.regex.Pattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.errors.ConnectException;

/** The objects of one partition, {@code PREFIX/TOPIC/PARTITION/FIRST-OFFSET.jsonl.gz}: they tile its offsets. */
final class LandingFolder {
    /** User metadata of an object: the offset after its range. */
    static final String NEXT_OFFSET = "next-offset";

    private static final String SUFFIX = ".jsonl.gz";
    private static final int DIGITS = 20;
    private static final Pattern NAME = Pattern.compile("0[0-9]{" + (DIGITS - 1) + "}" + Pattern.quote(SUFFIX));

    private final ObjectStore store;
    private final String folder;

    LandingFolder(ObjectStore store, String prefix, TopicPartition partition) {
        this.store = store;
        this.folder = prefix + "/" + partition.topic() + "/" + partition.partition() + "/";
    }

    /**
     * Writes an object unless one begins at the same offset.
     *
     * @return false when one does; see {@link #endOf}
     */
    boolean put(LandingObject object) {
        return store.putIfAbsent(
                key(object.first()), object.body(), Map.of(NEXT_OFFSET, Long.toString(object.next())));
    }

    /** Returns the offset after the stored object that begins at {@code first}. */
    long endOf(long first) {
        String key = key(first);
        Map<String, String> metadata = store.metadata(key).orElseThrow(() -> new TransientStoreException(
                key + " is not there, though the store has just named it: is someone deleting landing objects?", null));
        String next = metadata.get(NEXT_OFFSET);
        if (next == null || !next.matches("[0-9]{1,19}") || Long.parseLong(next) <= first) {
            throw new ConnectException(key + " has metadata " + NEXT_OFFSET + " = " + next + ", expected an offset above "
                    + first + ": this object was not written by the sink. Move it away and restart the task.");
        }
        return Long.parseLong(next);
    }

    /** Returns the offset after everything stored, or empty when nothing is. */
    OptionalLong end() {
        OptionalLong newest = newest();
        return newest.isEmpty() ? newest : OptionalLong.of(endOf(newest.getAsLong()));
    }

    /**
     * Returns the first offset of the newest object.
     *
     * <p>S3 lists in ascending order only. Names are offsets, so a search finds the newest without reading the whole
     * history. It goes on in steps that double until nothing comes after. Then it halves the rest, until one page
     * reaches the end.
     */
    private OptionalLong newest() {
        FolderPage page = after(folder);
        if (page.newest < 0) {
            return OptionalLong.empty();
        }
        long low = page.newest; // an object begins here
        long high = Long.MAX_VALUE; // none begins after this
        for (long step = 1; !page.last && high == Long.MAX_VALUE && step > 0; step *= 2) {
            long probe = low > Long.MAX_VALUE - step ? Long.MAX_VALUE : low + step;
            page = after(key(probe));
            if (page.newest < 0) {
                high = probe;
            } else {
                low = page.newest;
            }
        }
        while (!page.last || page.newest < 0) {
            long middle = low + (high - low) / 2;
            page = after(key(middle));
            if (page.newest >= 0) {
                low = page.newest;
                high = Math.max(high, low); // another task may be writing meanwhile
            } else if (middle == low) {
                break;
            } else {
                high = middle;
            }
        }
        return OptionalLong.of(low);
    }

    /**
     * One page of the folder.
     *
     * @param newest first offset of the last object on it, or -1 when it has none
     * @param last nothing comes after the page
     */
    private record FolderPage(long newest, boolean last) {}

    private FolderPage after(String startAfter) {
        ObjectStore.Page listed = store.list(folder, startAfter);
        List<String> names = listed.keys().stream()
                .map(key -> key.substring(folder.length()))
                .filter(name -> NAME.matcher(name).matches())
                .toList();
        long newest = names.isEmpty() ? -1 : Long.parseLong(names.get(names.size() - 1).substring(0, DIGITS));
        return new FolderPage(newest, !listed.truncated());
    }

    private String key(long offset) {
        return folder + String.format(Locale.ROOT, "%0" + DIGITS + "d", offset) + SUFFIX;
    }
}
