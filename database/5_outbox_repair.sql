-- Correcting the outbox. An order that is older than the outbox has no row, a row that is older than a change of
-- outbox.current_orders has the old payload, and whoever switches triggers off leaves rows behind.

-- Writes the outbox rows that differ, of the orders from the first id to the last, both included. Returns how many differ.
CREATE OR REPLACE FUNCTION outbox.repair(first integer, last integer) RETURNS bigint
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
WITH wrong AS (
    INSERT INTO outbox.noted (kind, key)
    SELECT 'order', coalesce(built.order_id, stored.order_id)::text
    FROM (SELECT * FROM outbox.current_orders WHERE order_id BETWEEN first AND last) AS built
    FULL JOIN (SELECT * FROM northwind.order_events WHERE order_id BETWEEN first AND last) AS stored USING (order_id)
    WHERE (built.order_month, built.payload) IS DISTINCT FROM (stored.order_month, stored.payload)
    ON CONFLICT DO NOTHING
    RETURNING 1
)
SELECT count(*) FROM wrong
$$;

SELECT outbox.repair(-2147483648, 2147483647);
