package io.headwater.connect.postgresql;

import io.debezium.bean.StandardBeanNames;
import io.debezium.bean.spi.BeanRegistry;
import io.debezium.config.Configuration;
import io.debezium.connector.postgresql.PostgresConnectorConfig;
import io.debezium.connector.postgresql.PostgresValueConverter;
import io.debezium.connector.postgresql.UnchangedToastedReplicationMessageColumn;
import io.debezium.connector.postgresql.connection.PostgresConnection;
import io.debezium.relational.Column;
import io.debezium.relational.CustomConverterRegistry;
import io.debezium.relational.TableId;
import io.debezium.relational.ValueConverter;
import io.debezium.service.spi.ServiceProvider;
import io.debezium.service.spi.ServiceRegistry;
import java.math.BigDecimal;
import java.math.MathContext;
import java.nio.charset.StandardCharsets;
import java.sql.Array;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.regex.Pattern;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;

/**
 * Debezium's converters, with three differences.
 *
 * <p>A null stays null. PostgreSQL may log only some columns of a row before a change, and a column may have become NOT
 * NULL since the change. Debezium alone turns the null into 0, an empty text or the default.
 *
 * <p>A value of a type that Debezium does not know, or changes, is PostgreSQL's text. An array that Debezium cannot carry
 * is an {@link UnfitArray}.
 */
final class ValueConverters extends CustomConverterRegistry {
    /** The OID of {@code bit}. */
    private static final int BITS = 1560;
    /** The OID of {@code numeric[]}. */
    private static final int NUMERICS = 1231;
    /**
     * The OIDs of {@code int2vector}, {@code oidvector}, {@code time[]}, {@code timetz[]}, {@code bit[]} and {@code bit
     * varying}. Debezium takes a vector for an array, drops the microseconds and the 24:00 of a time in an array, and
     * drops leading zeros of bits.
     */
    private static final Set<Integer> CHANGED = Set.of(22, 30, 1183, 1270, 1561, 1562);
    /** The driver's own classes for boxes, paths and the like. They print each number as Java does. */
    private static final String GEOMETRIC = "org.postgresql.geometric.";
    /** A number as Java prints it. */
    private static final Pattern NUMBER = Pattern.compile("-?\\d+\\.\\d+(E-?\\d+)?");
    /** PostgreSQL prints a number with an exponent from this power of ten on, and below the other power. */
    private static final int LARGE_EXPONENT = 15;
    private static final int SMALL_EXPONENT = -4;
    private static final int MOST_DIGITS = 17;

    /** An array in an array. PostgreSQL prints bounds before it if they do not begin with 1. */
    private static final Pattern NESTED = Pattern.compile("^(\\[.*?]=)?\\{\\{.*", Pattern.DOTALL);
    private static final Pattern NO_NUMBER = Pattern.compile("NaN|Infinity");

    private final BeanRegistry beans;
    private final PostgresConnectorConfig config;
    private PostgresValueConverter debezium;
    /** The column whose default Debezium converts next, with the converter of its values; null if none. */
    private Column defaulted;

    private ValueConverters(BeanRegistry beans, Configuration configuration) {
        super(List.of());
        this.beans = beans;
        // Debezium's own converter passes all values on, and makes bytes of the texts of types that it does not know.
        config = new PostgresConnectorConfig(configuration
                .edit()
                .with(PostgresConnectorConfig.INCLUDE_UNKNOWN_DATATYPES, false)
                .build());
    }

    @Override
    public synchronized Optional<SchemaBuilder> registerConverterFor(TableId table, Column column, Object defaultValue) {
        boolean isDefaulted = column.hasDefaultValue() && defaultValue != null;
        defaulted = isDefaulted ? column : null;
        return Optional.of(schema(column).optional());
    }

    @Override
    public synchronized Optional<ValueConverter> getValueConverter(TableId table, Column column) {
        if (column == defaulted) {
            // A null is no default, and a default might be a value that a contract hides.
            defaulted = null;
            return Optional.of(value -> null);
        }
        if (isText(column)) {
            return Optional.of(value -> value == null ? null : text(value));
        }
        Field field = new Field(column.name(), 0, schema(column).optional().build());
        ValueConverter known = debezium().converter(column, field);
        boolean isArray = field.schema().type() == Schema.Type.ARRAY;
        return Optional.of(value -> convert(column, isArray, known, value));
    }

    private SchemaBuilder schema(Column column) {
        if (isText(column)) {
            return SchemaBuilder.string();
        }
        SchemaBuilder known = debezium().schemaBuilder(column);
        // Debezium takes no null within an array of an enum.
        return known.type() == Schema.Type.ARRAY && known.valueSchema() instanceof SchemaBuilder element
                ? SchemaBuilder.array(element.optional().build())
                : known;
    }

    /** Whether values of this column are sent as PostgreSQL prints them. */
    private boolean isText(Column column) {
        int type = column.nativeType();
        return CHANGED.contains(type)
                || type == BITS && column.length() != 1
                || debezium().schemaBuilder(column) == null;
    }

    private PostgresValueConverter debezium() {
        if (debezium == null) {
            PostgresConnection connection =
                    beans.lookupByName(StandardBeanNames.JDBC_CONNECTION, PostgresConnection.class);
            debezium = PostgresValueConverter.of(config, StandardCharsets.UTF_8, connection.getTypeRegistry());
        }
        return debezium;
    }

    static Object convert(Column column, boolean isArray, ValueConverter debezium, Object value) {
        if (value == null) {
            return null;
        }
        if (isArray && UnchangedToastedReplicationMessageColumn.isUnchangedToastedValue(value)) {
            // Debezium has a placeholder for some types of arrays, and sends null for others, such as numeric[].
            return new UnfitArray(ColumnGuard.PLACEHOLDER);
        }
        if (value instanceof Array array) {
            String literal = array.toString();
            if (isUnfit(column.nativeType(), literal)) {
                return new UnfitArray(literal);
            }
        }
        return debezium.convert(value);
    }

    /** Whether Debezium would lose values of an array of this type, or fail. */
    static boolean isUnfit(int type, String literal) {
        return NESTED.matcher(literal).matches() || type == NUMERICS && NO_NUMBER.matcher(literal).find();
    }

    /** A value's text as PostgreSQL prints it, or Debezium's placeholder for an unchanged TOASTed value. */
    static String text(Object value) {
        if (UnchangedToastedReplicationMessageColumn.isUnchangedToastedValue(value)) {
            return ColumnGuard.PLACEHOLDER;
        }
        String printed = value.toString();
        return value.getClass().getName().startsWith(GEOMETRIC)
                ? NUMBER.matcher(printed).replaceAll(number -> number(Double.parseDouble(number.group())))
                : printed;
    }

    /** A finite number as PostgreSQL prints it: by the fewest digits that make the same double. */
    private static String number(double value) {
        if (value == 0) {
            return 1 / value < 0 ? "-0" : "0";
        }
        BigDecimal exact = new BigDecimal(value);
        BigDecimal shortest = exact;
        for (int digits = 1; digits <= MOST_DIGITS; digits++) {
            shortest = exact.round(new MathContext(digits));
            if (shortest.doubleValue() == value) {
                break;
            }
        }
        shortest = shortest.stripTrailingZeros();
        int exponent = shortest.precision() - shortest.scale() - 1;
        if (exponent >= SMALL_EXPONENT && exponent < LARGE_EXPONENT) {
            return shortest.toPlainString();
        }
        return "%se%s%02d".formatted(
                shortest.movePointLeft(exponent).toPlainString(), exponent < 0 ? "-" : "+", Math.abs(exponent));
    }

    /** Gives Debezium these converters in place of the ones in its configuration, which names none. */
    static final class Provider implements ServiceProvider<CustomConverterRegistry> {
        @Override
        public CustomConverterRegistry createService(Configuration configuration, ServiceRegistry services) {
            return new ValueConverters(services.tryGetService(BeanRegistry.class), configuration);
        }

        @Override
        public Class<CustomConverterRegistry> getServiceClass() {
            return CustomConverterRegistry.class;
        }
    }
}
