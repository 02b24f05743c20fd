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

-- The published tables under the names that the contracts and Debezium know them by, as of the last deploy.
CREATE TABLE IF NOT EXISTS capture.published (
    relation oid PRIMARY KEY,
    name text NOT NULL,
    -- A table that came to a publication which was read already: its rows are not in the lake until a signal asks for them.
    awaits_rows boolean NOT NULL DEFAULT false,
    -- What PostgreSQL is to log of their rows before a change: FULL or DEFAULT.
    replica_identity text NOT NULL DEFAULT 'FULL'
);

-- The columns that an earlier release's table lacks. ALTER TABLE alone would wait for every transaction that has altered
-- or created a table, because an event trigger reads this one.
DO $$
BEGIN
    IF (SELECT count(*) FROM pg_attribute WHERE attrelid = 'capture.published'::regclass AND attnum > 0) < 4 THEN
        ALTER TABLE capture.published
            ADD COLUMN IF NOT EXISTS awaits_rows boolean NOT NULL DEFAULT false,
            ADD COLUMN IF NOT EXISTS replica_identity text NOT NULL DEFAULT 'FULL';
    END IF;
END
$$;

-- The columns that contracts exclude or mask. A column keeps its number when it is renamed, and stays hidden.
CREATE TABLE IF NOT EXISTS capture.hidden_columns (
    relation oid,
    number smallint,
    name text NOT NULL,
    PRIMARY KEY (relation, number)
);

-- Returns the hidden columns of a table, by their numbers, with the names that its contract has for them.
CREATE OR REPLACE FUNCTION capture.hidden_columns_of(captured oid) RETURNS TABLE (number smallint, name text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT number, name FROM capture.hidden_columns WHERE relation = captured
$$;

-- Has all rows of tables read again, beside their changes, and gives the signal's id. In it stands how far the log had
-- come before: rows of the lake that are older than that and are not read are no longer in the source. With a condition
-- of SQL, only the rows for which it is true are read, and no others end.
CREATE OR REPLACE FUNCTION capture.read_again(names text[], condition text DEFAULT NULL) RETURNS text
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
INSERT INTO capture.signal (id, type, data)
SELECT
    json_build_object('resync', pg_current_wal_lsn() - '0/0'::pg_lsn, 'request', gen_random_uuid())::text,
    'execute-snapshot',
    json_strip_nulls(json_build_object(
        'type', 'incremental',
        'data-collections', json_agg(pattern),
        'additional-conditions',
        json_agg(json_build_object('data-collection', pattern, 'filter', condition)) FILTER (WHERE condition IS NOT NULL)
    ))::text
-- Regular expressions of the names as Debezium writes them.
FROM (SELECT replace(replace(name, '"', ''), '.', '\.') FROM unnest(names) AS name) AS listed (pattern)
RETURNING id
$$;

-- The same for those of the captured tables that wait for it. The source connector calls it when its task starts.
CREATE OR REPLACE FUNCTION capture.read_awaited(captured text[]) RETURNS text
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
WITH asked AS (
    UPDATE capture.published SET awaits_rows = false
    WHERE awaits_rows AND replace(name, '"', '') = ANY (captured)
    RETURNING name
)
SELECT capture.read_again(array_agg(name ORDER BY name)) FROM asked HAVING count(*) > 0
$$;

-- The replica identity (FULL or DEFAULT) of published tables and their partitions. A partition does not take it over
-- from its table, and PostgreSQL writes the row before a change by the identity of the partition that holds it.
CREATE OR REPLACE FUNCTION capture.identify_partitions(published regclass[], identities text[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    partition regclass;
    identity text;
BEGIN
    -- Each ALTER TABLE below fires the event trigger.
    PERFORM set_config('headwater.identifying', 'yes', true);
    FOR partition, identity IN
        SELECT c.oid, p.identity
        FROM unnest(published, identities) AS p (root, identity)
        -- Of a table without partitions, pg_partition_tree has no row.
        CROSS JOIN LATERAL (SELECT p.root UNION SELECT relid FROM pg_partition_tree(p.root)) AS tree (relid)
        JOIN pg_class AS c
            ON c.oid = tree.relid AND c.relreplident <> lower(left(p.identity, 1)) AND c.relkind IN ('r', 'p')
        ORDER BY c.oid
    LOOP
        BEGIN
            EXECUTE format('ALTER TABLE %s REPLICA IDENTITY %s', partition, identity);
        EXCEPTION WHEN OTHERS THEN
            RAISE WARNING 'The published table or partition % lacks REPLICA IDENTITY %: %', partition, identity, SQLERRM;
        END;
    END LOOP;
    PERFORM set_config('headwater.identifying', '', true);
END
$$;
