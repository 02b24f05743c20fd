package io.headwater.decoding;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.util.functional.FutureIO;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.util.SerializableConfiguration;

/** Reads stored objects on the executors. The task that decodes an object reads the whole object. */
public final class StoredObjects {
    private StoredObjects() {}

    /** An object: its name and its content. */
    public record Content(String name, byte[] bytes) {}

    /** Reads objects in at most that many tasks. {@code objects} is JSON: a list, not empty, of names and addresses. */
    public static JavaRDD<Content> read(SparkSession session, String objects, int parallelism) {
        List<String[]> listed = new ArrayList<>();
        for (JsonNode object : JsonText.parsed(objects)) {
            listed.add(new String[] {object.get(0).asText(), object.get(1).asText()});
        }
        JavaSparkContext spark = JavaSparkContext.fromSparkContext(session.sparkContext());
        Broadcast<SerializableConfiguration> settings =
                spark.broadcast(new SerializableConfiguration(spark.hadoopConfiguration()));
        return spark.parallelize(listed, Math.min(listed.size(), parallelism))
                .map(object -> content(object[0], object[1], settings.value().value()));
    }

    private static Content content(String name, String address, Configuration settings) throws IOException {
        Path path = new Path(address);
        FileSystem files = path.getFileSystem(settings);
        // The store is queried for the size, which may differ from an earlier listing: erased rows are cut out of
        // objects. S3A refuses an object that changes during the read, and its batch is read again.
        try (FSDataInputStream stored = FutureIO.awaitFuture(files.openFile(path)
                .opt("fs.option.openfile.read.policy", "whole-file")
                .build())) {
            return new Content(name, stored.readAllBytes());
        }
    }
}
