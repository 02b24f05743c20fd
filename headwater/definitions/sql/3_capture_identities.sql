-- Sets replica identities when an application alters a captured table or adds a partition. So UPDATE and DELETE still
-- work, and the log has the row before a change. This code runs in the application's own transactions. It takes no lock
-- beyond those of the application's statement, and it never makes a statement fail.

-- Returns the replica identity (FULL or DEFAULT) with which UPDATE and DELETE work and the connector can read the
-- changes: the wanted one, else the other one, else null. DEFAULT needs a primary key that is not deferrable. From
-- PostgreSQL 18 on neither identity may include a generated column, because the publication leaves these columns out.
-- The result is null for a table with columns whose names differ only in capitals or in quotes around them: the source
-- connector would stop at that table.
CREATE OR REPLACE FUNCTION capture.possible_identity(relation oid, wanted text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
WITH refused AS (
    SELECT attnum FROM pg_attribute
    WHERE attrelid = relation AND attgenerated <> '' AND current_setting('server_version_num')::int >= 180000
)
SELECT identity
FROM (
    SELECT 'FULL' WHERE NOT EXISTS (SELECT FROM refused)
    UNION ALL
    SELECT 'DEFAULT' FROM pg_index
    WHERE indrelid = relation AND indisprimary AND indisvalid AND indimmediate
    AND NOT EXISTS (SELECT FROM refused WHERE attnum = ANY (indkey))
) AS possible (identity)
WHERE NOT EXISTS (
    SELECT FROM pg_attribute WHERE attrelid = relation AND attnum > 0 AND NOT attisdropped
    GROUP BY lower(regexp_replace(attname, '^(["''`])(.*)\1$', '\2')) HAVING count(*) > 1
)
ORDER BY identity = wanted DESC LIMIT 1
$$;

-- Takes a table out of the publication, but only if no identity is possible. The function runs with the rights of the
-- publication's owner, and anybody may call it.
CREATE OR REPLACE FUNCTION capture.stop_publishing(relation regclass) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF capture.possible_identity(relation, 'FULL') IS NULL THEN
        EXECUTE format('ALTER PUBLICATION headwater DROP TABLE %s', relation);
    END IF;
END
$$;

-- Gives a captured table or partition its replica identity when a statement creates, attaches or alters it. It runs as
-- the user of that statement, who owns the table. The owner of the schema capture may lack the right.
CREATE OR REPLACE FUNCTION capture.identify_new_partitions() RETURNS event_trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    relation regclass;
    wanted text;
    identity text;
BEGIN
    IF current_setting('headwater.identifying', true) = 'yes' THEN
        RETURN;
    END IF;
    -- Each ALTER TABLE below fires this event trigger.
    PERFORM set_config('headwater.identifying', 'yes', true);
    FOR relation, wanted, identity IN
        -- The published tables that the statement concerns, itself or by a partition.
        WITH concerned AS (
            SELECT DISTINCT prrelid AS root, coalesce(replica_identity, 'FULL') AS wanted
            FROM pg_event_trigger_ddl_commands() AS command
            JOIN pg_publication_rel ON prrelid = coalesce(pg_partition_root(command.objid), command.objid)
            JOIN pg_publication AS p ON p.oid = prpubid AND pubname = 'headwater'
            LEFT JOIN capture.published AS known ON known.relation = prrelid
            WHERE command.classid = 'pg_class'::regclass
        )
        -- Of these and their partitions, those that this transaction has locked, as whatever it creates or attaches: to
        -- alter another one would make it wait, and then make others wait until it ends.
        SELECT DISTINCT CASE WHEN possible IS NULL THEN root ELSE c.oid END AS altered, concerned.wanted, possible
        FROM concerned
        JOIN pg_locks AS held ON coalesce(pg_partition_root(held.relation), held.relation) = root
            AND pid = pg_backend_pid() AND mode = 'AccessExclusiveLock' AND granted
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        JOIN pg_class AS c ON c.oid = held.relation AND relkind IN ('r', 'p')
        CROSS JOIN LATERAL capture.possible_identity(c.oid, concerned.wanted) AS possible
        WHERE relreplident IS DISTINCT FROM lower(left(possible, 1))::"char"
            AND NOT (possible IS NULL AND relreplident = 'i')
        ORDER BY altered
    LOOP
        BEGIN
            IF identity IS NULL THEN
                PERFORM capture.stop_publishing(relation);
                RAISE WARNING 'The table % is captured no more: it has a generated column and no primary key without one, '
                    'or columns whose names differ only in capitals.', relation;
            ELSE
                EXECUTE format('ALTER TABLE %s REPLICA IDENTITY %s', relation, identity);
                IF identity <> wanted THEN
                    RAISE WARNING 'The captured table % got REPLICA IDENTITY %, because % would have its UPDATE and '
                        'DELETE fail. Correct source.replica_identity in its contract.', relation, identity, wanted;
                END IF;
            END IF;
        EXCEPTION WHEN OTHERS THEN
            RAISE WARNING 'The captured table or partition % lacks REPLICA IDENTITY %: %', relation, identity, SQLERRM;
        END;
    END LOOP;
    PERFORM set_config('headwater.identifying', '', true);
EXCEPTION WHEN OTHERS THEN
    RAISE WARNING 'A captured table or a partition may lack its replica identity: %', SQLERRM;
END
$$;

-- Everybody who alters a captured table needs the names and identities of the captured tables, and the functions above.
GRANT USAGE ON SCHEMA capture TO PUBLIC;

GRANT SELECT ON capture.published TO PUBLIC;

GRANT EXECUTE ON FUNCTION capture.possible_identity(oid, text), capture.stop_publishing(regclass) TO PUBLIC;

-- Only superusers may create event triggers, and on RDS and Aurora also members of rds_superuser. Without this trigger,
-- somebody has to set the replica identity of each new partition by hand.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_event_trigger WHERE evtname = 'headwater_new_partitions') THEN
        CREATE EVENT TRIGGER headwater_new_partitions ON ddl_command_end WHEN TAG IN ('CREATE TABLE', 'ALTER TABLE')
        EXECUTE FUNCTION capture.identify_new_partitions();
    END IF;
EXCEPTION WHEN insufficient_privilege THEN
    RAISE WARNING 'New partitions of captured tables need their replica identity by hand: %', SQLERRM;
END
$$;

-- Drops the functions of earlier releases.
DROP FUNCTION IF EXISTS capture.identify_partitions(regclass[]), capture.identify_partitions(regclass[], text[]);
