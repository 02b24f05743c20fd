package io.headwater.decoding;

import java.util.Iterator;
import org.apache.spark.sql.catalyst.InternalRow;

/** Rows that are decoded as they are asked for; among them, records that are left. */
public interface DecodedRows extends Iterator<InternalRow> {
    /** How many bytes the records had that are read. */
    long bytes();
}
