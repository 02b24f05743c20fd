package io.headwater.connect.postgresql;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.debezium.data.Envelope;
import io.headwater.connect.postgresql.TableColumns.Identity;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.function.BiFunction;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.header.Headers;
import org.apache.kafka.connect.source.SourceRecord;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Removes and masks columns before a record leaves the connector: in the rows before and after a change, in its key, and
 * in its headers. It trusts no name of Debezium's. If the contract of a table hides anything, the guard removes each column
 * that PostgreSQL's catalogue does not have under its name.
 *
 * <p>A contract hides a column in four ways. It excludes the column, or wants only others ({@code include}). Or it
 * masks it by null or by {@code hmac}, the HMAC-SHA-256 of a text's UTF-8 in lower-case hexadecimal digits. The lake's
 * side makes the same masks in {@code headwater/contract/masks.py}. Names are compared without regard to capitals. A
 * column that has another name by now stays hidden: the catalogue knows it by its number.
 *
 * <p>A value that is masked by {@code hmac} and is not a text becomes null: its column has changed its type. Debezium's
 * placeholder for an unchanged TOASTed value stays what it is.
 *
 * <p>It also marks the updates and deletes of a table with REPLICA IDENTITY USING INDEX. PostgreSQL does not log the
 * primary key of a row before these, so nobody knows whether it has changed.
 */
final class ColumnGuard {
    /** The columns to remove, as JSON: {@code {"schema.table": ["column", …]}}. */
    static final String EXCLUDED_CONFIG = "headwater.exclude.columns";
    /** The only columns of these tables to keep, as JSON of the same form. */
    static final String INCLUDED_CONFIG = "headwater.include.columns";
    /** The columns to mask, as JSON: {@code {"schema.table": {"column": "hmac" or null}}}. */
    static final String MASKED_CONFIG = "headwater.mask.columns";
    /** The key, needed if there is an {@code hmac}. Debezium's log hides settings whose names end with "secret". */
    static final String KEY_CONFIG = "headwater.mask.secret";
    /** The header of an update or a delete whose old key is not known. */
    static final String IDENTITY_HEADER = "headwater.identity";
    /** Begins a line of the log, which an alarm counts. */
    static final String UNCONFIRMED = "A column is not confirmed";

    private static final Logger LOG = LoggerFactory.getLogger(ColumnGuard.class);
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String PREFIX_CONFIG = "topic.prefix";
    private static final String OLD_KEY_HEADER = "__debezium.oldkey";
    static final String PLACEHOLDER = "__debezium_unavailable_value";
    private static final String HMAC = "hmac";
    private static final String ALGORITHM = "HmacSHA256";
    private static final int SHORTEST_KEY = 32;

    private enum Treatment {
        KEEP,
        REMOVE,
        NULL,
        BY_HMAC
    }

    private final String prefix;
    private final Map<String, Rules> rules = new HashMap<>();
    private final BiFunction<String, Set<String>, TableColumns> catalogue;
    private final Mac mac;
    private final Map<String, Plan> plans = new HashMap<>();

    /**
     * {@code catalogue} returns PostgreSQL's columns of a table, {@code schema.table}, at the time of the call. It records
     * which of them have the names of hidden ones. Raises ConnectException if a setting is not as above, or the
     * key is shorter than 32 bytes.
     */
    ColumnGuard(Map<String, String> config, BiFunction<String, Set<String>, TableColumns> catalogue) {
        this.catalogue = catalogue;
        prefix = config.get(PREFIX_CONFIG) + ".";
        Map<String, List<String>> excluded = parse(config, EXCLUDED_CONFIG, new TypeReference<>() {});
        Map<String, List<String>> included = parse(config, INCLUDED_CONFIG, new TypeReference<>() {});
        Map<String, Map<String, String>> masked = parse(config, MASKED_CONFIG, new TypeReference<>() {});
        excluded.forEach((table, names) -> rulesOf(table).excluded.addAll(folded(names)));
        included.forEach((table, names) -> rulesOf(table).included = folded(names));
        masked.forEach((table, columns) ->
                columns.forEach((name, how) -> rulesOf(table).masked.put(fold(name), treatment(how))));
        boolean isKeyed = rules.values().stream().anyMatch(table -> table.masked.containsValue(Treatment.BY_HMAC));
        mac = isKeyed ? mac(config.getOrDefault(KEY_CONFIG, "").getBytes(StandardCharsets.UTF_8)) : null;
    }

    private static <T> Map<String, T> parse(
            Map<String, String> config, String name, TypeReference<Map<String, T>> type) {
        String json = config.get(name);
        try {
            return json == null ? Map.of() : JSON.readValue(json, type);
        } catch (JsonProcessingException e) {
            throw new ConnectException(name + ": found " + json + ", expected columns by table, as JSON", e);
        }
    }

    private Rules rulesOf(String table) {
        return rules.computeIfAbsent(table, name -> new Rules());
    }

    private static Treatment treatment(String how) {
        if (how != null && !how.equals(HMAC)) {
            throw new ConnectException(MASKED_CONFIG + ": found " + how + ", expected " + HMAC + " or null");
        }
        return how == null ? Treatment.NULL : Treatment.BY_HMAC;
    }

    private static Mac mac(byte[] key) {
        if (key.length < SHORTEST_KEY) {
            throw new ConnectException(
                    KEY_CONFIG + ": found " + key.length + " bytes, expected " + SHORTEST_KEY + " or more");
        }
        try {
            Mac mac = Mac.getInstance(ALGORITHM);
            mac.init(new SecretKeySpec(key, ALGORITHM));
            return mac;
        } catch (GeneralSecurityException e) {
            throw new ConnectException(ALGORITHM + " cannot be used", e);
        }
    }

    private static String fold(String name) {
        return name.toLowerCase(Locale.ROOT);
    }

    private static Set<String> folded(Iterable<String> names) {
        Set<String> folded = new HashSet<>();
        names.forEach(name -> folded.add(fold(name)));
        return folded;
    }

    /** The record as it may leave the connector; itself if nothing has to change. */
    SourceRecord apply(SourceRecord record) {
        if (!(record.value() instanceof Struct event) || !isChangeOfRow(record.valueSchema())) {
            return record;
        }
        Plan plan = plan(record.topic(), record.valueSchema());
        Headers headers = plan.headers(record.headers());
        Object key = record.key() instanceof Struct known ? plan.key(known) : record.key();
        if (losesOldKey(plan, event, record)) {
            headers = new ConnectHeaders(headers).addString(IDENTITY_HEADER, "index");
        }
        Struct sent = plan.event(event);
        if (sent == event && key == record.key() && headers == record.headers()) {
            return record;
        }
        Schema keySchema = key instanceof Struct known ? known.schema() : record.keySchema();
        return record.newRecord(
                record.topic(), record.kafkaPartition(), keySchema, key, sent.schema(), sent, record.timestamp(), headers);
    }

    private static boolean isChangeOfRow(Schema event) {
        Field after = event.field(Envelope.FieldName.AFTER);
        return after != null && after.schema().type() == Schema.Type.STRUCT;
    }

    /**
     * The plan of a table's records of one schema. Debezium makes a new schema whenever the table has changed, before the
     * table's next record, so the catalogue is read at that time.
     */
    private Plan plan(String topic, Schema event) {
        Plan known = plans.get(topic);
        if (known == null || known.source != event) {
            String table = topic.startsWith(prefix) ? topic.substring(prefix.length()) : topic;
            Rules hides = rules.get(table);
            TableColumns columns = catalogue.apply(table, hides == null ? Set.of() : hides.names());
            known = new Plan(table, event, hides, columns);
            plans.put(topic, known);
        }
        return known;
    }

    private static boolean losesOldKey(Plan plan, Struct event, SourceRecord record) {
        Header oldKey = record.headers().lastWithName(OLD_KEY_HEADER);
        boolean isUpdate = Envelope.Operation.UPDATE.code().equals(event.getString(Envelope.FieldName.OPERATION));
        boolean isDelete = Envelope.Operation.DELETE.code().equals(event.getString(Envelope.FieldName.OPERATION));
        if (!isUpdate && !isDelete && oldKey == null) {
            return false;
        }
        // With FULL there is always a row before. Without one, the table had another identity at the time of the change.
        boolean wasOther = plan.columns.identity() == Identity.FULL
                && isUpdate
                && event.getWithoutDefault(Envelope.FieldName.BEFORE) == null;
        return wasOther
                || plan.columns.identity() == Identity.INDEX
                || plan.lacks(record.key())
                || oldKey != null && plan.lacks(oldKey.value());
    }

    private String mask(Object value) {
        if (!(value instanceof String text)) {
            return null;
        }
        return text.equals(PLACEHOLDER)
                ? text
                : HexFormat.of().formatHex(mac.doFinal(text.getBytes(StandardCharsets.UTF_8)));
    }

    /** The columns that a table's contract hides, in lower case; {@code included} is null if it keeps all others. */
    private static final class Rules {
        private final Set<String> excluded = new HashSet<>();
        private final Map<String, Treatment> masked = new HashMap<>();
        private Set<String> included;

        /** The names of the columns that are excluded or masked. */
        private Set<String> names() {
            Set<String> names = new HashSet<>(excluded);
            names.addAll(masked.keySet());
            return names;
        }

        /** The treatment of a column that has or had these names, the present one first; null if no rule names it. */
        private Treatment of(List<String> names) {
            if (names.stream().anyMatch(excluded::contains)) {
                return Treatment.REMOVE;
            }
            Treatment unnamed = included != null && !included.contains(names.get(0)) ? Treatment.REMOVE : null;
            return names.stream().filter(masked::containsKey).map(masked::get).findFirst().orElse(unnamed);
        }
    }

    /** How records of a table with one schema are changed. */
    private final class Plan {
        private final Schema source;
        private final TableColumns columns;
        private final Map<String, Treatment> treatments = new HashMap<>();
        private final String table;
        private final Rules rules;
        /** The schemas of rows and events that are sent; null if rows stay as they are. */
        private Schema sentRow;
        private Schema sentEvent;

        Plan(String table, Schema source, Rules rules, TableColumns columns) {
            this.table = table;
            this.source = source;
            this.rules = rules;
            this.columns = columns;
            Schema row = source.field(Envelope.FieldName.AFTER).schema();
            if (rules == null || row.fields().stream().allMatch(column -> of(column.name()) == Treatment.KEEP)) {
                return;
            }
            SchemaBuilder sent = SchemaBuilder.struct().name(row.name()).optional();
            for (Field column : row.fields()) {
                if (of(column.name()) != Treatment.REMOVE) {
                    // A masked column loses its default, which would stand in for null, and would be in clear.
                    sent.field(
                            column.name(),
                            of(column.name()) == Treatment.KEEP ? column.schema() : Schema.OPTIONAL_STRING_SCHEMA);
                }
            }
            sentRow = sent.build();
            SchemaBuilder event = SchemaBuilder.struct().name(source.name());
            source.fields().forEach(field -> event.field(field.name(), isRow(field) ? sentRow : field.schema()));
            sentEvent = event.build();
        }

        private static boolean isRow(Field field) {
            return field.name().equals(Envelope.FieldName.BEFORE) || field.name().equals(Envelope.FieldName.AFTER);
        }

        private Treatment of(String column) {
            return rules == null ? Treatment.KEEP : treatments.computeIfAbsent(column, this::decide);
        }

        private Treatment decide(String column) {
            Set<String> former = columns.hiddenAs().get(column);
            List<String> names = new ArrayList<>(List.of(fold(column)));
            if (former != null) {
                former.stream().map(ColumnGuard::fold).sorted().forEach(names::add);
            }
            Treatment treatment = rules.of(names);
            if (treatment != null) {
                if (rules.of(names.subList(0, 1)) == null) {
                    LOG.warn("The hidden column {} of {} is called {} by now and stays hidden. Change its contract.",
                            former, table, column);
                }
                return treatment;
            }
            if (former == null) {
                LOG.error("{}: {}.{}: PostgreSQL's catalogue has no column of this name by now, and the table's contract "
                        + "hides columns: its values are left out", UNCONFIRMED, table, column);
                return Treatment.REMOVE;
            }
            // A column that the database has recorded, and this configuration does not know yet.
            return former.isEmpty() ? Treatment.KEEP : Treatment.REMOVE;
        }

        /** Whether a key lacks a value that its table always has. */
        private boolean lacks(Object key) {
            return key instanceof Struct struct
                    && struct.schema().fields().stream()
                            .map(Field::name)
                            .anyMatch(name -> columns.required().contains(name) && struct.getWithoutDefault(name) == null);
        }

        private Struct event(Struct event) {
            if (sentEvent == null) {
                return event;
            }
            Struct copy = new Struct(sentEvent);
            for (Field field : source.fields()) {
                Object value = event.getWithoutDefault(field.name());
                copy.put(field.name(), isRow(field) && value instanceof Struct row ? row(row) : value);
            }
            return copy;
        }

        private Struct row(Struct row) {
            Struct copy = new Struct(sentRow);
            for (Field column : sentRow.fields()) {
                Object value = row.getWithoutDefault(column.name());
                copy.put(column.name(), switch (of(column.name())) {
                    case BY_HMAC -> mask(value);
                    case NULL -> null;
                    default -> value;
                });
            }
            return copy;
        }

        /** The key without hidden columns: a primary key or a unique index in PostgreSQL may have such columns. */
        private Struct key(Struct key) {
            List<Field> kept = key.schema().fields().stream()
                    .filter(column -> of(column.name()) == Treatment.KEEP)
                    .toList();
            if (kept.size() == key.schema().fields().size()) {
                return key;
            }
            SchemaBuilder schema = SchemaBuilder.struct().name(key.schema().name());
            kept.forEach(column -> schema.field(column.name(), column.schema()));
            Struct copy = new Struct(schema.build());
            kept.forEach(column -> copy.put(column.name(), key.getWithoutDefault(column.name())));
            return copy;
        }

        /** The headers. Debezium puts the old and the new key of a row there when its primary key has changed. */
        private Headers headers(Headers headers) {
            ConnectHeaders sent = new ConnectHeaders();
            boolean isChanged = false;
            for (Header header : headers) {
                Object value = header.value() instanceof Struct key ? key(key) : header.value();
                isChanged |= value != header.value();
                sent.add(header.key(), value, value instanceof Struct key ? key.schema() : header.schema());
            }
            return isChanged ? sent : headers;
        }
    }
}
