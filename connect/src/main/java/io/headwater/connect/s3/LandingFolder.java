package io.headwater.connect.s3;

import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.OptionalLong;
import java.util.regex.Pattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.errors.ConnectException;

/**
 * The landing objects of one partition, {@code PREFIX/TOPIC/PARTITION/FIRST-OFFSET.jsonl.gz}: they tile its offsets.
 */
final class LandingFolder {
    /** The key of an object's user metadata that holds the offset after its range. */
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
     * Writes an object unless another one begins at the same offset.
     *
     * @return false if another one begins there; see {@link #endOf}
     */
    boolean put(LandingObject object) {
        return store.putIfAbsent(
                key(object.first()), object.body(), Map.of(NEXT_OFFSET, Long.toString(object.next())));
    }

    /** Returns the offset after the stored object that begins at {@code first}. */
    long endOf(long first) {
        String key = key(first);
        Map<String, String> metadata = store.metadata(key).orElseThrow(() -> new TransientStoreException(
                key + " is missing, although S3 has just reported it: check who deletes landing objects", null));
        String next = metadata.get(NEXT_OFFSET);
        if (next == null || !next.matches("[0-9]{1,19}") || Long.parseLong(next) <= first) {
            throw new ConnectException(key + " has metadata " + NEXT_OFFSET + " = " + next + ", expected an offset above "
                    + first + ": this object was not written by the sink. Move it away and restart the task.");
        }
        return Long.parseLong(next);
    }

    /** Returns the offset after all stored objects, or empty if there is none. */
    OptionalLong end() {
        OptionalLong newest = newest();
        return newest.isEmpty() ? newest : OptionalLong.of(endOf(newest.getAsLong()));
    }

    /**
     * Returns the first offset of the newest object.
     *
     * <p>S3 lists only in ascending order. Names are offsets, so a search finds the newest object without reading the
     * whole history. The search advances in steps that double until no object comes after. Then it halves the remaining
     * range, until one page reaches the end.
     */
    private OptionalLong newest() {
        FolderPage page = after(folder);
        if (page.newest < 0) {
            return OptionalLong.empty();
        }
        long low = page.newest; // an object begins at this offset
        long high = Long.MAX_VALUE; // no object begins after this offset
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
     * One page of the folder's listing.
     *
     * @param newest first offset of the last object on the page, or -1 if it has none
     * @param last whether nothing comes after the page
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
