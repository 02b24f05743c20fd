-- What keeps capture whole when tables change: event triggers, which belong to superusers, and on RDS and Aurora to the
-- owner too.

-- Gives a partition that is created or attached later its replica identity, and a table that loses it, in the transaction
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

-- That of earlier releases.
DROP FUNCTION IF EXISTS capture.identify_partitions(regclass[]);
