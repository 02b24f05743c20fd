package io.headwater.connect.postgresql;

import io.debezium.bean.StandardBeanNames;
import io.debezium.bean.spi.BeanRegistry;
import io.debezium.config.Configuration;
import io.debezium.connector.postgresql.PostgresValueConverter;
import io.debezium.relational.Column;
import io.debezium.relational.CustomConverterRegistry;
import io.debezium.relational.TableId;
import io.debezium.relational.ValueConverter;
import io.debezium.service.spi.ServiceProvider;
import io.debezium.service.spi.ServiceRegistry;
import java.sql.Array;
import java.util.List;
import java.util.Optional;
import java.util.regex.Pattern;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;

/**
 * Debezium's converters, which make null of an unknown value, and an {@link UnfitArray} of an array that Debezium cannot
 * carry. Of a row before a change PostgreSQL may log some columns only. Debezium alone makes 0, an empty text or the
 * column's default of every other column that is NOT NULL.
 */
final class ValueConverters extends CustomConverterRegistry {
    /** The OID of {@code numeric[]}. */
    private static final int NUMERICS = 1231;
    /** An array in an array, also behind the bounds that PostgreSQL prints where they do not begin with 1. */
    private static final Pattern NESTED = Pattern.compile("^(\\[.*?]=)?\\{\\{.*", Pattern.DOTALL);
    private static final Pattern NO_NUMBER = Pattern.compile("NaN|Infinity");

    private final BeanRegistry beans;
    /** The column whose default Debezium converts next, with the converter of its values; null if none. */
    private Column defaulted;

    private ValueConverters(BeanRegistry beans) {
        super(List.of());
        this.beans = beans;
    }

    @Override
    public synchronized Optional<SchemaBuilder> registerConverterFor(TableId table, Column column, Object defaultValue) {
        Optional<SchemaBuilder> schema = schema(column);
        boolean isDefaulted = schema.isPresent() && column.hasDefaultValue() && defaultValue != null;
        defaulted = isDefaulted ? column : null;
        return schema.map(SchemaBuilder::optional);
    }

    @Override
    public synchronized Optional<ValueConverter> getValueConverter(TableId table, Column column) {
        if (column == defaulted) {
            // A null is no default, and a default might be a value that a contract hides.
            defaulted = null;
            return Optional.of(value -> null);
        }
        return schema(column)
                .map(schema -> debezium().converter(column, new Field(column.name(), 0, schema.optional().build())))
                .map(known -> value -> convert(column, known, value));
    }

    /** Debezium's schema of a column; none if it has none, or one that its converter puts into each value. */
    private Optional<SchemaBuilder> schema(Column column) {
        return Optional.ofNullable(debezium().schemaBuilder(column))
                .filter(schema -> schema.type() != Schema.Type.STRUCT);
    }

    private PostgresValueConverter debezium() {
        return beans.lookupByName(StandardBeanNames.VALUE_CONVERTER, PostgresValueConverter.class);
    }

    private static Object convert(Column column, ValueConverter debezium, Object value) {
        if (value == null) {
            return null;
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

    /** Makes the converters where Debezium asks for those that its configuration names, which are none. */
    static final class Provider implements ServiceProvider<CustomConverterRegistry> {
        @Override
        public CustomConverterRegistry createService(Configuration configuration, ServiceRegistry services) {
            return new ValueConverters(services.tryGetService(BeanRegistry.class));
        }

        @Override
        public Class<CustomConverterRegistry> getServiceClass() {
            return CustomConverterRegistry.class;
        }
    }
}
