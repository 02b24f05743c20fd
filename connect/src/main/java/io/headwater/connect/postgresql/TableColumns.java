package io.headwater.connect.postgresql;

import java.util.Map;
import java.util.Set;

/**
 * A captured table in PostgreSQL's catalogue at one time.
 *
 * @param hiddenAs the table's columns by their names, each with the names under which its contract hides it. If a column
 *     was renamed since, the two names differ
 * @param required the columns that are NOT NULL
 * @param identity what PostgreSQL logs of a row before a change, of the table and all its partitions
 */
record TableColumns(Map<String, Set<String>> hiddenAs, Set<String> required, Identity identity) {
    /** REPLICA IDENTITY USING INDEX of the table or of a partition; FULL of all; any other. */
    enum Identity {
        INDEX,
        FULL,
        OTHER
    }
}
