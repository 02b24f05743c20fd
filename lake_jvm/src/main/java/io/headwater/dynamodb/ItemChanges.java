package io.headwater.dynamodb;

import static io.headwater.decoding.LeftToCarefulDecoder.LEFT;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.databind.JsonNode;
import io.headwater.decoding.JsonText;
import io.headwater.decoding.OwnColumns;
import io.headwater.decoding.Scalars;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.unsafe.types.UTF8String;

/** Reads the changes of a table's items into Spark's internal rows, by a plan of its columns. */
final class ItemChanges {
    private static final int ORDER_DIGITS = 81;
    private static final int TIE_DIGITS = 56;
    private static final BigInteger TIES = BigInteger.TEN.pow(TIE_DIGITS);
    private static final UTF8String BY_CLIENT = UTF8String.fromString("client");
    private static final UTF8String BY_TIME_TO_LIVE = UTF8String.fromString("ttl");

    private final String table;
    private final int epoch;
    private final boolean drops;
    private final OwnColumns own;
    private final Object[] blank;
    private final Map<String, Attribute> attributes = new HashMap<>();
    private final List<String> reserved = new ArrayList<>();
    /** The attributes of key and partition, each once. */
    private final List<Place> places = new ArrayList<>();

    private final Map<String, Integer> partitionAttributes = new HashMap<>();
    private final Map<String, Integer> keyAttributes = new HashMap<>();

    /** Takes the plan of {@code usual_items.py}. */
    ItemChanges(JsonNode plan) {
        table = plan.get("table").asText();
        epoch = plan.get("epoch").asInt();
        drops = plan.get("drops").asBoolean();
        own = new OwnColumns(plan);
        blank = new Object[own.width()];
        for (JsonNode absent : plan.get("absent")) {
            blank[absent.get("at").asInt()] = UTF8String.fromString(absent.get("text").asText());
        }
        plan.get("excluded").forEach(name -> attributes.put(name.asText(), new Attribute(attributes.size())));
        plan.get("attributes")
                .fields()
                .forEachRemaining(attribute -> attributes.put(
                        attribute.getKey(), new Attribute(attributes.size(), attribute.getValue())));
        plan.get("reserved").forEach(prefix -> reserved.add(prefix.asText()));
        for (JsonNode place : plan.get("places")) {
            String name = place.get("attribute").asText();
            boolean isPartition = place.get("partition").asBoolean();
            boolean isKey = place.get("key").asBoolean();
            if (isPartition) {
                partitionAttributes.putIfAbsent(name, partitionAttributes.size());
                attributes.get(name).partition = partitionAttributes.get(name);
            }
            if (isKey) {
                keyAttributes.putIfAbsent(name, keyAttributes.size());
            }
            places.add(new Place(
                    place.get("at").asInt(),
                    name,
                    place.get("tag").asText(),
                    Conversion.of(place.get("convert")),
                    isKey,
                    isPartition));
        }
    }

    /** Returns the row that leaves a record to the reference decoder. */
    InternalRow left(String raw) {
        return own.left(raw);
    }

    /** Converts a record to its row. */
    InternalRow decode(StreamRecord record) throws IOException {
        byte[] data = record.data();
        if (data == null
                || record.sequence() == null
                || record.position() == null
                || record.position().isEmpty()) {
            throw LEFT;
        }
        JsonText.check(data);
        Change change = new Change(data);
        try (JsonParser json = JsonText.READER.createParser(data)) {
            if (json.nextToken() != JsonToken.START_OBJECT) {
                throw LEFT;
            }
            Once once = new Once();
            while (json.nextToken() != JsonToken.END_OBJECT) {
                String name = json.currentName();
                json.nextToken();
                switch (name) {
                    case "tableName" -> {
                        once.see(0);
                        if (!Scalars.text(json).equals(table)) {
                            throw LEFT;
                        }
                        change.isOurs = true;
                    }
                    case "eventName" -> {
                        once.see(1);
                        change.event = Scalars.text(json);
                    }
                    case "userIdentity" -> {
                        once.see(2);
                        change.isTimeToLive = isTimeToLive(json);
                    }
                    case "dynamodb" -> {
                        once.see(3);
                        readChange(json, change);
                    }
                    case "eventID" -> {
                        once.see(4);
                        change.id = Scalars.text(json);
                    }
                    default -> json.skipChildren();
                }
            }
            if (json.nextToken() != null) {
                throw LEFT;
            }
        }
        return finish(change, record);
    }

    /** Whether {@code userIdentity}, which is null or an object of texts, names DynamoDB's time to live. */
    private static boolean isTimeToLive(JsonParser json) throws IOException {
        if (json.currentToken() == JsonToken.VALUE_NULL) {
            return false;
        }
        if (json.currentToken() != JsonToken.START_OBJECT) {
            throw LEFT;
        }
        boolean isService = false;
        boolean isDynamo = false;
        while (json.nextToken() != JsonToken.END_OBJECT) {
            String name = json.currentName();
            json.nextToken();
            String value = Scalars.text(json);
            switch (name) {
                case "type" -> isService = value.equals("Service");
                case "principalId" -> isDynamo = value.equals("dynamodb.amazonaws.com");
                default -> {}
            }
        }
        return isService && isDynamo;
    }

    private void readChange(JsonParser json, Change change) throws IOException {
        if (json.currentToken() != JsonToken.START_OBJECT) {
            throw LEFT;
        }
        Once once = new Once();
        while (json.nextToken() != JsonToken.END_OBJECT) {
            String name = json.currentName();
            JsonToken token = json.nextToken();
            switch (name) {
                case "ApproximateCreationDateTime" -> {
                    once.see(0);
                    if (token != JsonToken.VALUE_NUMBER_INT
                            || json.getNumberType() == JsonParser.NumberType.BIG_INTEGER
                            || json.getLongValue() < 0
                            || json.getText().startsWith("-")) {
                        throw LEFT;
                    }
                    change.time = json.getLongValue();
                }
                case "ApproximateCreationDateTimePrecision" -> {
                    once.see(1);
                    if (token != JsonToken.VALUE_NULL) {
                        change.precision = Scalars.text(json);
                    }
                }
                case "Keys" -> {
                    once.see(2);
                    change.keys = slices(json, keyAttributes);
                }
                case "OldImage" -> {
                    once.see(3);
                    change.oldImage = slices(json, partitionAttributes);
                }
                case "NewImage" -> {
                    once.see(4);
                    if (token != JsonToken.VALUE_NULL) {
                        readImage(json, change);
                    }
                }
                default -> json.skipChildren();
            }
        }
    }

    /** Returns begin and end of the image's attributes by their numbers; null if there is no image of that name. */
    private static int[] slices(JsonParser json, Map<String, Integer> names) throws IOException {
        if (json.currentToken() == JsonToken.VALUE_NULL) {
            return null;
        }
        if (json.currentToken() != JsonToken.START_OBJECT) {
            throw LEFT;
        }
        int[] slices = new int[2 * names.size()];
        while (json.nextToken() != JsonToken.END_OBJECT) {
            Integer number = names.isEmpty() ? null : names.get(json.currentName());
            json.nextToken();
            if (number == null) {
                json.skipChildren();
                continue;
            }
            if (slices[2 * number + 1] != 0) {
                throw LEFT;
            }
            slices[2 * number] = Conversion.startOf(json);
            json.skipChildren();
            slices[2 * number + 1] = endOf(json);
        }
        return slices;
    }

    /** Returns the position after the object at whose end the parser stands. */
    private static int endOf(JsonParser json) {
        if (json.currentToken() != JsonToken.END_OBJECT) {
            throw LEFT;
        }
        return Conversion.endOf(json);
    }

    private void readImage(JsonParser json, Change change) throws IOException {
        if (json.currentToken() != JsonToken.START_OBJECT) {
            throw LEFT;
        }
        change.row = blank.clone();
        change.partition = new int[2 * partitionAttributes.size()];
        Once once = new Once();
        while (json.nextToken() != JsonToken.END_OBJECT) {
            String name = json.currentName();
            if (json.nextToken() != JsonToken.START_OBJECT) {
                throw LEFT;
            }
            int start = Conversion.startOf(json);
            Attribute attribute = attributes.get(name);
            if (attribute == null) {
                once.see(name);
                json.skipChildren();
                checkPlain(name);
                change.leave(null, name, start, endOf(json));
                continue;
            }
            once.see(attribute.number);
            if (attribute.isExcluded) {
                json.skipChildren();
                continue;
            }
            attribute.read(json, start, change);
            if (attribute.partition >= 0) {
                change.partition[2 * attribute.partition] = start;
                change.partition[2 * attribute.partition + 1] = endOf(json);
            }
        }
        for (Place place : places) {
            place.check(change.row[place.at()]);
        }
    }

    /** Leaves a record to the reference decoder if it has a name that could be read as a path. */
    private void checkPlain(String name) {
        if (name.startsWith("\"")) {
            throw LEFT;
        }
        for (String prefix : reserved) {
            if (name.startsWith(prefix)) {
                throw LEFT;
            }
        }
    }

    private InternalRow finish(Change change, StreamRecord record) throws IOException {
        if (!change.isOurs || change.event == null) {
            throw LEFT;
        }
        String order = order(change, sequenceDigits(record.sequence()));
        String op;
        switch (change.event) {
            case "INSERT" -> op = "c";
            case "MODIFY" -> op = "u";
            case "REMOVE" -> op = "d";
            default -> throw LEFT;
        }
        boolean isDelete = op.equals("d");
        if (!isDelete && change.row == null
                || !op.equals("c") && change.oldImage == null && !partitionAttributes.isEmpty()) {
            throw LEFT;
        }
        if (op.equals("u")) {
            checkNotMoved(change);
        }
        Object[] row = isDelete ? place(change) : change.row;
        String id = own.isHistory() ? order(change, eventDigits(change.id)) : order;
        int further = own.fill(row, op, order, change.micros(), record.position(), isDelete, id);
        if (isDelete) {
            row[further] = change.isTimeToLive ? BY_TIME_TO_LIVE : BY_CLIENT;
        } else {
            row[further + 1] = drops ? null : change.rest();
        }
        return new GenericInternalRow(row);
    }

    /** Leaves an update to the reference decoder if it moves the item to another location. */
    private void checkNotMoved(Change change) throws IOException {
        boolean isSame = true;
        for (int at = 0; at < change.partition.length; at += 2) {
            isSame &= Arrays.equals(
                    change.data,
                    change.partition[at],
                    change.partition[at + 1],
                    change.data,
                    change.oldImage[at],
                    change.oldImage[at + 1]);
        }
        if (isSame) {
            return;
        }
        Object[] before = place(change);
        for (Place place : places) {
            if (!Objects.equals(before[place.at()], change.row[place.at()])) {
                throw LEFT;
            }
        }
    }

    /** Returns a row with only key and partition, from the item before the change. */
    private Object[] place(Change change) throws IOException {
        if (change.keys == null) {
            throw LEFT;
        }
        Object[] row = new Object[blank.length];
        for (Place place : places) {
            int[] slices = place.isKey() ? change.keys : change.oldImage;
            int number = (place.isKey() ? keyAttributes : partitionAttributes).get(place.attribute());
            row[place.at()] = place.read(change.data, slices[2 * number], slices[2 * number + 1], blank[place.at()]);
            place.check(row[place.at()]);
        }
        return row;
    }

    /** Returns the order of a change; {@code tie} distinguishes changes of the same time. */
    private String order(Change change, String tie) {
        char[] digits = new char[ORDER_DIGITS];
        Arrays.fill(digits, '0');
        Scalars.put(digits, 0, 4, epoch);
        Scalars.put(digits, 4, 24, change.micros());
        digits[24] = '1';
        tie.getChars(0, tie.length(), digits, ORDER_DIGITS - tie.length());
        return new String(digits);
    }

    private static String sequenceDigits(String sequence) {
        if (sequence.isEmpty()
                || sequence.length() > TIE_DIGITS
                || !sequence.chars().allMatch(digit -> '0' <= digit && digit <= '9')) {
            throw LEFT;
        }
        return sequence;
    }

    /** Returns digits that are the same for each repetition of an event. */
    private static String eventDigits(String id) {
        if (id == null || id.isEmpty() || !StandardCharsets.US_ASCII.newEncoder().canEncode(id)) {
            throw LEFT;
        }
        try {
            byte[] digest = MessageDigest.getInstance("SHA-256").digest(id.getBytes(StandardCharsets.US_ASCII));
            return new BigInteger(1, digest).mod(TIES).toString();
        } catch (NoSuchAlgorithmException missing) {
            throw new IllegalStateException(missing);
        }
    }

    /** An attribute of an item, or of a map whose members columns take. */
    private static final class Attribute {
        /** The attribute's number among the attributes of its item or map. */
        private final int number;

        private final boolean isExcluded;
        /** The attribute's number among the attributes of the partition; -1 for any other attribute. */
        private int partition = -1;

        private final byte[] opening;
        private final String path;
        private final boolean inParts;
        private final int[] at;
        private final String[] tags;
        private final Conversion[] conversions;
        private final Map<String, Attribute> members = new HashMap<>();

        /** Returns an excluded attribute. */
        Attribute(int number) {
            this.number = number;
            isExcluded = true;
            opening = new byte[0];
            path = "";
            inParts = false;
            at = new int[0];
            tags = new String[0];
            conversions = new Conversion[0];
        }

        Attribute(int number, JsonNode plan) {
            this.number = number;
            isExcluded = false;
            opening = plan.get("opening").asText().getBytes(StandardCharsets.UTF_8);
            path = plan.get("path").asText();
            inParts = plan.get("in_parts").asBoolean();
            JsonNode columns = plan.get("columns");
            at = new int[columns.size()];
            tags = new String[at.length];
            conversions = new Conversion[at.length];
            for (int column = 0; column < at.length; column++) {
                at[column] = columns.get(column).get("at").asInt();
                tags[column] = columns.get(column).get("tag").asText();
                conversions[column] = Conversion.of(columns.get(column).get("convert"));
            }
            plan.get("members")
                    .fields()
                    .forEachRemaining(member ->
                            members.put(member.getKey(), new Attribute(members.size(), member.getValue())));
        }

        /** Reads the typed value at whose beginning the parser stands, to its end. */
        void read(JsonParser json, int start, Change change) throws IOException {
            String tag = Conversion.tagOf(json);
            if (Conversion.isNull(tag, json)) {
                Conversion.end(json);
                change.leave(opening, null, start, endOf(json));
                return;
            }
            if (at.length == 0) {
                if (!tag.equals("M") || json.currentToken() != JsonToken.START_OBJECT) {
                    throw LEFT;
                }
                readMembers(json, change);
            }
            for (int column = 0; column < at.length; column++) {
                if (!tag.equals(tags[column])) {
                    throw LEFT;
                }
                Leftovers left = inParts ? new Leftovers(path) : null;
                change.row[at[column]] = conversions[column].read(json, change.data, left);
                if (inParts) {
                    change.leaveAtEnd(left);
                }
            }
            Conversion.end(json);
        }

        private void readMembers(JsonParser json, Change change) throws IOException {
            Once once = new Once();
            boolean isEmpty = true;
            while (json.nextToken() != JsonToken.END_OBJECT) {
                isEmpty = false;
                String name = json.currentName();
                if (json.nextToken() != JsonToken.START_OBJECT) {
                    throw LEFT;
                }
                int start = Conversion.startOf(json);
                Attribute member = members.get(name);
                if (member != null) {
                    once.see(member.number);
                    member.read(json, start, change);
                    continue;
                }
                once.see(name);
                if (name.indexOf('.') >= 0 || name.indexOf('"') >= 0) {
                    throw LEFT;
                }
                json.skipChildren();
                change.leave(null, path + "." + name, start, endOf(json));
            }
            if (isEmpty) {
                throw LEFT;
            }
        }
    }

    /** A column of key or partition. */
    private record Place(int at, String attribute, String tag, Conversion conversion, boolean isKey, boolean isPartition) {
        /** Returns the content of a typed value; {@code absent} if there is none. */
        Object read(byte[] data, int start, int end, Object absent) throws IOException {
            if (end == 0) {
                return absent;
            }
            try (JsonParser json = JsonText.READER.createParser(data, start, end - start)) {
                json.nextToken();
                String its = Conversion.tagOf(json);
                Object value = absent;
                if (its.equals(tag)) {
                    value = conversion.read(json, data, null);
                } else if (!Conversion.isNull(its, json)) {
                    throw LEFT;
                }
                Conversion.end(json);
                return value;
            }
        }

        void check(Object value) {
            Scalars.checkPlace(value, isKey, isPartition);
        }
    }

    /** The state of one record during its decoding. */
    private static final class Change {
        final byte[] data;
        boolean isOurs;
        String event;
        String id;
        boolean isTimeToLive;
        long time = -1;
        String precision = "MILLISECOND";
        /** Begin and end of each attribute of the key, and of the partition before and after the change. */
        int[] keys;

        int[] oldImage;
        int[] partition;
        Object[] row;
        private ByteArrayOutputStream rest;
        private List<Leftovers.Entry> atEnd = List.of();

        Change(byte[] data) {
            this.data = data;
        }

        long micros() {
            long unit;
            switch (precision) {
                case "MICROSECOND" -> unit = 1;
                case "MILLISECOND" -> unit = 1000;
                default -> throw LEFT;
            }
            if (time < 0 || time > Scalars.LAST_MICROS / unit) {
                throw LEFT;
            }
            return time * unit;
        }

        /** Adds an attribute's text to {@code _rest}, after an opening bracket or after a name. */
        void leave(byte[] opening, String name, int start, int end) {
            begin();
            if (opening == null) {
                StringBuilder quoted = new StringBuilder();
                JsonText.quote(quoted, name);
                rest.writeBytes(quoted.append(':').toString().getBytes(StandardCharsets.UTF_8));
            } else {
                rest.writeBytes(opening);
            }
            rest.write(data, start, end - start);
        }

        private void begin() {
            if (rest == null) {
                rest = new ByteArrayOutputStream(256);
                rest.write('{');
            } else {
                rest.write(',');
            }
        }

        /** Adds the leftovers of an attribute to the end of {@code _rest}. */
        void leaveAtEnd(Leftovers left) {
            if (!left.entries().isEmpty()) {
                atEnd = atEnd.isEmpty() ? new ArrayList<>() : atEnd;
                atEnd.addAll(left.entries());
            }
        }

        UTF8String rest() {
            for (Leftovers.Entry entry : atEnd) {
                leave(null, entry.path(), entry.start(), entry.end());
            }
            if (rest == null) {
                return null;
            }
            rest.write('}');
            return UTF8String.fromBytes(rest.toByteArray());
        }
    }
}
