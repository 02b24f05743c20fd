-- Tables that Debezium needs beside the published tables: a heartbeat, which moves its position on while these are
-- silent, and signals, where a row requests an incremental snapshot.

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

-- The tables that were published by the last deploy, with their names in the contracts and in Debezium.
CREATE TABLE IF NOT EXISTS capture.published (
    relation oid PRIMARY KEY,
    name text NOT NULL,
    -- A table that came to a publication which was read already: its rows are not in the lake until a signal asks for them.
    awaits_rows boolean NOT NULL DEFAULT false,
    -- What PostgreSQL is to log of their rows before a change: FULL or DEFAULT.
    replica_identity text NOT NULL DEFAULT 'FULL'
);

-- Adds the columns that an earlier release's table lacks. ALTER TABLE runs only if it is needed: it waits for every
-- transaction that has altered or created a table, because an event trigger reads capture.published.
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
    name text,
    PRIMARY KEY (relation, number, name)
);

-- Records the columns of a table that now have one of these names. A column keeps all names that contracts have had for
-- it, so that it stays hidden after the rollback of a deploy.
CREATE OR REPLACE FUNCTION capture.hide_columns(captured oid, names text[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
INSERT INTO capture.hidden_columns (relation, number, name)
SELECT captured, attnum, name FROM unnest(names) AS hidden (name)
JOIN pg_attribute ON attrelid = captured AND attnum > 0 AND NOT attisdropped
    AND (attname = name OR lower(attname) = lower(name))
ON CONFLICT DO NOTHING
$$;

-- Returns the hidden columns of a table, by their numbers, with the names that contracts have had for them.
CREATE OR REPLACE FUNCTION capture.hidden_columns_of(captured oid) RETURNS TABLE (number smallint, names text[])
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT number, array_agg(name) FROM capture.hidden_columns WHERE relation = captured GROUP BY number
$$;

-- Returns the first letters of a query without its values, which may be secrets.
CREATE OR REPLACE FUNCTION capture.without_values(query text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT left(regexp_replace(regexp_replace(regexp_replace(query,
    $re$\$(\w*)\$.*?(\$\1\$|$)$re$, '?', 'g'),
    $re$'([^'\\]|''|\\.)*('|$)$re$, '?', 'g'),
    $re$(\m\d[\w.]*)|\s+$re$, ' ', 'g'), 200)
$$;

-- Has all rows of tables read again while their changes go on, and returns the signal's id. The id holds the position
-- of the log before the read. Rows of the lake that are older than this position, and that are not read, are no longer
-- in the source. With an SQL condition, only rows that meet it are read, and no row is deleted in the lake.
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

-- Has the captured tables with awaits_rows read. The source connector calls this function when its task starts.
CREATE OR REPLACE FUNCTION capture.read_awaited(captured text[]) RETURNS text
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
WITH asked AS (
    UPDATE capture.published SET awaits_rows = false
    WHERE awaits_rows AND replace(name, '"', '') = ANY (captured)
    RETURNING name
)
SELECT capture.read_again(array_agg(name ORDER BY name)) FROM asked HAVING count(*) > 0
$$;

-- The replica identity that a table or partition had before it was captured, in the words of ALTER TABLE.
CREATE TABLE IF NOT EXISTS capture.former_identity (
    relation oid PRIMARY KEY,
    clause text NOT NULL
);

-- Returns the replica identity of a table or partition, in the words of ALTER TABLE.
CREATE OR REPLACE FUNCTION capture.identity_of(id oid) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT CASE relreplident WHEN 'd' THEN 'DEFAULT' WHEN 'f' THEN 'FULL' WHEN 'n' THEN 'NOTHING' ELSE coalesce(
    'USING INDEX ' || (
        SELECT quote_ident(i.relname) FROM pg_index JOIN pg_class AS i ON i.oid = indexrelid
        WHERE indrelid = id AND indisreplident
    ),
    'NOTHING') END
FROM pg_class WHERE oid = id
$$;

-- Returns the sessions and prepared transactions that hold a lock on a table, with their queries. Sessions that only
-- read or write rows count if ``rows_too`` is true.
CREATE OR REPLACE FUNCTION capture.holders(id oid, rows_too boolean) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT coalesce(string_agg(holder, ', and '), 'a query that has just ended')
FROM (
    SELECT DISTINCT CASE WHEN held.pid IS NULL
        THEN format('the prepared transaction %L of %s since %s', gid, owner, date_trunc('second', prepared))
        ELSE format('pid %s (%s): %s', held.pid,
            concat_ws(', ', concat_ws(' in ', usename, nullif(application_name, '')),
                coalesce(state, backend_type) || ' since ' || date_trunc('second', coalesce(xact_start, backend_start))),
            capture.without_values(query)) END
    FROM pg_locks AS held
    LEFT JOIN pg_stat_activity USING (pid)
    -- A prepared transaction has no process. It holds a lock on its own number too.
    LEFT JOIN pg_locks AS own ON held.pid IS NULL AND own.pid IS NULL AND own.locktype = 'transactionid'
        AND own.virtualtransaction = held.virtualtransaction
    LEFT JOIN pg_prepared_xacts ON transaction = own.transactionid
    WHERE held.locktype = 'relation' AND held.relation = id AND held.granted AND held.pid IS DISTINCT FROM pg_backend_pid()
    AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND (rows_too OR held.mode NOT IN ('AccessShareLock', 'RowShareLock', 'RowExclusiveLock'))
) AS known (holder)
$$;

-- Ends an autovacuum of a table: PostgreSQL cancels it when another session waits for the table for a second. Reads and
-- writes of rows do not wait behind this lock.
CREATE OR REPLACE FUNCTION capture.end_autovacuum(id oid) RETURNS void
LANGUAGE plpgsql SET lock_timeout = '3s' AS $$
BEGIN
    EXECUTE format('LOCK TABLE ONLY %s IN SHARE UPDATE EXCLUSIVE MODE', id::regclass);
END
$$;

-- Each of the next three functions changes one table or partition, and waits at most 100 ms for its lock. While ALTER
-- TABLE waits, every later query of the table waits behind it. Each call needs a transaction of its own, so that no
-- lock is held during the wait for another lock. If a function does not get the lock, it fails (SQLSTATE 55P03) and
-- says who holds the lock. The functions do not set the search path, because event triggers of the database's owner run
-- in them.

-- Sets the replica identity of a table or partition. With ``notes_former`` it records the former identity.
CREATE OR REPLACE FUNCTION capture.identify(id oid, identity text, notes_former boolean) RETURNS text
LANGUAGE plpgsql SET lock_timeout = '100ms' AS $$
BEGIN
    -- The ALTER TABLE below fires the event trigger.
    PERFORM set_config('headwater.identifying', 'yes', true);
    IF notes_former THEN
        INSERT INTO capture.former_identity VALUES (id, capture.identity_of(id)) ON CONFLICT DO NOTHING;
    END IF;
    PERFORM capture.end_autovacuum(id);
    EXECUTE format('ALTER TABLE %s REPLICA IDENTITY %s', id::regclass, identity);
    PERFORM set_config('headwater.identifying', '', true);
    RETURN identity;
EXCEPTION WHEN lock_not_available THEN
    RAISE EXCEPTION '%', capture.holders(id, true) USING ERRCODE = 'lock_not_available';
END
$$;

-- Publishes all columns and rows of a table, and lets the connector read them.
CREATE OR REPLACE FUNCTION capture.publish(id oid) RETURNS text
LANGUAGE plpgsql SET lock_timeout = '100ms' AS $$
DECLARE
    -- False where the publication leaves out columns or rows, null where it lacks the table.
    is_whole boolean := (
        SELECT prqual IS NULL AND prattrs IS NULL FROM pg_publication_rel JOIN pg_publication AS p ON p.oid = prpubid
        WHERE pubname = 'headwater' AND prrelid = id
    );
    is_read boolean := EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = 'headwater');
BEGIN
    IF is_whole IS NOT TRUE THEN
        PERFORM capture.end_autovacuum(id);
    END IF;
    IF NOT is_whole THEN
        EXECUTE format('ALTER PUBLICATION headwater DROP TABLE %s', id::regclass);
    END IF;
    IF is_whole IS NOT TRUE THEN
        EXECUTE format('ALTER PUBLICATION headwater ADD TABLE %s', id::regclass);
    END IF;
    IF is_whole IS NULL THEN
        -- That of the others was noted when it was changed. Partitions that come later are not noted.
        INSERT INTO capture.former_identity
        SELECT relation, capture.identity_of(relation) FROM capture.with_partitions(id) AS relation ON CONFLICT DO NOTHING;
    END IF;
    EXECUTE format('GRANT SELECT ON %s TO headwater_cdc', id::regclass);
    -- By these names the event trigger sees that one is renamed.
    INSERT INTO capture.published AS known (relation, name, awaits_rows, replica_identity)
    SELECT id, format('%I.%I', nspname, relname), is_read AND is_whole IS NULL, capture.identity_of(id)
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace WHERE c.oid = id
    ON CONFLICT (relation) DO UPDATE
    SET name = excluded.name, awaits_rows = known.awaits_rows OR excluded.awaits_rows,
        replica_identity = excluded.replica_identity;
    RETURN id::regclass::text;
EXCEPTION WHEN lock_not_available THEN
    RAISE EXCEPTION '%', capture.holders(id, false) USING ERRCODE = 'lock_not_available';
END
$$;

-- Takes a table out of the publication, and the connector's rights on it away.
CREATE OR REPLACE FUNCTION capture.withdraw(id oid) RETURNS text
LANGUAGE plpgsql SET lock_timeout = '100ms' AS $$
BEGIN
    IF EXISTS (
        SELECT FROM pg_publication_rel JOIN pg_publication AS p ON p.oid = prpubid
        WHERE pubname = 'headwater' AND prrelid = id
    ) THEN
        PERFORM capture.end_autovacuum(id);
        EXECUTE format('ALTER PUBLICATION headwater DROP TABLE %s', id::regclass);
    END IF;
    IF EXISTS (SELECT FROM pg_class WHERE oid = id) THEN
        EXECUTE format('REVOKE ALL ON %s FROM headwater_cdc', id::regclass);
    END IF;
    DELETE FROM capture.published WHERE relation = id;
    RETURN id::regclass::text;
EXCEPTION WHEN lock_not_available THEN
    RAISE EXCEPTION '%', capture.holders(id, false) USING ERRCODE = 'lock_not_available';
END
$$;

-- Returns a table and all its partitions without locking them, as pg_partition_tree would.
CREATE OR REPLACE FUNCTION capture.with_partitions(id oid) RETURNS SETOF oid
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
WITH RECURSIVE tree (relation) AS (
    SELECT id
    UNION ALL
    SELECT inhrelid FROM tree JOIN pg_inherits ON inhparent = relation AND NOT inhdetachpending
    JOIN pg_class AS c ON c.oid = inhrelid AND relispartition
)
SELECT relation FROM tree JOIN pg_class AS c ON c.oid = relation AND relkind IN ('r', 'p')
$$;

-- Returns the changes that are left until exactly these tables are captured with these replica identities (FULL or
-- DEFAULT). Each row has a table or partition, and a statement. The function takes no lock. A table is published only
-- after all its partitions have their identity, because PostgreSQL refuses the UPDATE and DELETE of a published table
-- without an identity.
CREATE OR REPLACE FUNCTION capture.changes(wanted regclass[], identities text[])
RETURNS TABLE (place text, statement text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
WITH listed (id, identity) AS (SELECT * FROM unnest(wanted::oid[], identities)),
misidentified AS (
    SELECT listed.id AS root, c.oid AS id, identity
    FROM listed CROSS JOIN LATERAL capture.with_partitions(listed.id) AS relation
    JOIN pg_class AS c ON c.oid = relation AND relreplident <> lower(left(identity, 1))::"char"
),
granted (id, privilege) AS (
    SELECT c.oid, privilege_type FROM pg_class AS c CROSS JOIN LATERAL aclexplode(relacl)
    JOIN pg_roles AS r ON r.oid = grantee AND rolname = 'headwater_cdc'
),
published (id, is_whole) AS (
    SELECT prrelid, prqual IS NULL AND prattrs IS NULL FROM pg_publication_rel
    JOIN pg_publication AS p ON p.oid = prpubid WHERE pubname = 'headwater'
)
SELECT id::regclass::text, format('SELECT capture.identify(%L::regclass, %L, true)', id::regclass, identity) FROM misidentified
UNION ALL
SELECT id::regclass::text, format('SELECT capture.publish(%L::regclass)', id::regclass) FROM listed
WHERE id NOT IN (SELECT root FROM misidentified) AND NOT (
    EXISTS (SELECT FROM published WHERE published.id = listed.id AND is_whole)
    AND EXISTS (SELECT FROM granted WHERE granted.id = listed.id AND privilege = 'SELECT')
    AND EXISTS (
        SELECT FROM capture.published AS known JOIN pg_class AS c ON c.oid = relation
        JOIN pg_namespace AS n ON n.oid = relnamespace
        WHERE relation = listed.id AND name = format('%I.%I', nspname, relname) AND replica_identity = identity
    )
)
UNION ALL
SELECT id::regclass::text, format('SELECT capture.withdraw(%L::regclass)', id::regclass)
FROM (
    SELECT id FROM published
    UNION SELECT id FROM granted
    UNION SELECT relation FROM capture.published
) AS captured
WHERE id NOT IN (SELECT id FROM listed)
AND id NOT IN (SELECT oid FROM pg_class WHERE relnamespace = 'capture'::regnamespace)
$$;

-- Returns the tables and partitions whose replica identity differs from the one before their capture, each with the
-- clause that restores the former one. For a partition that came later, this is PostgreSQL's default.
CREATE OR REPLACE FUNCTION capture.identities_to_give_back() RETURNS TABLE (id oid, place text, clause text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT c.oid, c.oid::regclass::text, coalesce(own.clause, 'DEFAULT')
FROM (
    SELECT DISTINCT below FROM capture.former_identity
    CROSS JOIN LATERAL capture.with_partitions(former_identity.relation) AS below
) AS tree
JOIN pg_class AS c ON c.oid = below AND relreplident IN ('f', 'd') AND relnamespace <> 'capture'::regnamespace
LEFT JOIN capture.former_identity AS own ON own.relation = c.oid
WHERE capture.identity_of(c.oid) <> coalesce(own.clause, 'DEFAULT')
$$;
