-- Makes the roles of the application and the reader in a database that the deployment makes. Their passwords are set
-- afterwards. The lake folder's SQL gives headwater_app its rights.

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['headwater_app', 'headwater_reader'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) THEN
            EXECUTE format('CREATE ROLE %I LOGIN', name);
        END IF;
    END LOOP;
END
$$;

DO $$
BEGIN
    EXECUTE format('REVOKE ALL ON DATABASE %I FROM PUBLIC', current_database());
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO headwater_app, headwater_reader', current_database());
END
$$;

-- The reader compares source and lake, so it may read every schema and table that the current user creates from now on.
ALTER DEFAULT PRIVILEGES GRANT USAGE ON SCHEMAS TO headwater_reader;

ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO headwater_reader;

GRANT USAGE ON SCHEMA capture TO headwater_reader;

GRANT SELECT ON ALL TABLES IN SCHEMA capture TO headwater_reader;
