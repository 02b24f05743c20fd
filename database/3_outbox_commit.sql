-- Writing the outbox when a transaction commits.
--
-- How it works. Statement triggers (4_outbox_triggers.sql) note in outbox.noted which orders a statement touches, and
-- which parents an order or a parent newly refers to. The first note of a transaction makes one row in
-- outbox.open_transactions, whose deferred constraint trigger runs once, when the transaction commits and all its rows
-- are in place. It
--   1. locks the parents newly referred to FOR SHARE, table by table in a fixed order,
--   2. locks the orders' ids in outbox.order_locks, in ascending order,
--   3. builds the orders' payloads in a statement of its own and writes those that differ.
--
-- Why it is right under READ COMMITTED, where each statement sees what was committed before it began:
--   * Two transactions that touch one order: the second waits at step 2, so its step 3 sees what the first committed.
--     Locks on rows cost no shared memory: a transaction may touch all orders (advisory locks would run out).
--   * An order that one of them deletes and adds again is the same id, so the same holds. A lock on the order's row would
--     not do: who waits for the deleted row finds none when it goes on, and does not see the new one.
--   * A changed parent (its row is locked by the change) and a new reference to it: either the reference's step 1
--     waits for the change and step 3 sees it, or the change waits for the reference, and the orders that it notes
--     after the change include the one that newly refers.
--   * A reference that was committed before needs no lock on the parent: whoever changes the parent notes the order.
--   * A changed membership (employee_territories) has no parent row of its own to lock: it updates the employee.
-- Where transactions wait in a circle, PostgreSQL ends one of them with a deadlock error (40P01); the application runs
-- it again.
--
-- Under REPEATABLE READ and SERIALIZABLE a transaction sees the database as of one moment. A change of orders and items
-- is right there or fails with 40001: where another transaction has changed the same outbox row, or a parent newly
-- referred to, since that moment, PostgreSQL refuses to update or lock the row. A change of a parent could miss an
-- order that came to refer to it meanwhile, so outbox.require_read_committed refuses it. To its view a table that was
-- truncated since is empty, and what has filled it again is not there (TRUNCATE is not MVCC-safe), while the outbox rows
-- may be as before: whoever truncates updates the one row of outbox.truncated, and whoever has such a view locks it.

-- Rows live within one transaction; no other transaction ever sees them.
CREATE TABLE IF NOT EXISTS outbox.noted (
    transaction xid8 NOT NULL DEFAULT pg_current_xact_id(),
    kind text NOT NULL,
    key text NOT NULL,
    PRIMARY KEY (transaction, kind, key)
);

CREATE TABLE IF NOT EXISTS outbox.open_transactions (
    transaction xid8 PRIMARY KEY DEFAULT pg_current_xact_id()
);

-- One row per order id that was ever noted. Rows are added and locked, and never changed or deleted, so that whoever
-- waits for one gets it. ON CONFLICT locks a row that exists, also where WHERE keeps it from being written.
CREATE TABLE IF NOT EXISTS outbox.order_locks (
    order_id integer PRIMARY KEY
);

-- One row, of which each transaction that truncates what payloads show writes another version, with the same content.
CREATE TABLE IF NOT EXISTS outbox.truncated (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only)
);
INSERT INTO outbox.truncated DEFAULT VALUES ON CONFLICT DO NOTHING;

CREATE OR REPLACE FUNCTION outbox.take_locks() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    mine CONSTANT xid8 := pg_current_xact_id();
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        PERFORM FROM outbox.truncated FOR SHARE;
    END IF;
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
    -- By id, not by row: a deleted order has no row, and one that is deleted and added again has two.
    INSERT INTO outbox.order_locks (order_id)
    SELECT key::integer FROM outbox.noted WHERE transaction = mine AND kind = 'order' ORDER BY key::integer
    ON CONFLICT (order_id) DO UPDATE SET order_id = excluded.order_id WHERE false;
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

-- The deferred trigger hangs on a table of the outbox's own, not on the base tables: PostgreSQL refuses TRUNCATE on a
-- table that has deferred trigger events pending.
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
