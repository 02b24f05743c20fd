-- Records which statements of the lake folder's database/ have run in this database. Each statement runs once, in
-- order, and is recorded in the transaction that runs it. The deployment and `headwater db create` both call these
-- procedures.

CREATE TABLE IF NOT EXISTS capture.database_files (
    name text PRIMARY KEY,
    -- How many of the file's statements have run.
    statements_done integer NOT NULL,
    -- Of the statements that have run.
    checksum text NOT NULL,
    -- When the last of them ran; null while the file is not done.
    finished_at timestamptz
);

-- Returns the number at the beginning of a file's name.
CREATE OR REPLACE FUNCTION capture.number_of(file text) RETURNS numeric
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT substring(file FROM '^[0-9]+')::numeric
$$;

-- Returns the advice for a file whose executed statements were changed.
CREATE OR REPLACE FUNCTION capture.what_to_do(known capture.database_files) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT CASE
    WHEN known.finished_at IS NULL THEN 'Give it these statements back, and change only those behind them.'
    ELSE format('Give it its statements back, and write the change into another file of a number above %s.',
        (SELECT max(capture.number_of(name)) FROM capture.database_files))
END
$$;

-- Fails if a new file has no higher number than the files that ran, or if it is one of these under another name. Fails
-- also if there is a new file while a half-run file is missing. ``checksums`` has a checksum over all statements of
-- each file in ``files``.
CREATE OR REPLACE PROCEDURE capture.check_files(files text[], checksums text[])
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    fresh text;
    former text;
    last text;
    half text;
    ran integer;
BEGIN
    SELECT file INTO fresh FROM unnest(files) AS given (file)
    WHERE file NOT IN (SELECT name FROM capture.database_files) ORDER BY capture.number_of(file) LIMIT 1;
    IF fresh IS NULL THEN
        RETURN;
    END IF;
    SELECT name INTO last FROM capture.database_files ORDER BY capture.number_of(name) DESC LIMIT 1;
    IF capture.number_of(fresh) <= capture.number_of(last) THEN
        RAISE EXCEPTION 'database/%: found a new file where % has run, expected a number above %: give it one, or give a '
            'file that was renamed its name back', fresh, last, capture.number_of(last)
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    SELECT name, statements_done INTO half, ran FROM capture.database_files
    WHERE finished_at IS NULL AND NOT name = ANY (files);
    IF half IS NOT NULL THEN
        RAISE EXCEPTION 'database/%: found no such file, expected it before %: its first % statements have run. Put it '
            'back; leave out its other statements if they are not wanted', half, fresh, ran
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    SELECT file, name INTO fresh, former FROM unnest(files, checksums) AS given (file, all_statements)
    JOIN capture.database_files ON checksum = all_statements AND finished_at IS NOT NULL
    WHERE file NOT IN (SELECT name FROM capture.database_files) AND NOT name = ANY (files)
    ORDER BY capture.number_of(file), capture.number_of(name) LIMIT 1;
    IF former IS NOT NULL THEN
        RAISE EXCEPTION 'database/%: found the statements of %, which have run, expected that file under its name. Give '
            'it the name back; if the statements are to run again, keep both files', fresh, former
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
END
$$;

-- Fails if statements of a file were changed after they ran. The file has ``total`` statements. The first checksum is
-- over its first ``first`` statements, and each further checksum is over one more statement.
CREATE OR REPLACE PROCEDURE capture.check_file(file text, total integer, first integer, checksums text[])
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    known capture.database_files;
BEGIN
    SELECT * INTO known FROM capture.database_files WHERE name = file;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF known.finished_at IS NOT NULL AND total <> known.statements_done OR total < known.statements_done THEN
        RAISE EXCEPTION 'database/%: found % statements, expected %, as many as have run on %. %', file, total,
            known.statements_done, coalesce(known.finished_at, now())::date, capture.what_to_do(known)
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    IF known.statements_done NOT BETWEEN first AND first + cardinality(checksums) - 1 THEN
        RETURN;
    END IF;
    IF checksums[known.statements_done - first + 1] <> known.checksum THEN
        RAISE EXCEPTION 'database/%: found the checksum % of its first % statements, expected %, that of the statements '
            'that have run. %', file, left(checksums[known.statements_done - first + 1], 12), known.statements_done,
            left(known.checksum, 12), capture.what_to_do(known)
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    IF known.finished_at IS NULL AND total = known.statements_done THEN
        UPDATE capture.database_files SET finished_at = clock_timestamp() WHERE name = file;
    END IF;
END
$$;

-- Runs one statement of a file and records it, unless it has run already. Before the statement, the procedure runs
-- ``settings``, the file's earlier SET statements. It sets no search path of its own, so that the file can set one. The
-- lock timeout is short, because other queries wait behind a statement that waits for a lock.
CREATE OR REPLACE PROCEDURE capture.run_statement(
    file text, number integer, total integer, checksum text, settings text[], statement text
)
LANGUAGE plpgsql SET lock_timeout = '100ms' AS $$
DECLARE
    setting text;
BEGIN
    INSERT INTO capture.database_files (name, statements_done, checksum) VALUES (file, 0, '') ON CONFLICT DO NOTHING;
    UPDATE capture.database_files AS known
    SET statements_done = number, checksum = run_statement.checksum,
        finished_at = CASE WHEN number = total THEN clock_timestamp() END
    WHERE name = file AND statements_done = number - 1;
    IF FOUND THEN
        FOREACH setting IN ARRAY settings LOOP
            EXECUTE setting;
        END LOOP;
        EXECUTE statement;
    END IF;
END
$$;

REVOKE EXECUTE ON PROCEDURE capture.check_files(text[], text[]), capture.check_file(text, integer, integer, text[]),
    capture.run_statement(text, integer, integer, text, text[], text) FROM PUBLIC;
