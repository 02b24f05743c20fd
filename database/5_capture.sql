-- What Debezium needs beside the published tables: a heartbeat that keeps its position moving while those are silent,
-- and a table of signals, where a row asks it for an incremental snapshot.

CREATE SCHEMA IF NOT EXISTS capture;

CREATE TABLE IF NOT EXISTS capture.heartbeat (
    id integer PRIMARY KEY,
    beat_at timestamptz
);

INSERT INTO capture.heartbeat (id, beat_at) VALUES (1, now()) ON CONFLICT DO NOTHING;

CREATE TABLE IF NOT EXISTS capture.signal (
    id text PRIMARY KEY,
    type text NOT NULL,
    data text
);

-- REPLICA IDENTITY FULL for published tables and their partitions. A partition does not take it over from its table, and
-- PostgreSQL writes the row before a change by the identity of the partition that holds it.
CREATE OR REPLACE FUNCTION capture.identify_partitions(published regclass[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    partition regclass;
BEGIN
    -- Each ALTER TABLE below fires the event trigger.
    PERFORM set_config('headwater.identifying', 'yes', true);
    FOR partition IN
        SELECT c.oid
        FROM unnest(published) AS p (root)
        -- Of a table without partitions, pg_partition_tree has no row.
        CROSS JOIN LATERAL (SELECT p.root UNION SELECT relid FROM pg_partition_tree(p.root)) AS tree (relid)
        JOIN pg_class AS c ON c.oid = tree.relid AND c.relreplident <> 'f' AND c.relkind IN ('r', 'p')
        ORDER BY c.oid
    LOOP
        BEGIN
            EXECUTE format('ALTER TABLE %s REPLICA IDENTITY FULL', partition);
        EXCEPTION WHEN OTHERS THEN
            RAISE WARNING 'The published table or partition % lacks REPLICA IDENTITY FULL: %', partition, SQLERRM;
        END;
    END LOOP;
    PERFORM set_config('headwater.identifying', '', true);
END
$$;

-- The same for a partition that is created or attached later, and for a table that loses FULL, in the transaction that
-- does it. It fails nobody's statement: whoever may not alter the table gets a warning.
CREATE OR REPLACE FUNCTION capture.identify_new_partitions() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('headwater.identifying', true) = 'yes' THEN
        RETURN;
    END IF;
    PERFORM capture.identify_partitions(array_agg(prrelid::regclass))
    FROM pg_publication_rel JOIN pg_publication AS p ON p.oid = prpubid
    WHERE p.pubname = 'headwater'
    HAVING count(*) > 0;
EXCEPTION WHEN OTHERS THEN
    RAISE WARNING 'A published table or a partition may lack REPLICA IDENTITY FULL: %', SQLERRM;
END
$$;

-- Event triggers belong to superusers, and on RDS and Aurora to the owner too. Without it, deploy after adding a
-- partition, or give it REPLICA IDENTITY FULL.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_event_trigger WHERE evtname = 'headwater_new_partitions') THEN
        CREATE EVENT TRIGGER headwater_new_partitions ON ddl_command_end WHEN TAG IN ('CREATE TABLE', 'ALTER TABLE')
        EXECUTE FUNCTION capture.identify_new_partitions();
    END IF;
EXCEPTION WHEN insufficient_privilege THEN
    RAISE WARNING 'New partitions of published tables need REPLICA IDENTITY FULL by hand: %', SQLERRM;
END
$$;
