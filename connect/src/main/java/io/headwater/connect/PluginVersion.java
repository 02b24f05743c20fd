package io.headwater.connect;

import java.util.Objects;

/** The version that the plugin's jar was built with. */
public final class PluginVersion {
    private PluginVersion() {}

    /** Returns the version in the manifest of the class's jar, or {@code unpackaged} outside a jar. */
    public static String of(Class<?> type) {
        return Objects.requireNonNullElse(type.getPackage().getImplementationVersion(), "unpackaged");
    }
}
