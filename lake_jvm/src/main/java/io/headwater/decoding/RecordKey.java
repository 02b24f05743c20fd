package io.headwater.decoding;

/** Record keys whose buckets Hudi finds: {@code _hashable} of {@code changes.py}, which says what Hudi does to others. */
public final class RecordKey {
    private RecordKey() {}

    /** A key as it is, or, where Hudi would look for its parts for good, with its colons as JSON may have them. */
    public static String hashable(String key) {
        int last = key.lastIndexOf(':');
        if (last < 0 || key.indexOf(',') < 0) {
            return key;
        }
        int comma = key.lastIndexOf(',', last);
        boolean ends = key.indexOf(':', comma + 1) == last
                || key.startsWith("_key:", comma + 1) && key.lastIndexOf(':', comma) >= 0;
        return ends ? key : key.replace(":", "\\u003a");
    }
}
