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
