package io.headwater.dynamodb;

import static io.headwater.decoding.LeftToCarefulDecoder.LEFT;

import java.util.HashSet;
import java.util.Set;

/** Checks that no name of an object occurs twice. Known names are given by their numbers, others by their texts. */
final class Once {
    private static final int BITS = 64;

    private long seen;
    private Set<Integer> high;
    private Set<String> others;

    void see(int number) {
        if (number >= BITS) {
            high = high == null ? new HashSet<>() : high;
            if (!high.add(number)) {
                throw LEFT;
            }
            return;
        }
        long bit = 1L << number;
        if ((seen & bit) != 0) {
            throw LEFT;
        }
        seen |= bit;
    }

    void see(String name) {
        others = others == null ? new HashSet<>() : others;
        if (!others.add(name)) {
            throw LEFT;
        }
    }
}
