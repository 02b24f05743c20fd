package io.headwater.connect.s3;

/** The object store could not answer; the same request may succeed later. */
final class TransientStoreException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    TransientStoreException(String message, Throwable cause) {
        super(message, cause);
    }
}
