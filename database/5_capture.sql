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
    name text NOT NULL
);

-- A table that came to a publication which was read already: its rows are not in the lake until a signal asks for them.
ALTER TABLE capture.published ADD COLUMN IF NOT EXISTS awaits_rows boolean NOT NULL DEFAULT false;

-- What PostgreSQL is to log of their rows before a change: FULL or DEFAULT.
ALTER TABLE capture.published ADD COLUMN IF NOT EXISTS replica_identity text NOT NULL DEFAULT 'FULL';

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

-- The same for a partition that is created or attached later, and for a table that loses its identity, in the transaction
-- that does it. It fails nobody's statement: whoever may not alter the table gets a warning.
CREATE OR REPLACE FUNCTION capture.identify_new_partitions() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('headwater.identifying', true) = 'yes' THEN
        RETURN;
    END IF;
    PERFORM capture.identify_partitions(array_agg(prrelid::regclass), array_agg(coalesce(replica_identity, 'FULL')))
    FROM pg_publication_rel JOIN pg_publication AS p ON p.oid = prpubid
    LEFT JOIN capture.published ON relation = prrelid
    WHERE p.pubname = 'headwater'
    HAVING count(*) > 0;
EXCEPTION WHEN OTHERS THEN
    RAISE WARNING 'A published table or a partition may lack its replica identity: %', SQLERRM;
END
$$;

-- That of earlier releases.
DROP FUNCTION IF EXISTS capture.identify_partitions(regclass[]);

-- Event triggers belong to superusers, and on RDS and Aurora to the owner too. Without it, deploy after adding a
-- partition, or give it the replica identity of its table.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_event_trigger WHERE evtname = 'headwater_new_partitions') THEN
        CREATE EVENT TRIGGER headwater_new_partitions ON ddl_command_end WHEN TAG IN ('CREATE TABLE', 'ALTER TABLE')
        EXECUTE FUNCTION capture.identify_new_partitions();
    END IF;
EXCEPTION WHEN insufficient_privilege THEN
    RAISE WARNING 'New partitions of published tables need their replica identity by hand: %', SQLERRM;
END
$$;

-- A table that is dropped leaves its publication, and its successor of the same name does not enter it. One that is
-- renamed stays in it under a name that Debezium leaves out. Either way changes are lost with nothing to tell of it, so
-- these statements fail. Whoever means them takes the table out of the publication first.
CREATE OR REPLACE FUNCTION capture.refuse_loss_of_published(lost text, becomes text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'The table % is captured into the lake and would %: its changes, and those of a table that takes its '
        'name, would be lost.', lost, becomes
        USING ERRCODE = 'object_in_use',
        HINT = format('If you mean it: ALTER PUBLICATION headwater DROP TABLE %s, and see "A source table that is '
            'replaced" in docs/reliability.md for what follows.', lost);
END
$$;

CREATE OR REPLACE FUNCTION capture.refuse_drop() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF tg_tag IN ('ALTER PUBLICATION', 'DROP PUBLICATION') THEN
        RETURN;
    END IF;
    PERFORM capture.refuse_loss_of_published(format('%I.%I', address_names[1], address_names[2]), 'be dropped')
    FROM pg_event_trigger_dropped_objects()
    WHERE object_type = 'publication relation' AND address_args = ARRAY['headwater'];
END
$$;

CREATE OR REPLACE FUNCTION capture.refuse_rename() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM capture.refuse_loss_of_published(p.name, format('be called %I.%I', n.nspname, c.relname))
    FROM capture.published AS p
    JOIN pg_publication_rel ON prrelid = p.relation
    JOIN pg_publication ON pg_publication.oid = prpubid AND pubname = 'headwater'
    JOIN pg_class AS c ON c.oid = p.relation
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE p.name <> format('%I.%I', n.nspname, c.relname);
END
$$;

DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_event_trigger WHERE evtname = 'headwater_drop') THEN
        CREATE EVENT TRIGGER headwater_drop ON sql_drop EXECUTE FUNCTION capture.refuse_drop();
    END IF;
    IF NOT EXISTS (SELECT FROM pg_event_trigger WHERE evtname = 'headwater_rename') THEN
        CREATE EVENT TRIGGER headwater_rename ON ddl_command_end WHEN TAG IN ('ALTER TABLE', 'ALTER SCHEMA')
        EXECUTE FUNCTION capture.refuse_rename();
    END IF;
EXCEPTION WHEN insufficient_privilege THEN
    RAISE WARNING 'A published table can be dropped or renamed, which ends its capture: %', SQLERRM;
END
$$;
