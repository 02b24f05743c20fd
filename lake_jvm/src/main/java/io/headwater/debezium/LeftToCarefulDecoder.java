package io.headwater.debezium;

/** Says that a record is not decoded here: whatever is the matter, the decoder in Python finds out. */
final class LeftToCarefulDecoder extends RuntimeException {
    static final LeftToCarefulDecoder LEFT = new LeftToCarefulDecoder();

    private LeftToCarefulDecoder() {
        super("left to the careful decoder", null, false, false);
    }
}
