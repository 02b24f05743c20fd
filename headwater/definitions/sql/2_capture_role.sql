-- Makes the role of the source connector, with only the rights that its work needs. Its password is set afterwards.

DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'headwater_cdc') THEN
        CREATE ROLE headwater_cdc LOGIN;
    END IF;
END
$$;

-- On RDS and Aurora the right to replicate is a role that is granted. Elsewhere it is an attribute of the role itself.
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'rds_replication') THEN
        GRANT rds_replication TO headwater_cdc;
    ELSE
        ALTER ROLE headwater_cdc REPLICATION;
    END IF;
END
$$;

DO $$
BEGIN
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO headwater_cdc', current_database());
END
$$;

-- Debezium opens and closes the windows of an incremental snapshot with rows of the signal table.
GRANT USAGE ON SCHEMA capture TO headwater_cdc;

GRANT SELECT, UPDATE ON capture.heartbeat TO headwater_cdc;

GRANT SELECT, INSERT, DELETE ON capture.signal TO headwater_cdc;

REVOKE EXECUTE ON FUNCTION capture.read_awaited(text[]) FROM PUBLIC;

GRANT EXECUTE ON FUNCTION capture.read_awaited(text[]) TO headwater_cdc;

REVOKE EXECUTE ON FUNCTION capture.hide_columns(oid, text[]) FROM PUBLIC;

GRANT EXECUTE ON FUNCTION capture.hide_columns(oid, text[]), capture.hidden_columns_of(oid) TO headwater_cdc;
