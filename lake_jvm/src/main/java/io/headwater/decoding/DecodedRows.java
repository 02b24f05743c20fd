package io.headwater.decoding;

import java.util.Iterator;
import org.apache.spark.sql.catalyst.InternalRow;

/** Rows that are decoded when the caller takes them, among them the rows of records left to the reference decoder. */
public interface DecodedRows extends Iterator<InternalRow> {
    /** Returns the size in bytes of the records read so far. */
    long bytes();
}
