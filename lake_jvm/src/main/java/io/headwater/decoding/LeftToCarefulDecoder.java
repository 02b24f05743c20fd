package io.headwater.decoding;

/** Says that a record is not decoded here: whatever is the matter, the decoder in Python finds out. */
public final class LeftToCarefulDecoder extends RuntimeException {
    public static final LeftToCarefulDecoder LEFT = new LeftToCarefulDecoder();

    private LeftToCarefulDecoder() {
        super("left to the careful decoder", null, false, false);
    }
}
