-- The roles of the order database's application and readers, with the rights that their work needs and no more. Whoever
-- runs this file sets their passwords afterwards.

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['headwater_app', 'headwater_reader'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) THEN
            EXECUTE format('CREATE ROLE %I LOGIN', name);
        END IF;
    END LOOP;
END
$$;

DO $$
BEGIN
    EXECUTE format('REVOKE ALL ON DATABASE %I FROM PUBLIC', current_database());
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO headwater_app, headwater_reader', current_database());
END
$$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA outbox FROM PUBLIC;

GRANT USAGE ON SCHEMA northwind TO headwater_app, headwater_reader;

-- The application writes the base tables only: the outbox is written by the triggers, with their owner's rights.
GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON
    northwind.region, northwind.territories, northwind.employees, northwind.employee_territories,
    northwind.categories, northwind.suppliers, northwind.products, northwind.customers, northwind.shippers,
    northwind.orders, northwind.order_details
TO headwater_app;

GRANT USAGE ON SCHEMA capture, outbox TO headwater_reader;

GRANT SELECT ON ALL TABLES IN SCHEMA northwind, capture, outbox TO headwater_reader;

ALTER DEFAULT PRIVILEGES IN SCHEMA northwind GRANT SELECT ON TABLES TO headwater_reader;
