package io.headwater.decoding;

/** Leaves a record to the reference decoder in Python, which finds the reason if the record is bad. */
public final class LeftToCarefulDecoder extends RuntimeException {
    public static final LeftToCarefulDecoder LEFT = new LeftToCarefulDecoder();

    private LeftToCarefulDecoder() {
        super("left to the reference decoder", null, false, false);
    }
}
