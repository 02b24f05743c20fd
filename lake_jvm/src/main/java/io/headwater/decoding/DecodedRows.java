package io.headwater.decoding;

import java.util.Iterator;
import org.apache.spark.sql.catalyst.InternalRow;

/** Rows that are decoded when the caller takes them. A record that is left to the careful decoder comes among them. */
public interface DecodedRows extends Iterator<InternalRow> {
    /** How many bytes the records had that are read. */
    long bytes();
}
