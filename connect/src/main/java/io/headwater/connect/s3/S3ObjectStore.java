package io.headwater.connect.s3;

import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.function.Supplier;
import java.util.zip.CRC32;
import org.apache.kafka.connect.errors.ConnectException;
import software.amazon.awssdk.awscore.exception.AwsServiceException;
import software.amazon.awssdk.core.checksums.RequestChecksumCalculation;
import software.amazon.awssdk.core.checksums.ResponseChecksumValidation;
import software.amazon.awssdk.core.exception.SdkClientException;
import software.amazon.awssdk.core.exception.SdkServiceException;
import software.amazon.awssdk.core.retry.RetryUtils;
import software.amazon.awssdk.core.sync.RequestBody;
import software.amazon.awssdk.http.apache.ApacheHttpClient;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.retries.DefaultRetryStrategy;
import software.amazon.awssdk.services.s3.S3Client;
import software.amazon.awssdk.services.s3.S3ClientBuilder;
import software.amazon.awssdk.services.s3.S3Configuration;
import software.amazon.awssdk.services.s3.model.HeadObjectRequest;
import software.amazon.awssdk.services.s3.model.ListObjectsV2Request;
import software.amazon.awssdk.services.s3.model.ListObjectsV2Response;
import software.amazon.awssdk.services.s3.model.PutObjectRequest;
import software.amazon.awssdk.services.s3.model.S3Object;

/** One bucket of S3, or of another store with S3's API and conditional writes. */
final class S3ObjectStore implements ObjectStore {
    private static final Duration CALL_TIMEOUT = Duration.ofSeconds(60);
    private static final int NOT_FOUND = 404;
    private static final int REQUEST_TIMEOUT = 408;
    private static final int CONFLICT = 409;
    private static final int PRECONDITION_FAILED = 412;
    private static final int SERVER_ERROR = 500;

    /** The error codes of status 400 for a request that was damaged on its way. */
    private static final Set<String> DAMAGED =
            Set.of("BadDigest", "XAmzContentSHA256Mismatch", "IncompleteBody", "RequestTimeout");

    private final S3Client client;
    private final String bucket;

    private S3ObjectStore(S3Client client, String bucket) {
        this.client = client;
        this.bucket = bucket;
    }

    /** Opens the configured bucket; sends no request yet. */
    static S3ObjectStore of(S3SinkConfig config) {
        S3ClientBuilder builder = S3Client.builder()
                .region(Region.of(config.getString(S3SinkConfig.REGION)))
                .httpClientBuilder(ApacheHttpClient.builder())
                // The task spaces its retries itself, so that it keeps polling Kafka between them.
                .overrideConfiguration(override -> override
                        .retryStrategy(DefaultRetryStrategy.doNotRetry())
                        .apiCallTimeout(CALL_TIMEOUT))
                // A put carries the CRC of the whole body itself; trailers and chunks would add nothing to it.
                .requestChecksumCalculation(RequestChecksumCalculation.WHEN_REQUIRED)
                .responseChecksumValidation(ResponseChecksumValidation.WHEN_REQUIRED)
                .serviceConfiguration(S3Configuration.builder()
                        .chunkedEncodingEnabled(false)
                        .pathStyleAccessEnabled(config.endpoint().isPresent())
                        .build());
        config.endpoint().ifPresent(builder::endpointOverride);
        return new S3ObjectStore(builder.build(), config.getString(S3SinkConfig.BUCKET));
    }

    @Override
    public boolean putIfAbsent(String key, byte[] body, Map<String, String> metadata) {
        PutObjectRequest request = PutObjectRequest.builder()
                .bucket(bucket)
                .key(key)
                .ifNoneMatch("*")
                .contentType("application/gzip")
                .checksumCRC32(crc32(body))
                .metadata(metadata)
                .build();
        try {
            call("put", key, () -> client.putObject(request, RequestBody.fromBytes(body)));
            return true;
        } catch (RefusedException e) {
            if (e.status == PRECONDITION_FAILED) {
                return false;
            }
            throw e;
        }
    }

    @Override
    public Optional<Map<String, String>> metadata(String key) {
        HeadObjectRequest request = HeadObjectRequest.builder().bucket(bucket).key(key).build();
        try {
            return Optional.of(call("head", key, () -> client.headObject(request)).metadata());
        } catch (RefusedException e) {
            if (e.status == NOT_FOUND) {
                return Optional.empty();
            }
            throw e;
        }
    }

    @Override
    public Page list(String prefix, String startAfter) {
        ListObjectsV2Request request = ListObjectsV2Request.builder()
                .bucket(bucket).prefix(prefix).startAfter(startAfter).build();
        ListObjectsV2Response response = call("list", prefix, () -> client.listObjectsV2(request));
        List<String> keys = response.contents().stream().map(S3Object::key).toList();
        return new Page(keys, Boolean.TRUE.equals(response.isTruncated()));
    }

    @Override
    public void close() {
        client.close();
    }

    private <T> T call(String verb, String key, Supplier<T> request) {
        String what = "S3 " + verb + " s3://" + bucket + "/" + key;
        try {
            return request.get();
        } catch (SdkServiceException e) {
            String message = what + " was refused: " + e.getMessage();
            if (isTransient(e)) {
                throw new TransientStoreException(message, e);
            }
            throw new RefusedException(message, e);
        } catch (SdkClientException e) {
            throw new TransientStoreException(what + " got no answer: " + e.getMessage(), e);
        }
    }

    private static boolean isTransient(SdkServiceException e) {
        return e.statusCode() >= SERVER_ERROR
                || e.statusCode() == CONFLICT // two conditional writes of the same key collided
                || e.statusCode() == REQUEST_TIMEOUT
                || RetryUtils.isThrottlingException(e)
                || RetryUtils.isClockSkewException(e) // the client corrects its clock from the answer
                || DAMAGED.contains(code(e));
    }

    private static String code(SdkServiceException e) {
        return e instanceof AwsServiceException aws && aws.awsErrorDetails() != null
                ? String.valueOf(aws.awsErrorDetails().errorCode()) : "";
    }

    private static String crc32(byte[] body) {
        CRC32 crc = new CRC32();
        crc.update(body);
        return Base64.getEncoder().encodeToString(ByteBuffer.allocate(Integer.BYTES).putInt((int) crc.getValue()).array());
    }

    /** An error that no retry will mend. */
    private static final class RefusedException extends ConnectException {
        private static final long serialVersionUID = 1L;
        private final int status;

        RefusedException(String message, SdkServiceException cause) {
            super(message, cause);
            this.status = cause.statusCode();
        }
    }
}
