-- The outbox: northwind.order_events holds one row an order with everything that shows in it, maintained in the
-- transaction that changes any of it.
--
-- How it works. Statement triggers note in outbox.noted which orders a statement touches, and which parents an order
-- or a parent newly refers to. The first note of a transaction makes one row in outbox.open_transactions, whose
-- deferred constraint trigger runs once, when the transaction commits and all its rows are in place. It
--   1. locks the parents newly referred to FOR SHARE, table by table in a fixed order,
--   2. locks the orders FOR NO KEY UPDATE in the order of their ids,
--   3. builds the orders' payloads in a statement of its own and writes those that differ.
--
-- Why it is right under READ COMMITTED, where each statement sees what was committed before it began:
--   * Two transactions that touch one order: the second waits at step 2, so its step 3 sees what the first committed.
--   * A changed parent (its row is locked by the change) and a new reference to it: either the reference's step 1
--     waits for the change and step 3 sees it, or the change waits for the reference, and the orders that it notes
--     after the change include the one that newly refers.
--   * A reference that was committed before needs no lock on the parent: whoever changes the parent notes the order.
--   * A changed membership (employee_territories) has no parent row of its own to lock: it updates the employee.
-- Waiting in a circle ends as PostgreSQL's deadlock error (40P01) in one of the transactions, which then runs again.
--
-- Under REPEATABLE READ and SERIALIZABLE a transaction sees one moment. A change of orders and items is right there or
-- fails with 40001: another transaction's change of the same outbox row or of a parent newly referred to is an update
-- of a row that the moment does not show. A change of a parent could miss an order that came to refer to it meanwhile,
-- so outbox.require_read_committed refuses it.

CREATE SCHEMA IF NOT EXISTS outbox;

CREATE TABLE IF NOT EXISTS northwind.order_events (
    order_id integer PRIMARY KEY,
    order_month text NOT NULL,
    payload jsonb NOT NULL
);

COMMENT ON COLUMN northwind.order_events.order_month IS 'YYYY-MM of order_date, unknown where there is none';

-- Rows live within one transaction and are never seen by another.
CREATE TABLE IF NOT EXISTS outbox.noted (
    transaction xid8 NOT NULL DEFAULT pg_current_xact_id(),
    kind text NOT NULL,
    key text NOT NULL,
    PRIMARY KEY (transaction, kind, key)
);

CREATE TABLE IF NOT EXISTS outbox.open_transactions (
    transaction xid8 PRIMARY KEY DEFAULT pg_current_xact_id()
);

-- Every order as it is now; the only place where a payload is built.
CREATE OR REPLACE VIEW outbox.current_orders AS
SELECT
    o.order_id,
    coalesce(to_char(o.order_date, 'YYYY-MM'), 'unknown') AS order_month,
    jsonb_build_object(
        'order', jsonb_build_object(
            'customer_id', o.customer_id,
            'employee_id', o.employee_id,
            'order_date', o.order_date,
            'required_date', o.required_date,
            'shipped_date', o.shipped_date,
            'freight', o.freight
        ),
        'items', items.documents,
        'customer', customer.document,
        'employee', employee.document,
        'shipper', shipper.document,
        'shipment', jsonb_build_object(
            'ship_name', o.ship_name,
            'ship_address', o.ship_address,
            'ship_city', o.ship_city,
            'ship_region', o.ship_region,
            'ship_postal_code', o.ship_postal_code,
            'ship_country', o.ship_country
        )
    ) AS payload
FROM northwind.orders AS o
CROSS JOIN LATERAL (
    SELECT coalesce(
        jsonb_agg(
            jsonb_build_object(
                'product_id', d.product_id,
                'unit_price', d.unit_price,
                'quantity', d.quantity,
                'discount', d.discount,
                'product', jsonb_build_object(
                    'product_id', p.product_id,
                    'product_name', p.product_name,
                    'quantity_per_unit', p.quantity_per_unit,
                    'unit_price', p.unit_price,
                    'units_in_stock', p.units_in_stock,
                    'units_on_order', p.units_on_order,
                    'reorder_level', p.reorder_level,
                    'discontinued', p.discontinued,
                    'supplier', CASE WHEN s.supplier_id IS NOT NULL THEN jsonb_build_object(
                        'supplier_id', s.supplier_id,
                        'company_name', s.company_name,
                        'contact_name', s.contact_name,
                        'contact_title', s.contact_title,
                        'address', s.address,
                        'city', s.city,
                        'region', s.region,
                        'postal_code', s.postal_code,
                        'country', s.country,
                        'phone', s.phone,
                        'fax', s.fax,
                        'homepage', s.homepage
                    ) END,
                    'category', CASE WHEN g.category_id IS NOT NULL THEN jsonb_build_object(
                        'category_id', g.category_id,
                        'category_name', g.category_name,
                        'description', g.description
                    ) END
                )
            )
            ORDER BY d.product_id
        ),
        '[]'::jsonb
    ) AS documents
    FROM northwind.order_details AS d
    JOIN northwind.products AS p ON p.product_id = d.product_id
    LEFT JOIN northwind.suppliers AS s ON s.supplier_id = p.supplier_id
    LEFT JOIN northwind.categories AS g ON g.category_id = p.category_id
    WHERE d.order_id = o.order_id
) AS items
LEFT JOIN LATERAL (
    SELECT jsonb_build_object(
        'customer_id', c.customer_id,
        'company_name', c.company_name,
        'contact_name', c.contact_name,
        'contact_title', c.contact_title,
        'address', c.address,
        'city', c.city,
        'region', c.region,
        'postal_code', c.postal_code,
        'country', c.country,
        'phone', c.phone,
        'fax', c.fax
    ) AS document
    FROM northwind.customers AS c
    WHERE c.customer_id = o.customer_id
) AS customer ON true
LEFT JOIN LATERAL (
    SELECT jsonb_build_object(
        'employee_id', e.employee_id,
        'last_name', e.last_name,
        'first_name', e.first_name,
        'title', e.title,
        'title_of_courtesy', e.title_of_courtesy,
        'birth_date', e.birth_date,
        'hire_date', e.hire_date,
        'address', e.address,
        'city', e.city,
        'region', e.region,
        'postal_code', e.postal_code,
        'country', e.country,
        'home_phone', e.home_phone,
        'extension', e.extension,
        'reports_to', e.reports_to,
        'photo_path', e.photo_path,
        'territories', coalesce(
            (
                SELECT jsonb_agg(
                    jsonb_build_object(
                        'territory_id', t.territory_id,
                        'territory_description', t.territory_description,
                        'region_id', r.region_id,
                        'region_description', r.region_description
                    )
                    ORDER BY t.territory_id COLLATE "C"
                )
                FROM northwind.employee_territories AS m
                JOIN northwind.territories AS t ON t.territory_id = m.territory_id
                JOIN northwind.region AS r ON r.region_id = t.region_id
                WHERE m.employee_id = e.employee_id
            ),
            '[]'::jsonb
        )
    ) AS document
    FROM northwind.employees AS e
    WHERE e.employee_id = o.employee_id
) AS employee ON true
LEFT JOIN LATERAL (
    SELECT jsonb_build_object(
        'shipper_id', h.shipper_id,
        'company_name', h.company_name,
        'phone', h.phone
    ) AS document
    FROM northwind.shippers AS h
    WHERE h.shipper_id = o.ship_via
) AS shipper ON true;

-- Writing at the end of a transaction ------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION outbox.take_locks() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    mine CONSTANT xid8 := pg_current_xact_id();
BEGIN
    -- From what refers to what is referred to: a locked row's references stand still while the next step reads them.
    PERFORM FROM northwind.employees
        WHERE employee_id IN (SELECT key::integer FROM outbox.noted WHERE transaction = mine AND kind = 'employee')
        ORDER BY employee_id FOR SHARE;
    PERFORM FROM northwind.territories
        WHERE territory_id IN (
            SELECT key FROM outbox.noted WHERE transaction = mine AND kind = 'territory'
            UNION ALL
            SELECT m.territory_id FROM outbox.noted AS n
            JOIN northwind.employee_territories AS m ON m.employee_id = n.key::integer
            WHERE n.transaction = mine AND n.kind = 'employee'
        )
        ORDER BY territory_id FOR SHARE;
    PERFORM FROM northwind.region
        WHERE region_id IN (
            SELECT key::integer FROM outbox.noted WHERE transaction = mine AND kind = 'region'
            UNION ALL
            SELECT t.region_id FROM outbox.noted AS n
            JOIN northwind.territories AS t ON t.territory_id = n.key
            WHERE n.transaction = mine AND n.kind = 'territory'
            UNION ALL
            SELECT t.region_id FROM outbox.noted AS n
            JOIN northwind.employee_territories AS m ON m.employee_id = n.key::integer
            JOIN northwind.territories AS t ON t.territory_id = m.territory_id
            WHERE n.transaction = mine AND n.kind = 'employee'
        )
        ORDER BY region_id FOR SHARE;
    PERFORM FROM northwind.customers
        WHERE customer_id IN (SELECT key FROM outbox.noted WHERE transaction = mine AND kind = 'customer')
        ORDER BY customer_id FOR SHARE;
    PERFORM FROM northwind.shippers
        WHERE shipper_id IN (SELECT key::integer FROM outbox.noted WHERE transaction = mine AND kind = 'shipper')
        ORDER BY shipper_id FOR SHARE;
    PERFORM FROM northwind.products
        WHERE product_id IN (SELECT key::integer FROM outbox.noted WHERE transaction = mine AND kind = 'product')
        ORDER BY product_id FOR SHARE;
    PERFORM FROM northwind.suppliers
        WHERE supplier_id IN (
            SELECT key::integer FROM outbox.noted WHERE transaction = mine AND kind = 'supplier'
            UNION ALL
            SELECT p.supplier_id FROM outbox.noted AS n JOIN northwind.products AS p ON p.product_id = n.key::integer
            WHERE n.transaction = mine AND n.kind = 'product'
        )
        ORDER BY supplier_id FOR SHARE;
    PERFORM FROM northwind.categories
        WHERE category_id IN (
            SELECT key::integer FROM outbox.noted WHERE transaction = mine AND kind = 'category'
            UNION ALL
            SELECT p.category_id FROM outbox.noted AS n JOIN northwind.products AS p ON p.product_id = n.key::integer
            WHERE n.transaction = mine AND n.kind = 'product'
        )
        ORDER BY category_id FOR SHARE;
    PERFORM FROM northwind.orders
        WHERE order_id IN (SELECT key::integer FROM outbox.noted WHERE transaction = mine AND kind = 'order')
        ORDER BY order_id FOR NO KEY UPDATE;
END
$$;

CREATE OR REPLACE FUNCTION outbox.write_events() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    mine CONSTANT xid8 := pg_current_xact_id();
BEGIN
    PERFORM outbox.take_locks();
    -- A statement after the locks, so that it sees what was committed while they were awaited.
    INSERT INTO northwind.order_events AS stored (order_id, order_month, payload)
    SELECT c.order_id, c.order_month, c.payload
    FROM outbox.current_orders AS c
    WHERE c.order_id IN (SELECT key::integer FROM outbox.noted WHERE transaction = mine AND kind = 'order')
    ON CONFLICT (order_id) DO UPDATE SET order_month = excluded.order_month, payload = excluded.payload
    WHERE (stored.order_month, stored.payload) IS DISTINCT FROM (excluded.order_month, excluded.payload);
    DELETE FROM northwind.order_events AS stored
    WHERE stored.order_id IN (SELECT key::integer FROM outbox.noted WHERE transaction = mine AND kind = 'order')
        AND NOT EXISTS (SELECT FROM northwind.orders AS o WHERE o.order_id = stored.order_id);
    DELETE FROM outbox.noted WHERE transaction = mine;
    DELETE FROM outbox.open_transactions WHERE transaction = mine;
    RETURN NULL;
END
$$;

-- The deferred trigger hangs on a table of ours, not on the base tables: TRUNCATE is refused on a table that has
-- deferred trigger events pending.
DO $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_trigger
        WHERE tgrelid = 'outbox.open_transactions'::regclass AND tgname = 'write_events'
    ) THEN
        CREATE CONSTRAINT TRIGGER write_events AFTER INSERT ON outbox.open_transactions
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION outbox.write_events();
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION outbox.open_transaction() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM new_rows) THEN
        INSERT INTO outbox.open_transactions DEFAULT VALUES ON CONFLICT DO NOTHING;
    END IF;
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER open_transaction AFTER INSERT ON outbox.noted
REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION outbox.open_transaction();

-- Noting what a statement touches ----------------------------------------------------------------------------------

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

-- A membership shows in the orders of its employee. The employee is updated, to the values it has, so that it is locked
-- before its orders are looked up, and so that a transaction at a higher isolation level that newly refers to the
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

-- A parent that is inserted has no order yet and one that is deleted has none any more, so parents need no trigger for
-- these; and a parent can only be truncated together with the tables that refer to it, which have theirs.

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
