package io.headwater.debezium;

import static io.headwater.decoding.LeftToCarefulDecoder.LEFT;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.databind.JsonNode;
import io.headwater.debezium.Rest.Path;
import io.headwater.decoding.JsonText;
import io.headwater.decoding.OwnColumns;
import io.headwater.decoding.Scalars;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.unsafe.types.UTF8String;

/** Reads a table's change events into Spark's internal rows, by a plan of its columns. */
final class ChangeEvents {
    /** Debezium's value for an unknown timestamp with time zone in a column that accepts no null. */
    private static final String NO_INSTANT = "1970-01-01T00:00:00Z";

    private final String schema;
    private final String table;
    private final int epoch;
    private final boolean drops;
    private final OwnColumns own;
    private final Map<String, SourceColumn> sources = new HashMap<>();
    /** The masked columns in lower case, and whether their values are HMACs; otherwise the values are null. */
    private final Map<String, Boolean> masked = new HashMap<>();

    private final List<Place> places = new ArrayList<>();
    private final Set<String> placeSources = new HashSet<>();

    /** Takes the plan of {@code usual_changes.py}. */
    ChangeEvents(JsonNode plan) {
        schema = plan.get("schema").asText();
        table = plan.get("table").asText();
        epoch = plan.get("epoch").asInt();
        drops = plan.get("drops").asBoolean();
        own = new OwnColumns(plan);
        plan.get("masked").fields().forEachRemaining(mask ->
                masked.put(mask.getKey(), mask.getValue().asBoolean()));
        plan.get("excluded").forEach(name -> source(name.asText()).isExcluded = true);
        for (JsonNode column : plan.get("columns")) {
            SourceColumn source = source(column.get("source").asText());
            int count = source.at.length;
            source.at = Arrays.copyOf(source.at, count + 1);
            source.converters = Arrays.copyOf(source.converters, count + 1);
            source.at[count] = column.get("at").asInt();
            source.converters[count] = Converter.of(column.get("convert"));
        }
        plan.get("documents").fields().forEachRemaining(document -> {
            SourceColumn source = source(document.getKey());
            source.inside = new Inside(document.getValue(), source.path);
        });
        for (JsonNode column : plan.get("places")) {
            SourceColumn source = source(column.get("source").asText());
            Place place = new Place(
                    places.size(),
                    column.get("at").asInt(),
                    source,
                    Converter.of(column.get("convert")),
                    column.get("key").asBoolean(),
                    column.get("partition").asBoolean());
            places.add(place);
            source.places.add(place);
            source.isKey |= place.isKey();
            placeSources.add(source.path.name());
        }
    }

    private SourceColumn source(String name) {
        return sources.computeIfAbsent(name, unknown -> new SourceColumn(unknown, sources.size()));
    }

    /** Returns the row that leaves a record to the reference decoder. */
    InternalRow left(String raw) {
        return own.left(raw);
    }

    /** Converts a landed line to its row; null for a Kafka tombstone. */
    InternalRow decode(String where, byte[] buffer, int start, int length) throws IOException {
        LandedLine line = LandedLine.of(buffer, start, length, epoch);
        if (line.rekeyed()) {
            throw LEFT;
        }
        return line.value() == null ? null : decode(where, line);
    }

    /** Converts a record with a value to its row. */
    InternalRow decode(String where, LandedLine line) throws IOException {
        return read(where + "/" + line.offset(), line);
    }

    private static <T> T once(T before, T now) {
        if (before != null) {
            throw LEFT;
        }
        return now;
    }

    private static void atEnd(JsonParser parser) throws IOException {
        if (parser.nextToken() != null) {
            throw LEFT;
        }
    }

    private InternalRow read(String position, LandedLine line) throws IOException {
        Change change = new Change();
        change.mayHaveCodes = JsonText.check(line.value());
        try (JsonParser event = JsonText.READER.createParser(line.value())) {
            if (event.nextToken() != JsonToken.START_OBJECT) {
                throw LEFT;
            }
            while (event.nextToken() != JsonToken.END_OBJECT) {
                String name = event.currentName();
                event.nextToken();
                switch (name) {
                    case "op" -> change.op = once(change.op, Scalars.text(event));
                    case "source" -> readSource(event, change);
                    case "before" -> readBefore(event, change);
                    case "after" -> readAfter(event, change);
                    // The row was too large for its event.
                    case "refused" -> throw LEFT;
                    default -> event.skipChildren();
                }
            }
            atEnd(event);
        }
        return finish(change, position, line);
    }

    /**
     * Works like {@link JsonText#check}. Here a backslash, or the letter after a backslash, may be written as its code.
     */
    private static void checkPairs(char[] text, int offset, int length) {
        for (int at = offset; at < offset + length - 2; at++) {
            if (text[at] == '\\' && text[at + 1] == 'u' && (text[at + 2] | 32) == 'd') {
                throw LEFT;
            }
        }
    }

    private void readSource(JsonParser event, Change change) throws IOException {
        if (change.isSourceRead || event.currentToken() != JsonToken.START_OBJECT) {
            throw LEFT;
        }
        change.isSourceRead = true;
        String itsSchema = null;
        String itsTable = null;
        while (event.nextToken() != JsonToken.END_OBJECT) {
            String name = event.currentName();
            JsonToken token = event.nextToken();
            switch (name) {
                // If a name occurs twice, the last occurrence counts, as in Python.
                case "schema" -> itsSchema = Scalars.text(event);
                case "table" -> itsTable = Scalars.text(event);
                case "snapshot" -> change.snapshot = token == JsonToken.VALUE_NULL ? null : Scalars.text(event);
                case "sequence" -> change.sequence = token == JsonToken.VALUE_NULL ? null : Scalars.text(event);
                case "lsn" -> change.lsn = token == JsonToken.VALUE_NULL ? -1 : Converter.integer(event);
                case "ts_us" -> change.micros = Converter.integer(event);
                case "ts_ms" -> change.millis = Converter.integer(event);
                default -> event.skipChildren();
            }
        }
        change.isOurs = schema.equals(itsSchema) && table.equals(itsTable);
    }

    private void readBefore(JsonParser event, Change change) throws IOException {
        if (change.isBeforeRead) {
            throw LEFT;
        }
        change.isBeforeRead = true;
        if (event.currentToken() == JsonToken.VALUE_NULL) {
            return;
        }
        if (event.currentToken() != JsonToken.START_OBJECT) {
            throw LEFT;
        }
        Object[] before = new Object[places.size()];
        boolean[] seen = new boolean[before.length];
        while (event.nextToken() != JsonToken.END_OBJECT) {
            String name = event.currentName();
            JsonToken token = event.nextToken();
            SourceColumn source = sources.get(name);
            if (source == null || source.places.isEmpty()) {
                event.skipChildren();
                continue;
            }
            checkMask(name, event);
            for (Place place : source.places) {
                if (seen[place.number()]) {
                    throw LEFT;
                }
                seen[place.number()] = true;
                if (token != JsonToken.VALUE_NULL) {
                    before[place.number()] = place.converter().read(event, null, source.path);
                }
            }
            change.mayLackPlace |= !source.isKey && isNothing(event);
        }
        for (Place place : places) {
            if (!seen[place.number()]) {
                throw LEFT;
            }
            Scalars.checkPlace(before[place.number()], place.isKey(), place.isPartition());
        }
        change.placeBefore = before;
    }

    /** Whether a value is Debezium's placeholder for an unknown value. */
    private static boolean isNothing(JsonParser value) throws IOException {
        return switch (value.currentToken()) {
            case VALUE_NULL -> true;
            case VALUE_NUMBER_INT -> value.getText().equals("0");
            case VALUE_STRING -> value.getTextLength() == 0 || value.getText().equals(NO_INSTANT);
            default -> false;
        };
    }

    private void readAfter(JsonParser event, Change change) throws IOException {
        if (change.isAfterRead) {
            throw LEFT;
        }
        change.isAfterRead = true;
        if (event.currentToken() == JsonToken.VALUE_NULL) {
            return;
        }
        if (event.currentToken() != JsonToken.START_OBJECT) {
            throw LEFT;
        }
        Object[] row = new Object[own.width()];
        change.rest = new Rest(drops);
        boolean[] seen = new boolean[sources.size()];
        while (event.nextToken() != JsonToken.END_OBJECT) {
            String name = event.currentName();
            JsonToken token = event.nextToken();
            SourceColumn source = sources.get(name);
            if (source != null) {
                if (seen[source.number]) {
                    throw LEFT;
                }
                seen[source.number] = true;
                if (source.isExcluded) {
                    event.skipChildren();
                    continue;
                }
            }
            checkMask(name, event);
            if (source == null && token.isStructStart()) {
                String text = JsonText.of(event, false, 0);
                if (Placeholder.isIn(text)) {
                    throw LEFT;
                }
                change.rest.put(new Path(name), text);
                continue;
            }
            if (token == JsonToken.VALUE_STRING && Placeholder.is(event)) {
                throw LEFT;
            }
            if (source == null) {
                change.rest.take(new Path(name), event, false);
                continue;
            }
            if (token == JsonToken.VALUE_NULL) {
                continue;
            }
            // An array can be read only once.
            if (token == JsonToken.START_OBJECT || token == JsonToken.START_ARRAY && source.at.length != 1) {
                throw LEFT;
            }
            for (int at = 0; at < source.at.length; at++) {
                Object value = source.converters[at].read(event, change.rest, source.path);
                if (value instanceof GenericArrayData array && Placeholder.isIn(array.array())) {
                    throw LEFT;
                }
                row[source.at[at]] = value;
            }
            if (source.inside != null) {
                if (token != JsonToken.VALUE_STRING) {
                    throw LEFT;
                }
                char[] text = event.getTextCharacters();
                if (change.mayHaveCodes) {
                    checkPairs(text, event.getTextOffset(), event.getTextLength());
                }
                try (JsonParser document =
                        JsonText.READER.createParser(text, event.getTextOffset(), event.getTextLength())) {
                    if (document.nextToken() == null) {
                        throw LEFT;
                    }
                    source.inside.read(document, row, change.rest);
                    atEnd(document);
                }
            }
        }
        for (Place place : places) {
            if (!seen[place.source().number]) {
                throw LEFT;
            }
            Scalars.checkPlace(row[place.at()], place.isKey(), place.isPartition());
        }
        change.row = row;
    }

    /** Refuses an unmasked value of a column that the contract masks. */
    private void checkMask(String name, JsonParser value) throws IOException {
        Boolean isHmac = masked.isEmpty() ? null : masked.get(name.toLowerCase(Locale.ROOT));
        if (isHmac == null || value.currentToken() == JsonToken.VALUE_NULL) {
            return;
        }
        String text = Scalars.text(value);
        boolean isMask = isHmac && text.length() == 64;
        for (int at = 0; isMask && at < text.length(); at++) {
            char letter = text.charAt(at);
            isMask = letter >= '0' && letter <= '9' || letter >= 'a' && letter <= 'f';
        }
        if (!isMask) {
            throw LEFT;
        }
    }

    private InternalRow finish(Change change, String position, LandedLine line) throws IOException {
        if (change.op == null || !change.isOurs || change.lsn < 0 && !isIncremental(change)) {
            throw LEFT;
        }
        boolean isRead = change.op.equals("r");
        if (isRead && change.snapshot != null && change.snapshot.startsWith("last")) {
            throw LEFT;
        }
        long[] lsns = lsns(change.sequence);
        long lsn = change.lsn;
        if (isIncremental(change)) {
            if (lsns == null || lsns[1] < 0) {
                throw LEFT;
            }
            lsn = lsns[1];
            isRead = false;
        }
        long commit = isRead || lsns == null || lsns[0] < 0 ? lsn : lsns[0];
        String order = order(line.epoch(), isRead, commit, lsn);
        boolean isDelete = change.op.equals("d");
        Object[] row = isDelete ? new Object[own.width()] : change.row;
        switch (change.op) {
            case "d" -> {
                // The reference decoder finds out whether the image has more than its key.
                if (change.placeBefore == null || change.mayLackPlace) {
                    throw LEFT;
                }
                for (Place place : places) {
                    row[place.at()] = change.placeBefore[place.number()];
                }
            }
            case "c", "r", "u" -> {
                if (row == null) {
                    throw LEFT;
                }
                if (change.op.equals("u")) {
                    checkNotMoved(change, line.key());
                }
            }
            default -> throw LEFT;
        }
        int further = own.fill(row, change.op, order, micros(change), position, isDelete, order);
        if (!isDelete) {
            String rest = change.rest.text();
            row[further] = rest == null ? null : UTF8String.fromString(rest);
        }
        return new GenericInternalRow(row);
    }

    private static boolean isIncremental(Change change) {
        return "r".equals(change.op) && "incremental".equals(change.snapshot);
    }

    /** Leaves updates to the reference decoder if they move the row, or lack its old location. */
    private void checkNotMoved(Change change, byte[] key) throws IOException {
        Set<String> primaryKey = names(key);
        if (change.placeBefore == null) {
            if (!primaryKey.containsAll(placeSources)) {
                throw LEFT;
            }
            return;
        }
        for (Place place : places) {
            Object before = change.placeBefore[place.number()];
            if (!Objects.equals(before, change.row[place.at()])) {
                throw LEFT;
            }
        }
    }

    private static Set<String> names(byte[] key) throws IOException {
        Set<String> names = new HashSet<>();
        if (key == null) {
            return names;
        }
        JsonText.check(key);
        try (JsonParser document = JsonText.READER.createParser(key)) {
            if (document.nextToken() != JsonToken.START_OBJECT) {
                throw LEFT;
            }
            while (document.nextToken() != JsonToken.END_OBJECT) {
                names.add(document.currentName());
                document.nextToken();
                document.skipChildren();
            }
            atEnd(document);
        }
        return names;
    }

    /** Returns the two LSNs of {@code source.sequence}, -1 for null; null if there is no sequence. */
    private static long[] lsns(String sequence) throws IOException {
        if (sequence == null) {
            return null;
        }
        long[] lsns = new long[2];
        try (JsonParser list = JsonText.READER.createParser(sequence)) {
            if (list.nextToken() != JsonToken.START_ARRAY) {
                throw LEFT;
            }
            for (int at = 0; at < 2; at++) {
                if (list.nextToken() == JsonToken.VALUE_NULL) {
                    lsns[at] = -1;
                } else {
                    lsns[at] = lsn(Scalars.text(list));
                }
            }
            if (list.nextToken() != JsonToken.END_ARRAY) {
                throw LEFT;
            }
            atEnd(list);
        }
        return lsns;
    }

    private static long lsn(String digits) {
        if (digits.isEmpty() || digits.length() > 18) {
            throw LEFT;
        }
        long number = 0;
        for (int at = 0; at < digits.length(); at++) {
            char digit = digits.charAt(at);
            if (digit < '0' || digit > '9') {
                throw LEFT;
            }
            number = number * 10 + digit - '0';
        }
        return number;
    }

    private static String order(int epoch, boolean isSnapshot, long commit, long lsn) {
        char[] digits = new char[46];
        Scalars.put(digits, 0, 4, epoch);
        digits[4] = isSnapshot ? '0' : '1';
        Scalars.put(digits, 5, 25, commit);
        Scalars.put(digits, 25, 45, lsn);
        digits[45] = '1';
        return new String(digits);
    }

    private static long micros(Change change) {
        long micros = change.micros;
        if (micros == Long.MIN_VALUE) {
            if (change.millis < Scalars.FIRST_MICROS / 1000 || change.millis > Scalars.LAST_MICROS / 1000) {
                throw LEFT;
            }
            micros = change.millis * 1000;
        }
        if (micros < Scalars.FIRST_MICROS || micros > Scalars.LAST_MICROS) {
            throw LEFT;
        }
        return micros;
    }

    /** A source column, and the lake's columns that take its value. */
    private static final class SourceColumn {
        final Path path;
        final int number;
        boolean isExcluded;
        int[] at = {};
        Converter[] converters = {};
        Inside inside;
        final List<Place> places = new ArrayList<>();
        boolean isKey;

        SourceColumn(String name, int number) {
            path = new Path(name);
            this.number = number;
        }
    }

    /** A column of key or partition: its number among these columns, and its index in the row. */
    private record Place(
            int number, int at, SourceColumn source, Converter converter, boolean isKey, boolean isPartition) {}

    /** A JSON document, or a member of one. Columns take it as a whole, or take members inside it. */
    private static final class Inside {
        final Path path;
        final int at;
        final Converter whole;
        final Map<String, Inside> members = new HashMap<>();

        Inside(JsonNode plan, Path path) {
            this.path = path;
            at = plan.path("at").asInt(-1);
            whole = at < 0 ? null : Converter.of(plan.get("convert"));
            plan.path("members")
                    .fields()
                    .forEachRemaining(member ->
                            members.put(member.getKey(), new Inside(member.getValue(), path.member(member.getKey()))));
        }

        void read(JsonParser value, Object[] row, Rest rest) throws IOException {
            if (whole != null) {
                if (value.currentToken() != JsonToken.VALUE_NULL) {
                    row[at] = whole.read(value, rest, path);
                }
            } else if (value.currentToken() == JsonToken.VALUE_NULL) {
                rest.take(path, value, true);
            } else if (value.currentToken() != JsonToken.START_OBJECT) {
                throw LEFT;
            } else {
                Set<String> seen = new HashSet<>();
                while (value.nextToken() != JsonToken.END_OBJECT) {
                    String name = value.currentName();
                    Inside member = members.get(name);
                    value.nextToken();
                    if (member == null) {
                        rest.take(path.member(name), value, true);
                    } else if (seen.add(name)) {
                        member.read(value, row, rest);
                    } else {
                        throw LEFT;
                    }
                }
            }
        }
    }

    /** The state of one record during its decoding. */
    private static final class Change {
        boolean mayHaveCodes;
        String op;
        boolean isSourceRead;
        boolean isOurs;
        String snapshot;
        String sequence;
        long lsn = -1;
        long micros = Long.MIN_VALUE;
        long millis = Long.MIN_VALUE;
        boolean isBeforeRead;
        boolean isAfterRead;
        /** The values of key and partition before the change; null if there is no image. */
        Object[] placeBefore;
        /** Whether a partition column outside the key may have no value in that image. */
        boolean mayLackPlace;

        Object[] row;
        Rest rest;
    }
}
