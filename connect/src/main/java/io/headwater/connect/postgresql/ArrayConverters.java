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

/** Debezium's converters of arrays, which make an {@link UnfitArray} of what Debezium cannot carry. */
final class ArrayConverters extends CustomConverterRegistry {
    /** The OID of {@code numeric[]}. */
    private static final int NUMERICS = 1231;
    /** An array in an array, also behind the bounds that PostgreSQL prints where they do not begin with 1. */
    private static final Pattern NESTED = Pattern.compile("^(\\[.*?]=)?\\{\\{.*", Pattern.DOTALL);
    private static final Pattern NO_NUMBER = Pattern.compile("NaN|Infinity");

    private final BeanRegistry beans;

    private ArrayConverters(BeanRegistry beans) {
        super(List.of());
        this.beans = beans;
    }

    @Override
    public Optional<ValueConverter> getValueConverter(TableId table, Column column) {
        PostgresValueConverter debezium =
                beans.lookupByName(StandardBeanNames.VALUE_CONVERTER, PostgresValueConverter.class);
        SchemaBuilder schema = debezium.schemaBuilder(column);
        if (schema == null || schema.type() != Schema.Type.ARRAY) {
            return Optional.empty();
        }
        ValueConverter converter = debezium.converter(column, new Field(column.name(), 0, schema.optional().build()));
        return Optional.ofNullable(converter).map(known -> value -> convert(column, known, value));
    }

    private static Object convert(Column column, ValueConverter debezium, Object value) {
        if (value instanceof List<?>) {
            return value; // a column's default, which Debezium has converted
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
            return new ArrayConverters(services.tryGetService(BeanRegistry.class));
        }

        @Override
        public Class<CustomConverterRegistry> getServiceClass() {
            return CustomConverterRegistry.class;
        }
    }
}
