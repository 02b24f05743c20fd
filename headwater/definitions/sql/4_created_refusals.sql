-- Event triggers that refuse statements which would end the capture of a table. Only databases that the deployment
-- makes get these triggers.

-- If a table is dropped, it leaves the publication, and a new table of the same name does not enter it. If a table is
-- renamed, it stays in the publication under a name that Debezium ignores. In both cases changes would be lost without
-- a message, so these statements fail. To run one on purpose, first take the table out of the publication.
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
