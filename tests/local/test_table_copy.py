"""``headwater backfill`` brings a table's rows into the lake, while changes come through Debezium, Kafka and S3. The
PostgreSQL is real, and its source connector reads no rows."""

from __future__ import annotations

import gzip
import itertools
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from headwater.contract.model import Contract
from headwater.contract.reading import parse_contract, read_contracts
from headwater.definitions.connectors import NO_DATA, PUBLICATION, SLOT, source_connector
from headwater.definitions.source_database import capture_statements, hidden_column_statements
from headwater.errors import UserError
from headwater.postgresql import copying
from headwater.postgresql.copying import Moment, copy_table
from headwater.waiting import wait_until
from rig.local.aws import REGION
from rig.local.pipeline import DATABASE, LAKE, LAKE_BUCKET, MASK_SECRET, Pipeline
from rig.local.postgresql_server import PostgresqlServer
from tests import programs
from tests.lake_folders import lake_folder
from tests.local.test_types import CONTRACTS, EARLY, EXACT, TABLE, UNFIT, insert, lake_contents, landed_values

CONTRACT = """
table: visits
description: A table of the tests.
source: {database: postgresql, table: shop.visits}
key: [id]
partition_by: []
buckets: 1
columns:
  - {name: id, type: int, source_type: integer}
  - {name: place, type: string, source_type: text}
"""
VISITS = f"""
CREATE SCHEMA shop;
CREATE DOMAIN shop.short AS character varying(9);
CREATE TABLE shop.visits (id integer NOT NULL, place text, code shop.short, point point, twice integer
    GENERATED ALWAYS AS (2 * id) STORED) PARTITION BY RANGE (id);
CREATE TABLE shop.low PARTITION OF shop.visits FOR VALUES FROM (0) TO (5000);
CREATE TABLE shop.high PARTITION OF shop.visits FOR VALUES FROM (5000) TO (20000);
ALTER TABLE shop.low REPLICA IDENTITY FULL;
ALTER TABLE shop.high REPLICA IDENTITY FULL;
INSERT INTO shop.visits SELECT id, 'place ' || id, 'c' || id, point '(1,2)' FROM generate_series(1, 10000) AS id;
CREATE PUBLICATION {PUBLICATION} FOR TABLE shop.visits WITH (publish_via_partition_root);
"""


def test_what_a_table_holds_and_what_changes_meanwhile_is_in_the_lake_in_all_types(tmp_path: Path) -> None:
    def load(owner: psycopg.Connection) -> None:
        insert(owner, 1, EXACT)
        insert(owner, 1001, UNFIT)
        insert(owner, 1501, EARLY)

    folder = lake_folder(tmp_path / "lake", CONTRACTS)
    with Pipeline(tmp_path, read_contracts(CONTRACTS), folder, sql=TABLE, snapshot_mode=NO_DATA) as pipeline:
        pipeline.start(lambda text: nullcontext(), load)
        wait_until("the slot", lambda: captured(pipeline))
        with pipeline.postgres.connect(DATABASE) as owner:
            insert(owner, 2001, {"c_text": ["inserted", "updated", "deleted"]})
            owner.execute("UPDATE shop.things SET c_text = 'by a change' WHERE id IN (1, 2002)")
            owner.execute("DELETE FROM shop.things WHERE id IN (2, 2003)")
        pipeline.await_captured()
        done = backfill(pipeline)
        assert done.returncode == 0, done.stderr
        rows = sum(len(values) for listed in (EXACT, UNFIT, EARLY) for values in listed.values()) - 1 + 2
        assert f"Requested: {rows:,} rows in 1 files of shop.things" in done.stdout
        assert f"Done: the {rows:,} rows are in the lake" in done.stdout
        pipeline.drain()
        first = next(event for event in pipeline.commits())
        assert first["changes"] == rows
        (compared,) = pipeline.verify()
        unfit = sum(len(values) for listed in (UNFIT, EARLY) for values in listed.values())
        assert (compared.missing, compared.extra, compared.different) == (0, 0, 0), compared.examples
        assert compared.unfit == unfit
        assert {json.loads(value)["op"] for value in landed_values(pipeline)} == {"c", "u", "d"}
        s3 = pipeline.aws.client("s3")
        assert "Contents" not in s3.list_objects_v2(Bucket=LAKE_BUCKET, Prefix="exports/")
        raise_epoch(pipeline)
        stored = list(lake_contents(pipeline))
        assert not any(hidden in content for content in stored for hidden in (b"swordfish", b"hunter2"))
        with pipeline.postgres.connect(DATABASE) as owner:
            owner.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots")
            owner.execute(f"ALTER PUBLICATION {PUBLICATION} DROP TABLE shop.things")
        refused = backfill(pipeline)
        assert refused.returncode == 2
        assert re.search(r"shop\.things: found it outside the publication", refused.stderr.replace("\n", " "))


def raise_epoch(pipeline: Pipeline) -> None:
    """With a raised epoch the connector goes on from the slot: a change made while it was down arrives, and has it."""
    source, _ = pipeline.connector_names
    pipeline.connect.delete(source)
    with pipeline.postgres.connect(DATABASE) as owner:
        wait_until("the slot to be free", lambda: not active(owner))
        insert(owner, 5001, {"c_text": ["between two epochs"]})
    raised = replace(pipeline.settings, epoch=2)
    pipeline.connect.put(*source_connector(pipeline.contracts, raised))
    pipeline.connect.await_running(source)
    wait_until("the slot", lambda: captured(pipeline))
    pipeline.drain()
    (compared,) = pipeline.verify()
    assert (compared.missing, compared.extra, compared.different) == (0, 0, 0), compared.examples
    orders = [batch["_order"] for batch in pipeline.lake().table(pipeline.contracts[0])]
    assert max(pa.chunked_array(orders).to_pylist()).startswith("0002")


def active(connection: psycopg.Connection) -> bool:
    return connection.execute("SELECT FROM pg_replication_slots WHERE active").fetchone() is not None


def captured(pipeline: Pipeline) -> bool:
    pipeline.check()
    with pipeline.source() as source:
        return active(source)


def backfill(pipeline: Pipeline) -> subprocess.CompletedProcess[str]:
    server = pipeline.postgres
    options = {
        "--table": "things",
        "--lake": LAKE,
        "--endpoint": pipeline.aws.s3_endpoint,
        "--folder": str(pipeline.lake_folder.root),
        "--host": server.host,
        "--port": str(server.port),
        "--user": server.superuser,
        "--database": DATABASE,
        "--mask-secret": MASK_SECRET,
        "--region": REGION,
    }
    command = [sys.executable, "-m", "headwater.cli", "backfill", *(part for pair in options.items() for part in pair)]
    environment = {
        **pipeline.aws.environment(),
        "HEADWATER_DB_PASSWORD": server.password,
    }
    return programs.run(command, env=environment)


class Database:
    """A database with a captured table, and the rows that a copy reads of it."""

    def __init__(self, server: PostgresqlServer) -> None:
        self._server = server
        self.contract: Contract = parse_contract(CONTRACT, "visits.yaml")
        self.said: list[str] = []
        self.on_file: Callable[[], None] = lambda: None
        self.on_connect: Callable[[int], None] = lambda number: None
        self._connections = itertools.count(1)

    def connect(self) -> psycopg.Connection:
        return self._server.connect("shop")

    def read(self, readers: int = 3, mask_key: bytes | None = None) -> tuple[Moment, list[dict[str, Any]]]:
        """The moment of the copy, and the rows in the order of their files."""
        files: dict[str, list[dict[str, Any]]] = {}

        def store(name: str, body: Any, rows: int) -> None:
            self.on_file()
            body.seek(0)
            files[name] = [json.loads(line) for line in gzip.decompress(body.read()).splitlines()]
            assert len(files[name]) == rows

        self._connections = itertools.count(1)

        def connect() -> psycopg.Connection:
            self.on_connect(next(self._connections))
            return self.connect()

        moment = copy_table(connect, self.contract, store, readers, mask_key, self.said.append)
        return moment, [row for name in sorted(files) for row in files[name]]


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    monkeypatch.setattr(copying, "_PART_BYTES", 64 * 1024)
    monkeypatch.setattr(copying, "_FILE_BYTES", 32 * 1024)
    with PostgresqlServer(tmp_path) as server:
        with server.connect() as admin:
            admin.execute("CREATE DATABASE shop")
        with server.connect("shop") as owner:
            owner.execute(VISITS)
            for statement in capture_statements():
                owner.execute(statement.encode())
            owner.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (SLOT,))
        yield Database(server)


def test_all_partitions_are_read_in_parts_as_of_one_moment(database: Database) -> None:
    with database.connect() as owner:

        def change() -> None:
            owner.execute("UPDATE shop.visits SET place = 'too late' WHERE id % 7 = 0")
            owner.execute("DELETE FROM shop.visits WHERE id % 11 = 0")
            owner.execute("INSERT INTO shop.visits VALUES (15000 + (random() * 4000)::int, 'too late')")

        database.on_file = change
        before = lsn(owner)
        moment, rows = database.read()
        assert before <= moment.lsn <= lsn(owner)
    expected = [{"id": id_, "place": f"place {id_}", "code": f"c{id_}"} for id_ in range(1, 10_001)]
    assert sorted(rows, key=lambda row: row["id"]) == expected
    assert database.said == ["shop.visits: columns left out until a row's next change, because of their types: point"]


def test_transactions_that_were_open_before_are_waited_for_and_their_rows_are_there(database: Database) -> None:
    with database.connect() as writer, database.connect() as idle:
        idle.execute("BEGIN")
        idle.execute("SELECT 1")
        writer.execute("BEGIN")
        writer.execute("INSERT INTO shop.visits VALUES (17000, 'in time')")
        ended = threading.Timer(1.5, lambda: writer.execute("COMMIT"))
        ended.start()
        _, rows = database.read()
        ended.join()
    assert database.said[0].startswith(
        "Waiting for open transactions to end, because they may have written rows already"
    )
    assert 17_000 in {row["id"] for row in rows}


def test_a_slot_that_is_in_the_making_is_no_slot_yet(database: Database) -> None:
    with database.connect() as writer, database.connect() as owner:
        owner.execute("SELECT pg_drop_replication_slot(%s)", (SLOT,))
        writer.execute("BEGIN")
        writer.execute("INSERT INTO shop.visits VALUES (17000, 'open')")
        make = threading.Thread(
            target=lambda: owner.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (SLOT,))
        )
        make.start()
        wait_until("the slot to be in the making", lambda: slots(writer) == 1)
        with pytest.raises(UserError, match=f"found no slot {SLOT}"):
            database.read()
        writer.execute("COMMIT")
        make.join()
        _, rows = database.read()
    assert len(rows) == 10_001


def test_a_table_that_has_been_written_anew_is_read_as_it_is_then(database: Database) -> None:
    with database.connect() as owner:
        owner.execute("BEGIN")
        owner.execute("ALTER TABLE shop.visits ALTER COLUMN place TYPE character varying(99)")
        ended = threading.Timer(1.0, lambda: owner.execute("COMMIT"))
        ended.start()
        _, rows = database.read()
        ended.join()
    assert len(rows) == 10_000


@pytest.mark.parametrize(
    ("table", "statement"),
    [
        ("visits", "VACUUM FULL shop.low"),
        ("plain", "ALTER TABLE shop.plain ALTER COLUMN place TYPE character varying(99)"),
    ],
)
def test_a_table_that_somebody_wants_to_write_anew_is_not_read(database: Database, table: str, statement: str) -> None:
    """The statement waits behind the lock of the command's first connection, and comes before its readers' locks."""
    with database.connect() as owner:
        owner.execute(f"CREATE TABLE shop.plain AS SELECT id, place FROM shop.visits; {publish('shop.plain')}".encode())
    database.contract = parse_contract(CONTRACT.replace("visits", table), f"{table}.yaml")
    with database.connect() as other, database.connect() as watching:
        writing = threading.Thread(target=lambda: other.execute(statement.encode()))

        def begin(number: int) -> None:
            if number == 2:
                writing.start()
                wait_until("it to wait, or to be done", lambda: not writing.is_alive() or waits(watching))

        database.on_connect = begin
        with pytest.raises(UserError, match="found a session that waits to change the table itself"):
            database.read(readers=1)
        writing.join()


def test_names_and_settings_of_any_kind_change_nothing(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    with database.connect() as owner:
        owner.execute("DROP TABLE shop.visits")
        columns = 'id integer PRIMARY KEY, place text, image text, "Odd ""%s"" {0}" uuid, "EMail" text'
        owner.execute(f"CREATE TABLE shop.visits ({columns})".encode())
        owner.execute("INSERT INTO shop.visits VALUES (1, 'Café', 'an image', gen_random_uuid(), 'ann@example.com')")
        owner.execute(publish("shop.visits").encode())
        owner.execute("ALTER DATABASE shop SET quote_all_identifiers = on")
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    database.contract = parse_contract(CONTRACT + "exclude: [email]\n", "visits.yaml")
    _, (row,) = database.read()
    assert row.pop('Odd "%s" {0}')
    assert row == {"id": 1, "place": "Café", "image": "an image"}
    # A column that was renamed since it was recorded as a hidden one stays hidden.
    hides = CONTRACT + "exclude: [email]\nmask: {token: hmac}\n"
    database.contract = parse_contract(hides, "visits.yaml")
    with database.connect() as owner:
        owner.execute("ALTER TABLE shop.visits ADD token text DEFAULT 'hush'")
        for statement in hidden_column_statements([database.contract]):
            owner.execute(statement.encode())
        owner.execute('ALTER TABLE shop.visits RENAME "EMail" TO mail')
        owner.execute("ALTER TABLE shop.visits RENAME token TO secret")
    _, (row,) = database.read(mask_key=b"k" * 32)
    assert (row["secret"], row.get("mail")) == (None, None)
    # Also when a corrected contract is deployed and rolled back.
    for name in ("mail", "email"):
        written = parse_contract(f"{CONTRACT}exclude: [{name}]\n", "visits.yaml")
        with database.connect() as owner:
            for statement in hidden_column_statements([written]):
                owner.execute(statement.encode())
    database.contract = written
    assert "mail" not in database.read()[1][0]
    database.contract = parse_contract(hides, "visits.yaml")
    with database.connect() as owner:
        owner.execute("DROP FUNCTION capture.hidden_columns_of")
    with pytest.raises(UserError, match="an earlier release has prepared: deploy, or run headwater db capture"):
        database.read(mask_key=b"k" * 32)


OTHER_SETTINGS = {
    "bytea_output": "'escape'",
    "intervalstyle": "'sql_standard'",
    "extra_float_digits": "0",
    "datestyle": "'SQL, DMY'",
    "timezone": "'Asia/Kathmandu'",
    "default_transaction_read_only": "on",
    "search_path": "odd, pg_catalog",
    "statement_timeout": "'100ms'",
    "lock_timeout": "'100ms'",
    "idle_in_transaction_session_timeout": "'100ms'",
}
TYPED = {
    "image": ("bytea", "'\\x00ff5c'"),
    "lasts": ("interval", "'1 year -2 months 3 days 04:05:06.7'"),
    "share": ("double precision", "0.1::double precision + 0.2::double precision"),
    "small": ("real", "'3.4028235e38'"),
    "born": ("date", "'2024-02-29'"),
    "seen": ("timestamp with time zone", "'2024-02-29 12:00:00.5+02'"),
    "early": ("timestamp with time zone", "'0044-03-15 12:00:00+00 BC'"),
    "spans": ("interval[]", "'{1 day,02:03:04}'"),
    "known": ("tstzrange", "'[2024-02-29 12:00+02,)'"),
    "named": ("odd.mood", "'fine'"),
    "code": ("odd.code", "'x'"),
    "mail": ("odd.citext", "'Ann'"),
    "mails": ("odd.citext[]", "'{Ann,Bob}'"),
}


def test_settings_of_the_database_change_no_value(database: Database) -> None:
    with database.connect() as owner:
        owner.execute("DROP TABLE shop.visits")
        owner.execute("CREATE SCHEMA odd; CREATE TYPE odd.mood AS ENUM ('fine'); CREATE DOMAIN odd.code AS text")
        # As the extension of that name makes it.
        owner.execute(
            "CREATE TYPE odd.citext; CREATE FUNCTION odd.citext_in(cstring) RETURNS odd.citext"
            " LANGUAGE internal IMMUTABLE STRICT AS 'textin'; CREATE FUNCTION odd.citext_out(odd.citext)"
            " RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'textout'; CREATE TYPE odd.citext"
            " (INPUT = odd.citext_in, OUTPUT = odd.citext_out, LIKE = text, CATEGORY = 'S')"
        )
        owner.execute("CREATE FUNCTION odd.to_json(anyelement) RETURNS json LANGUAGE sql AS $$SELECT '{}'::json$$")
        columns = ", ".join(f"{name} {type_}" for name, (type_, _) in TYPED.items())
        owner.execute(f"CREATE TABLE shop.visits (id integer PRIMARY KEY, place text, {columns})".encode())
        values = ", ".join(value for _, value in TYPED.values())
        owner.execute(f"INSERT INTO shop.visits SELECT id, NULL, {values} FROM generate_series(1, 3) AS id".encode())
        owner.execute(publish("shop.visits").encode())
    _, before = database.read(readers=1)
    with database.connect() as owner:
        for name, value in OTHER_SETTINGS.items():
            owner.execute(f"ALTER DATABASE shop SET {name} = {value}".encode())
    database.on_file = lambda: time.sleep(0.5)
    _, after = database.read(readers=1)
    assert after == before
    assert (before[0]["seen"], before[0]["image"]) == ("2024-02-29T10:00:00.500000Z", "00ff5c")
    assert (before[0]["mail"], before[0]["mails"]) == ("Ann", ["Ann", "Bob"])


def test_whether_a_key_is_unique_is_told_by_the_sources_indexes(database: Database) -> None:
    with database.connect() as owner:
        for index, is_unique in (
            ("CREATE INDEX ON shop.visits (id)", False),
            ("CREATE UNIQUE INDEX ON shop.visits (id, place)", False),
            ("CREATE UNIQUE INDEX ON shop.low (id)", False),
            ("CREATE UNIQUE INDEX ON shop.visits (id)", True),
        ):
            owner.execute(index.encode())
            moment, _ = database.read()
            assert moment.is_unique == is_unique, index


def test_what_is_not_captured_or_cannot_be_read_whole_is_refused(database: Database) -> None:
    with database.connect() as owner:
        reader = database.connect
        owner.execute("CREATE ROLE clerk LOGIN PASSWORD 'clerk'")
        owner.execute("GRANT USAGE ON SCHEMA shop, capture TO clerk")
        owner.execute("GRANT SELECT ON shop.visits, shop.high TO clerk")
        database.connect = lambda: database._server.connect("shop", "clerk", "clerk")  # type: ignore[method-assign]
        with pytest.raises(UserError, match=r"shop\.visits: reading it failed: permission denied for table low"):
            database.read()
        owner.execute("GRANT SELECT ON shop.low TO clerk")
        database.read()
        owner.execute("ALTER TABLE shop.low ENABLE ROW LEVEL SECURITY")
        with pytest.raises(UserError, match="query would be affected by row-level security policy"):
            database.read()
        database.connect = reader  # type: ignore[method-assign]
        owner.execute(f"ALTER PUBLICATION {PUBLICATION} DROP TABLE shop.visits")
        with pytest.raises(UserError, match=f"found it outside the publication {PUBLICATION}, expected in it"):
            database.read()
        owner.execute("SELECT pg_drop_replication_slot(%s)", (SLOT,))
        with pytest.raises(UserError, match=f"found no slot {SLOT}, expected the source connector's"):
            database.read()


def test_a_table_without_partitions_has_no_rows(database: Database) -> None:
    with database.connect() as owner:
        owner.execute("DROP TABLE shop.low, shop.high")
    moment, rows = database.read()
    assert rows == []
    assert moment.lsn > 0


def test_a_reader_that_fails_ends_the_others_and_its_error_is_told(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "_LINES", 10**6)
    files = 0
    ended = threading.Event()
    end = copying._Reading._end

    def told(reading: Any) -> None:
        end(reading)
        ended.set()

    monkeypatch.setattr(copying._Reading, "_end", told)

    def fail() -> None:
        nonlocal files
        files += 1
        if files == 2:
            raise OSError("no room")
        if files > 2:
            # On a slow machine, the others would read on until the failure is known.
            wait_until("the end of the readers", ended.is_set)

    database.on_file = fail
    with pytest.raises(OSError, match="no room"):
        database.read()
    assert files < 6
    with database.connect() as owner:
        wait_until("the readers to be gone", lambda: others(owner) == 0)


def lsn(connection: psycopg.Connection) -> int:
    (found,) = connection.execute("SELECT (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint").fetchone() or (0,)
    return int(found)


def others(connection: psycopg.Connection) -> int:
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'shop' AND pid <> pg_backend_pid()"
    (found,) = connection.execute(query).fetchone() or (0,)
    return int(found)


def waits(connection: psycopg.Connection) -> bool:
    (found,) = connection.execute("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)").fetchone() or (False,)
    return bool(found)


def publish(table: str) -> str:
    return f"ALTER PUBLICATION {PUBLICATION} ADD TABLE {table}"


def slots(connection: psycopg.Connection) -> int:
    (found,) = connection.execute("SELECT count(*) FROM pg_replication_slots").fetchone() or (0,)
    return int(found)
