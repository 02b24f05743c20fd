package io.headwater.connect.postgresql;

import io.debezium.connector.postgresql.PostgresConnectorConfig;
import io.debezium.jdbc.JdbcConfiguration;
import io.debezium.jdbc.JdbcConnection;
import io.debezium.jdbc.JdbcConnection.ConnectionFactory;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.sql.Connection;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Map;

/**
 * Makes Debezium's connections to the server, and changes three parts of its query for the database's types.
 *
 * <p>Debezium 3.6.1 fails if any enum of the database has no labels, and takes a domain over an enum for such an enum.
 * So an enum without labels gets an empty array of labels here, and a domain has no category.
 *
 * <p>Debezium finds the type of a change's value by the type's name and the table's schema. It finds the type of a column
 * in the catalog by the name that the driver gives the type. So a type that shares its name with a different one has the
 * driver's name here: with its schema, unless it is visible without.
 */
public final class ServerConnections implements ConnectionFactory {
    /** Debezium's option for the class that makes its connections. */
    static final String CONFIG = "database." + JdbcConfiguration.CONNECTION_FACTORY_CLASS.name();

    private static final ConnectionFactory DRIVER = JdbcConnection.patternBasedFactory(
            "jdbc:postgresql://${hostname}:${port}/${dbname}",
            "org.postgresql.Driver",
            ServerConnections.class.getClassLoader(),
            JdbcConfiguration.PORT.withDefault(PostgresConnectorConfig.PORT.defaultValueAsString()));

    private static final String KIND_OF_ELEMENT =
            "(SELECT element.typtype FROM pg_catalog.pg_type AS element WHERE element.oid = %s.typelem)";
    /** A base type keeps its name, by which Debezium knows the types of extensions. */
    private static final String NAME =
            """
            CASE WHEN n.nspname <> 'pg_catalog' AND coalesce({t}, t.typtype) <> 'b' AND EXISTS (
                SELECT FROM pg_catalog.pg_type AS other
                WHERE other.typname = t.typname AND (other.typtype, other.typbasetype, coalesce({other}, 'b'))
                    <> (t.typtype, t.typbasetype, coalesce({t}, 'b'))
                AND (NOT pg_catalog.pg_type_is_visible(t.oid) OR coalesce({other}, other.typtype) = 'b')
            ) THEN '"' || n.nspname || '"."' || t.typname || '"' ELSE t.typname::text END AS name\
            """
                    .replace("{t}", KIND_OF_ELEMENT.formatted("t"))
                    .replace("{other}", KIND_OF_ELEMENT.formatted("other"));
    /** Parts of Debezium's query, and their replacements. */
    private static final Map<String, String> CHANGED = Map.of(
            "t.typname AS name", NAME,
            "t.typcategory as category", "CASE WHEN t.typtype <> 'd' THEN t.typcategory END AS category",
            "e.values as enum_values", "coalesce(e.values, '{}') AS enum_values");

    @Override
    public Connection connect(JdbcConfiguration config) throws SQLException {
        Connection connection = DRIVER.connect(config);
        if (!config.hasKey("replication")) {
            return changing(Connection.class, connection);
        }
        // Debezium needs the driver's own class to read the WAL, and asks for no types there. It also leaves out its
        // initial statements there.
        String initial = config.getString(JdbcConfiguration.ON_CONNECT_STATEMENTS);
        if (initial != null) {
            try (Statement statement = connection.createStatement()) {
                statement.execute(initial);
            } catch (SQLException e) {
                connection.close();
                throw e;
            }
        }
        return connection;
    }

    /** The same connection or statement, which changes each query that it is given as its first argument. */
    private static <T> T changing(Class<T> type, T target) {
        InvocationHandler handler = (proxy, method, arguments) -> {
            if (arguments != null && arguments.length > 0 && arguments[0] instanceof String query) {
                arguments[0] = changed(query);
            }
            try {
                Object result = method.invoke(target, arguments);
                return method.getName().equals("createStatement") ? changing(Statement.class, (Statement) result) : result;
            } catch (InvocationTargetException e) {
                throw e.getCause();
            }
        };
        return type.cast(Proxy.newProxyInstance(ServerConnections.class.getClassLoader(), new Class<?>[] {type}, handler));
    }

    static String changed(String query) {
        if (!CHANGED.keySet().stream().allMatch(query::contains)) {
            return query;
        }
        for (Map.Entry<String, String> part : CHANGED.entrySet()) {
            query = query.replace(part.getKey(), part.getValue());
        }
        return query;
    }
}
