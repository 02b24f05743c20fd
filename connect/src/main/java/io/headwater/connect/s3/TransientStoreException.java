package io.headwater.connect.s3;

/** The object store could not answer now; the same request may work later. */
final class TransientStoreException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    TransientStoreException(String message, Throwable cause) {
        super(message, cause);
    }
}
