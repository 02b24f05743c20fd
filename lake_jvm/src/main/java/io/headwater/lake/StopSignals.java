package io.headwater.lake;

import java.util.List;
import sun.misc.Signal;

/** The signals that ask a job to stop. They do not end the JVM; {@code came} says whether one has come. */
public final class StopSignals {
    private volatile boolean came;

    /** Handles SIGTERM and SIGINT from now on. */
    public StopSignals() {
        for (String name : List.of("TERM", "INT")) {
            Signal.handle(new Signal(name), signal -> came = true);
        }
    }

    /** Whether one of the signals has come. */
    public boolean came() {
        return came;
    }
}
