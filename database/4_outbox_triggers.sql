-- Noting in outbox.noted which orders a statement touches, and which parents an order or a parent newly refers to.
-- 3_outbox_commit.sql says what becomes of the notes, and why these are enough.

CREATE OR REPLACE FUNCTION outbox.require_read_committed(changed regclass) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION 'a change of % needs the isolation level READ COMMITTED, found %',
            changed, upper(current_setting('transaction_isolation'))
            USING ERRCODE = 'feature_not_supported',
            DETAIL = 'At a higher level it could miss an order that began to refer to the row meanwhile.',
            HINT = 'Start this transaction with BEGIN ISOLATION LEVEL READ COMMITTED.';
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION outbox.orders_inserted() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO outbox.noted (kind, key)
    SELECT 'order', order_id::text FROM new_rows
    UNION ALL
    SELECT DISTINCT 'customer', customer_id FROM new_rows WHERE customer_id IS NOT NULL
    UNION ALL
    SELECT DISTINCT 'employee', employee_id::text FROM new_rows WHERE employee_id IS NOT NULL
    UNION ALL
    SELECT DISTINCT 'shipper', ship_via::text FROM new_rows WHERE ship_via IS NOT NULL
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION outbox.orders_updated() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- A reference counts as new also where the order took a new key: whoever changes the parent noted the old one. The
    -- items follow the new key by an update of their own.
    INSERT INTO outbox.noted (kind, key)
    SELECT 'order', order_id::text FROM old_rows
    UNION
    SELECT 'order', order_id::text FROM new_rows
    UNION
    SELECT 'customer', customer_id FROM (
        SELECT order_id, customer_id FROM new_rows EXCEPT SELECT order_id, customer_id FROM old_rows
    ) AS changed WHERE customer_id IS NOT NULL
    UNION
    SELECT 'employee', employee_id::text FROM (
        SELECT order_id, employee_id FROM new_rows EXCEPT SELECT order_id, employee_id FROM old_rows
    ) AS changed WHERE employee_id IS NOT NULL
    UNION
    SELECT 'shipper', ship_via::text FROM (
        SELECT order_id, ship_via FROM new_rows EXCEPT SELECT order_id, ship_via FROM old_rows
    ) AS changed WHERE ship_via IS NOT NULL
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION outbox.orders_deleted() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO outbox.noted (kind, key) SELECT 'order', order_id::text FROM old_rows ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION outbox.orders_truncated() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE outbox.truncated SET is_only = true;
    TRUNCATE northwind.order_events;
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION outbox.items_inserted() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO outbox.noted (kind, key)
    SELECT DISTINCT 'order', order_id::text FROM new_rows
    UNION ALL
    SELECT DISTINCT 'product', product_id::text FROM new_rows
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION outbox.items_updated() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO outbox.noted (kind, key)
    SELECT 'order', order_id::text FROM old_rows
    UNION
    SELECT 'order', order_id::text FROM new_rows
    UNION
    SELECT 'product', product_id::text FROM (
        SELECT order_id, product_id FROM new_rows EXCEPT SELECT order_id, product_id FROM old_rows
    ) AS changed
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION outbox.items_deleted() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO outbox.noted (kind, key)
    SELECT DISTINCT 'order', order_id::text FROM old_rows
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION outbox.note_all_orders() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM outbox.require_read_committed(TG_RELID);
    UPDATE outbox.truncated SET is_only = true;
    INSERT INTO outbox.noted (kind, key) SELECT 'order', order_id::text FROM northwind.orders ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION outbox.customers_updated() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM outbox.require_read_committed(TG_RELID);
    INSERT INTO outbox.noted (kind, key)
    SELECT 'order', o.order_id::text
    FROM (TABLE new_rows EXCEPT TABLE old_rows) AS changed
    JOIN northwind.orders AS o ON o.customer_id = changed.customer_id
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION outbox.shippers_updated() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM outbox.require_read_committed(TG_RELID);
    INSERT INTO outbox.noted (kind, key)
    SELECT 'order', o.order_id::text
    FROM (TABLE new_rows EXCEPT TABLE old_rows) AS changed
    JOIN northwind.orders AS o ON o.ship_via = changed.shipper_id
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION outbox.employees_updated() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM outbox.require_read_committed(TG_RELID);
    INSERT INTO outbox.noted (kind, key)
    SELECT 'order', o.order_id::text
    FROM (TABLE new_rows EXCEPT TABLE old_rows) AS changed
    JOIN northwind.orders AS o ON o.employee_id = changed.employee_id
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION outbox.territories_updated() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM outbox.require_read_committed(TG_RELID);
    INSERT INTO outbox.noted (kind, key)
    SELECT DISTINCT 'order', o.order_id::text
    FROM (TABLE new_rows EXCEPT TABLE old_rows) AS changed
    JOIN northwind.employee_territories AS m ON m.territory_id = changed.territory_id
    JOIN northwind.orders AS o ON o.employee_id = m.employee_id
    UNION ALL
    SELECT DISTINCT 'region', region_id::text FROM (
        SELECT territory_id, region_id FROM new_rows EXCEPT SELECT territory_id, region_id FROM old_rows
    ) AS changed
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION outbox.region_updated() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM outbox.require_read_committed(TG_RELID);
    INSERT INTO outbox.noted (kind, key)
    SELECT DISTINCT 'order', o.order_id::text
    FROM (TABLE new_rows EXCEPT TABLE old_rows) AS changed
    JOIN northwind.territories AS t ON t.region_id = changed.region_id
    JOIN northwind.employee_territories AS m ON m.territory_id = t.territory_id
    JOIN northwind.orders AS o ON o.employee_id = m.employee_id
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;

-- A membership shows in the orders of its employee. The trigger updates the employee to the values it has: that locks
-- the employee before its orders are looked up, and a transaction at a higher isolation level that newly refers to the
-- employee fails instead of missing the membership.
CREATE OR REPLACE FUNCTION outbox.memberships_inserted() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM outbox.require_read_committed(TG_RELID);
    UPDATE northwind.employees SET last_name = last_name WHERE employee_id IN (SELECT employee_id FROM new_rows);
    INSERT INTO outbox.noted (kind, key)
    SELECT 'order', order_id::text FROM northwind.orders WHERE employee_id IN (SELECT employee_id FROM new_rows)
    UNION ALL
    SELECT DISTINCT 'territory', territory_id FROM new_rows
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION outbox.memberships_updated() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM outbox.require_read_committed(TG_RELID);
    UPDATE northwind.employees SET last_name = last_name
    WHERE employee_id IN (SELECT employee_id FROM old_rows UNION ALL SELECT employee_id FROM new_rows);
    INSERT INTO outbox.noted (kind, key)
    SELECT 'order', order_id::text FROM northwind.orders
    WHERE employee_id IN (SELECT employee_id FROM old_rows UNION ALL SELECT employee_id FROM new_rows)
    UNION ALL
    SELECT DISTINCT 'territory', territory_id FROM new_rows
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION outbox.memberships_deleted() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM outbox.require_read_committed(TG_RELID);
    UPDATE northwind.employees SET last_name = last_name WHERE employee_id IN (SELECT employee_id FROM old_rows);
    INSERT INTO outbox.noted (kind, key)
    SELECT 'order', order_id::text FROM northwind.orders WHERE employee_id IN (SELECT employee_id FROM old_rows)
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION outbox.products_updated() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM outbox.require_read_committed(TG_RELID);
    INSERT INTO outbox.noted (kind, key)
    SELECT DISTINCT 'order', d.order_id::text
    FROM (TABLE new_rows EXCEPT TABLE old_rows) AS changed
    JOIN northwind.order_details AS d ON d.product_id = changed.product_id
    UNION ALL
    SELECT DISTINCT 'supplier', supplier_id::text FROM (
        SELECT product_id, supplier_id FROM new_rows EXCEPT SELECT product_id, supplier_id FROM old_rows
    ) AS changed WHERE supplier_id IS NOT NULL
    UNION ALL
    SELECT DISTINCT 'category', category_id::text FROM (
        SELECT product_id, category_id FROM new_rows EXCEPT SELECT product_id, category_id FROM old_rows
    ) AS changed WHERE category_id IS NOT NULL
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION outbox.suppliers_updated() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM outbox.require_read_committed(TG_RELID);
    INSERT INTO outbox.noted (kind, key)
    SELECT DISTINCT 'order', d.order_id::text
    FROM (TABLE new_rows EXCEPT TABLE old_rows) AS changed
    JOIN northwind.products AS p ON p.supplier_id = changed.supplier_id
    JOIN northwind.order_details AS d ON d.product_id = p.product_id
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION outbox.categories_updated() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM outbox.require_read_committed(TG_RELID);
    INSERT INTO outbox.noted (kind, key)
    SELECT DISTINCT 'order', d.order_id::text
    FROM (TABLE new_rows EXCEPT TABLE old_rows) AS changed
    JOIN northwind.products AS p ON p.category_id = changed.category_id
    JOIN northwind.order_details AS d ON d.product_id = p.product_id
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;

-- Parents need no trigger for INSERT and DELETE: a parent that is inserted has no order yet, and one that is deleted
-- has none any more. They need none for TRUNCATE: a parent can only be truncated together with the tables that refer to
-- it, which have a trigger for it.

CREATE OR REPLACE TRIGGER outbox_insert AFTER INSERT ON northwind.orders
REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION outbox.orders_inserted();

CREATE OR REPLACE TRIGGER outbox_update AFTER UPDATE ON northwind.orders
REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION outbox.orders_updated();

CREATE OR REPLACE TRIGGER outbox_delete AFTER DELETE ON northwind.orders
REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION outbox.orders_deleted();

CREATE OR REPLACE TRIGGER outbox_truncate AFTER TRUNCATE ON northwind.orders
FOR EACH STATEMENT EXECUTE FUNCTION outbox.orders_truncated();

CREATE OR REPLACE TRIGGER outbox_insert AFTER INSERT ON northwind.order_details
REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION outbox.items_inserted();

CREATE OR REPLACE TRIGGER outbox_update AFTER UPDATE ON northwind.order_details
REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION outbox.items_updated();

CREATE OR REPLACE TRIGGER outbox_delete AFTER DELETE ON northwind.order_details
REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION outbox.items_deleted();

CREATE OR REPLACE TRIGGER outbox_truncate AFTER TRUNCATE ON northwind.order_details
FOR EACH STATEMENT EXECUTE FUNCTION outbox.note_all_orders();

CREATE OR REPLACE TRIGGER outbox_insert AFTER INSERT ON northwind.employee_territories
REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION outbox.memberships_inserted();

CREATE OR REPLACE TRIGGER outbox_update AFTER UPDATE ON northwind.employee_territories
REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION outbox.memberships_updated();

CREATE OR REPLACE TRIGGER outbox_delete AFTER DELETE ON northwind.employee_territories
REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION outbox.memberships_deleted();

CREATE OR REPLACE TRIGGER outbox_truncate AFTER TRUNCATE ON northwind.employee_territories
FOR EACH STATEMENT EXECUTE FUNCTION outbox.note_all_orders();

CREATE OR REPLACE TRIGGER outbox_update AFTER UPDATE ON northwind.customers
REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION outbox.customers_updated();

CREATE OR REPLACE TRIGGER outbox_update AFTER UPDATE ON northwind.shippers
REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION outbox.shippers_updated();

CREATE OR REPLACE TRIGGER outbox_update AFTER UPDATE ON northwind.employees
REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION outbox.employees_updated();

CREATE OR REPLACE TRIGGER outbox_update AFTER UPDATE ON northwind.territories
REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION outbox.territories_updated();

CREATE OR REPLACE TRIGGER outbox_update AFTER UPDATE ON northwind.region
REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION outbox.region_updated();

CREATE OR REPLACE TRIGGER outbox_update AFTER UPDATE ON northwind.products
REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION outbox.products_updated();

CREATE OR REPLACE TRIGGER outbox_update AFTER UPDATE ON northwind.suppliers
REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION outbox.suppliers_updated();

CREATE OR REPLACE TRIGGER outbox_update AFTER UPDATE ON northwind.categories
REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION outbox.categories_updated();
