"""What a source may do to its capture: a real PostgreSQL, Debezium, Kafka and the sink, with the shipped configuration.
Landed records are decoded as the writer does; no Spark runs."""

from __future__ import annotations

import base64
import datetime as dt
import gzip
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from shutil import copy
from typing import Any, Self

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql
from typer.testing import CliRunner, Result

from custom_resources.connector import RELEASE, RELEASED
from headwater.cli import app
from headwater.contract.model import Contract, History, change_history
from headwater.contract.reading import parse_contract, read_contracts
from headwater.definitions import connectors
from headwater.definitions.connectors import CaptureSettings
from headwater.definitions.source_database import CDC_ROLE, publication_statements
from headwater.errors import UserError
from headwater.lake.decoding.changes import BadRecord, Decoded, columns_tagged
from headwater.lake.decoding.debezium_decoder import PostgresDecoder, decode_lines
from headwater.postgresql.administration import read_again
from headwater.postgresql.conditions import Condition
from headwater.postgresql.gradually import Gradual
from headwater.postgresql.row_images import SESSION, row_images
from headwater.waiting import StuckError, wait_until
from rig.local import postgresql_server
from rig.local.aws import REGION
from rig.local.pipeline import DATABASE, LANDING_BUCKET, Pipeline
from rig.local.processes import ProcessError, occurrences
from tests.background import going_on
from tests.history_analyst import Analyst
from tests.kafka_groups import delete_before
from tests.lake_folders import lake_folder
from tests.lake_format import GATE, collected, reviewed

MIB = 1 << 20
ENDS = ("last_in_data_collection", "incremental")
CONTRACTS = Path(__file__).parent / "capture"
# A value of each type that arrives as the text that PostgreSQL prints.
AS_TEXT = {
    "pg_lsn": "16/B374D848", "xid": "7", "xid8": "77", "cid": "3", "tid": "(0,1)", "pg_snapshot": "10:20:10,14,15",
    "txid_snapshot": "10:20:10,14,15", "jsonpath": '$."a"[*]', "tsquery": "'fat' & 'rat'",
    "aclitem": "pg_monitor=r/pg_monitor", "regclass": "pg_class", "regtype": "integer", "line": "{1,2.5,-3}",
    "lseg": "[(1e-05,-0),(0.0001,4e+22)]", "box": "(3,Infinity),(1,0.1)", "path": "[(0,0),(1e+15,100000)]",
    "polygon": "((0,0),(1,1),(2,0.30000000000000004))", "circle": "<(1.5,2),3>", "int4multirange": "{[1,3),[5,7)}",
    "tstzmultirange": "{[2024-01-01 00:00:00+00,)}", "shop.pair": '(1,"a b")', "shop.spread": "[1.5,2)",
    "shop.pairs": "(2,)", "pg_lsn[]": "{0/1,NULL}", "box[]": "{(3,4),(1,2.5)}", "int4multirange[]": '{"{[1,3)}",NULL}',
    "shop.pair[]": '{"(1,x)",NULL}', "shop.positive[]": "{1,NULL}", "shop.texts[]": '{"{a,b}",NULL}',
    "interval[]": '{"1 year 2 days",NULL}', "money[]": "{$1.50,NULL}", "name[]": "{a,NULL}",
    "varbit(5)[]": "{101,NULL}", "point[]": '{"(1,2)",NULL}', "bit(3)": "000", "varbit(5)": "00101",
    "bit(3)[]": "{000,NULL}", "int2vector": "1 2", "time[]": "{24:00:00,10:24:00.000001,NULL}",
    "timetz[]": "{10:00:00.000001+02,NULL}", "shop.feeling[]": "{sad,NULL}", "elsewhere.label[]": "{007,NULL}",
}  # fmt: skip
# Others, each with a value and what arrives.
ARRIVE: dict[str, tuple[str, Any]] = {
    "interval": ("1 year", "P1Y0M0DT0H0M0S"), "money": ("1.50", "1.50"), "name": ("a b", "a b"), '"char"': ("x", "x"),
    "bit": ("0", False), "inet": ("10.0.0.0/8", "10.0.0.0/8"), "tsvector": ("'a':1", "'a':1"),
    "oid": ("7", 7), "int4range": ("[1,3)", "[1,3)"), "int4range[]": ('{"[1,3)",NULL}', ["[1,3)", None]),
    "inet[]": ("{10.0.0.0/8,NULL}", ["10.0.0.0/8", None]), "shop.mood": ("sad", "sad"),
    "shop.mood[]": ("{sad,NULL}", ["sad", None]), "shop.positive": ("1", 1),
    "shop.texts": ("{a,NULL}", ["a", None]),
    "shop.feeling": ("sad", "sad"), "shop.label": ("7", 7), "elsewhere.label": ("007", "007"),
    "elsewhere.pair": ("both", "both"), "elsewhere.pair[]": ("{both,NULL}", ["both", None]),
    "shop.date": ("soon", "soon"), "date": ("2024-01-01", 19723),
    "point": ("(1,2)", {"x": 1.0, "y": 2.0, "wkb": "AQEAAAAAAAAAAADwPwAAAAAAAABA", "srid": None}),
}  # fmt: skip
KINDS = {**AS_TEXT, **{kind: value for kind, (value, _) in ARRIVE.items()}}
# What a database or a role may set for sessions that ask for nothing else.
SET_BY_OWNER = {
    "bytea_output": "escape", "intervalstyle": "sql_standard", "extra_float_digits": "-3", "datestyle": "German, DMY",
    "timezone": "Asia/Kolkata", "client_encoding": "latin1", "standard_conforming_strings": "off",
    "search_path": "nowhere", "statement_timeout": "1", "lock_timeout": "1", "idle_session_timeout": "2000",
    "idle_in_transaction_session_timeout": "1000", "transaction_timeout": "3000", "default_transaction_read_only": "on",
    "default_transaction_isolation": "serializable", "row_security": "on", "quote_all_identifiers": "on",
}  # fmt: skip
OFFERED = {
    "region": "'eu'", "stock": "1", "ready": "true", "since": "'2024-01-01'", "at": "'2024-01-01 00:00:00+02'",
    "price": "1.5", "place": "'(1,2)'", "tags": "'{a}'", "mood": "'sad'", "lasts": "'1 year 2 days'",
    "data": r"'\x00ff'", "share": "0.1::float8 + 0.2", "extra": "'{}'", "flag": "'1'", "span": "'{[1,3)}'",
}  # fmt: skip
TABLES = (
    r'''
CREATE SCHEMA shop;
CREATE TABLE shop.visits (id integer, visited_on date, place text, PRIMARY KEY (id, visited_on))
    PARTITION BY RANGE (visited_on);
CREATE TABLE shop.visits_january PARTITION OF shop.visits FOR VALUES FROM ('2024-01-01') TO ('2024-02-01');
INSERT INTO shop.visits VALUES (1, '2024-01-05', 'Rome');
CREATE TABLE shop.documents (id integer PRIMARY KEY, title text, body text);
INSERT INTO shop.documents VALUES (0, 'first', '');
CREATE TABLE shop.people (id integer PRIMARY KEY, note text, code text NOT NULL, "Straße" text,
    password text NOT NULL DEFAULT 'hush default', "🔑 key" text, """quoted""" text, "`tick`" text, "Paßwort" text,
    "Größe" text NOT NULL, iban text, token text);
INSERT INTO shop.people VALUES (1, 'a', 'one', {hush});
CREATE TABLE shop.badges (id integer PRIMARY KEY, code text NOT NULL UNIQUE, note text DEFAULT 'none');
CREATE TABLE shop.prices (id integer PRIMARY KEY, net integer, gross integer GENERATED ALWAYS AS (net * 2) STORED);
INSERT INTO shop.prices VALUES (1, 10), (2, 20);
CREATE TYPE shop.mood AS ENUM ('sad');
CREATE TYPE shop.pair AS (a integer, b text);
CREATE TYPE shop.spread AS RANGE (subtype = float8);
CREATE DOMAIN shop.pairs AS shop.pair;
CREATE DOMAIN shop.positive AS integer;
CREATE DOMAIN shop.texts AS text[];
CREATE DOMAIN shop.feeling AS shop.mood;
-- Different types of one name.
CREATE SCHEMA elsewhere;
CREATE DOMAIN shop.label AS integer;
CREATE DOMAIN elsewhere.label AS text;
CREATE TYPE elsewhere.pair AS ENUM ('both');
CREATE DOMAIN shop.date AS text;
CREATE TABLE shop.kinds (id integer PRIMARY KEY, {kinds});
INSERT INTO shop.kinds VALUES (1, {values});
CREATE TYPE shop.nothing AS ENUM ();
CREATE TABLE shop.offers (id integer PRIMARY KEY, region text, stock integer, ready boolean, since date,
    at timestamp with time zone, price numeric, place point, tags text[], mood shop.mood, lasts interval, data bytea,
    share double precision, extra jsonb, flag bit, span int4multirange);
INSERT INTO shop.offers (id) VALUES (1), (2);
INSERT INTO shop.offers VALUES (3, {offered});
'''.replace("{kinds}", ", ".join(f"k{n} {kind}" for n, kind in enumerate(KINDS)))
    .replace("{values}", ", ".join("'" + value.replace("'", "''") + "'" for value in KINDS.values()))
    .replace("{offered}", ", ".join(OFFERED.values()))
    .replace("{hush}", ", ".join(["'hush'"] * 9))
)


class Capture:
    """A running pipeline without a writer, and what it has landed."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self._tables = {contract.table: contract for contract in pipeline.contracts}
        # By key: an object never changes.
        self._read: dict[str, list[str]] = {}
        self._decoded: dict[str, list[dict[str, Any]]] = {}

    def known(self, table: str) -> int:
        """Wait until all of the source's commits so far have landed. Returns how many events of a table there are:
        later ones were committed later."""
        self.await_all_landed()
        return len(self.landed(table))

    def landed(self, table: str) -> list[dict[str, Any]]:
        """Debezium's events of a table that are in S3, in order, without the records that end a reading."""
        return [event for event in self._events(table) if not _is_end(event)]

    def contents(self, table: str) -> list[bytes]:
        """Keys, values and headers of a table's records as they landed."""
        records = [json.loads(line) for line in self._lines(table)]
        contents = [
            part for record in records for part in (record["key"], record["value"], *dict(record["headers"]).values())
        ]
        return [base64.b64decode(part) for part in contents if part]

    def ends(self, table: str) -> list[dict[str, Any]]:
        """The records that end a reading of a table."""
        return [event for event in self._events(table) if _is_end(event)]

    def await_ends(self, table: str, count: int) -> None:
        """Wait until a table was read to its end so many times."""

        def read() -> bool:
            self.pipeline.check()
            return len(self.ends(table)) >= count

        wait_until(f"{table} to be read to its end {count} times", read, poll=0.2)

    def position(self) -> dict[str, Any]:
        """The source connector's stored position in the epoch in which it runs, as Connect gives it."""
        name, epoch = connectors.source_name(self.pipeline.settings), self.pipeline.settings.epoch
        (position,) = (
            stored
            for stored in self.pipeline.connect.offsets(name)
            # The first epoch's positions name none.
            if stored["partition"].get("epoch", "1") == str(epoch)
        )
        return position

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The writer's rows for all landed records."""
        contract = self._tables[table]
        lines = (("topic/0", line) for line in self._lines(table))
        names = [name for name, _ in columns_tagged(contract)]
        return [dict(zip(names, row, strict=True)) for row in decode_lines(lines, PostgresDecoder(contract))]

    def add(self, contract: Contract) -> None:
        """Know a table that was added."""
        self._tables[contract.table] = contract

    def await_alive(self, table: str, titles: Mapping[int, str]) -> None:
        """Wait until the rows that are alive have these titles, by their ids."""
        alive: dict[int, str] = {}

        def there() -> bool:
            nonlocal alive
            self.pipeline.check()
            newest: dict[int, dict[str, Any]] = {}
            floor = ""
            for row in self.rows(table):
                floor = max(floor, row["_floor"] or "")
                if row["_order"] and row["_order"] > newest.get(row["id"], {"_order": ""})["_order"]:
                    newest[row["id"]] = row
            kept = {id_: row for id_, row in newest.items() if row["_order"] > floor and not row["_deleted"]}
            alive = {id_: row["title"] for id_, row in kept.items()}
            return alive == titles

        try:
            wait_until(f"{table} to have {titles}", there, poll=0.2)
        except (ProcessError, StuckError):
            assert alive == titles
            raise

    def topic(self, table: str) -> str:
        """A table's topic."""
        return connectors.topic(self._tables[table])

    def _keys(self, table: str) -> list[str]:
        """The keys of a table's landing objects, in the order of their records. All objects have been read."""
        s3 = self.pipeline.aws.client("s3")
        prefix = f"landing/{self.topic(table)}/"
        listed = s3.list_objects_v2(Bucket=LANDING_BUCKET, Prefix=prefix).get("Contents", [])
        keys = [entry["Key"] for entry in listed]
        for key in keys:
            if key not in self._read:
                body = gzip.decompress(s3.get_object(Bucket=LANDING_BUCKET, Key=key)["Body"].read())
                self._read[key] = body.decode().splitlines()
        return keys

    def _lines(self, table: str) -> list[str]:
        return [line for key in self._keys(table) for line in self._read[key]]

    def _events(self, table: str) -> list[dict[str, Any]]:
        keys = self._keys(table)
        for key in keys:
            if key not in self._decoded:
                records = [json.loads(line) for line in self._read[key]]
                self._decoded[key] = [json.loads(base64.b64decode(record["value"])) for record in records]
        return [event for key in keys for event in self._decoded[key]]

    def await_landed(self, table: str, count: int) -> list[dict[str, Any]]:
        """The events of a table, once there are as many."""

        def complete() -> bool:
            self.pipeline.check()
            return len(self.landed(table)) >= count

        wait_until(f"{count} events of {table} in the landing bucket", complete, poll=0.2)
        return self.landed(table)

    def await_all_landed(self) -> dict[str, int]:
        """Wait until every change that the source has committed so far is in the landing bucket, and return the next
        offset of every ``topic/partition``."""
        # Debezium confirms a transaction with the next one.
        with going_on(self._beat):
            ends = self.pipeline.await_captured()

        def all_landed() -> bool:
            self.pipeline.check()
            return all(self._next_offset(table) >= ends.get(f"{self.topic(table)}/0", 0) for table in self._tables)

        wait_until("all that was captured to be in the landing bucket", all_landed, poll=0.2)
        return ends

    def _beat(self, stop: threading.Event) -> None:
        """Have one transaction follow another, which are no changes of the tables."""
        with self.pipeline.postgres.connect(DATABASE) as owner:
            while not stop.wait(0.2):
                owner.execute("UPDATE capture.heartbeat SET beat_at = clock_timestamp() WHERE id = 1")

    def _next_offset(self, table: str) -> int:
        lines = self._lines(table)
        return int(json.loads(lines[-1])["offset"]) + 1 if lines else 0

    def decode(self, table: str, event: dict[str, Any]) -> Decoded:
        """The writer's rows for an event. Raises BadRecord if it quarantines it."""
        return PostgresDecoder(self._tables[table]).decode(json.dumps(event).encode(), "topic/0/0")


def _is_end(event: dict[str, Any]) -> bool:
    """Whether an event of the connector's own says that a table was read to its end."""
    return event["op"] == "t" and event["source"]["snapshot"] in ENDS


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Capture]:
    folder = tmp_path_factory.mktemp("capture")
    with (
        pytest.MonkeyPatch.context() as patch,
        Pipeline(folder, read_contracts(CONTRACTS), lake_folder(folder / "lake", CONTRACTS), sql=TABLES) as pipeline,
    ):
        # What the command line does not set, ALTER SYSTEM may.
        patch.delitem(postgresql_server.SETTINGS, "max_slot_wal_keep_size")
        pipeline.start_source()
        with pipeline.postgres.connect(DATABASE) as owner:
            for name, value in SET_BY_OWNER.items():
                if owner.execute("SELECT FROM pg_settings WHERE name = lower(%s)", (name,)).fetchone() is not None:
                    setting = f"ALTER ROLE {CDC_ROLE} IN DATABASE {DATABASE} SET {name} = '{value}'"
                    owner.execute(setting.encode())
        pipeline.start_stream()
        pipeline.start_connect()
        running = Capture(pipeline)
        running.await_landed("documents", 1)
        yield running


@pytest.fixture(autouse=True)
def whole(capture: Capture) -> Iterator[None]:
    """Has both connectors run after a test that failed, too, so that it fails no other."""
    yield
    pipeline = capture.pipeline
    for render in (connectors.source_connector, connectors.sink_connector):
        name, config = render(pipeline.contracts, pipeline.settings)
        if pipeline.connect.task_states(name) != ["RUNNING"]:
            pipeline.connect.put(name, config)
            pipeline.connect.await_running(name)


@pytest.fixture
def owner(capture: Capture) -> Iterator[psycopg.Connection]:
    with capture.pipeline.postgres.connect(DATABASE) as connection:
        yield connection


def test_what_the_sink_lands_has_the_reviewed_form(capture: Capture, owner: psycopg.Connection) -> None:
    owner.execute("UPDATE shop.documents SET title = title")
    capture.await_all_landed()
    s3, topic = capture.pipeline.aws.client("s3"), capture.topic("documents")
    assert collected(s3, LANDING_BUCKET, f"landing/{topic}") == reviewed("landing"), GATE


def test_messages_in_the_log_do_not_stop_capture(capture: Capture) -> None:
    before = capture.known("documents")
    with capture.pipeline.application() as anyone:
        for transactional in (True, False):
            for prefix in ("audit", "", "au\ndit", "\u2028"):
                anyone.execute("SELECT pg_logical_emit_message(%s, %s, 'x')", (transactional, prefix))
    with capture.pipeline.postgres.connect(DATABASE) as owner:
        owner.execute("INSERT INTO shop.documents VALUES (20, 'after the messages', '')")
    assert capture.await_landed("documents", before + 1)[-1]["after"]["id"] == 20


def test_values_of_every_type_arrive_in_snapshot_and_changes(capture: Capture, owner: psycopg.Connection) -> None:
    known = capture.known("kinds")
    columns = ", ".join(f"k{n}" for n in range(len(KINDS)))
    owner.execute(f"INSERT INTO shop.kinds (id, {columns}) SELECT 2, {columns} FROM shop.kinds".encode())
    events = capture.await_landed("kinds", known + 1)
    # A raised epoch reads the first row again.
    assert [event["op"] for event in events] == [*["r"] * known, "c"]
    assert known > 0
    texts = ", ".join(f"k{n}::text" for n in range(len(AS_TEXT)))
    printed = owner.execute(f"SELECT {texts} FROM shop.kinds WHERE id = 1".encode()).fetchone() or ()
    expected = dict(zip(KINDS, (*printed, *(arrives for _, arrives in ARRIVE.values())), strict=True))
    for event in events:
        assert {kind: event["after"].get(f"k{n}", "nothing") for n, kind in enumerate(KINDS)} == expected
    # A copy shows rows likewise, without columns of types that it does not know.
    for name, value in SESSION.items():
        owner.execute("SELECT set_config(%s, %s, false)", (name, value))
    (contract,) = (contract for contract in capture.pipeline.contracts if contract.table == "kinds")
    images = row_images(owner, contract)
    with owner.cursor().copy(images.copied(sql.Identifier("shop", "kinds"), sql.SQL("id = 1"))) as copied:
        (image,) = (json.loads(bytes(line)) for line in copied)
    left_out = {f"k{list(KINDS).index(kind)}" for kind in ("money", '"char"', "bit", "tsvector", "point")}
    assert set(images.left_out) == left_out
    assert image == {name: value for name, value in events[0]["after"].items() if name not in left_out}


def offered(*, data: str = "00ff") -> dict[str, Any]:
    """The row of an offer that has all its values, but for its id."""
    return {
        "region": "eu",
        "stock": 1,
        "ready": True,
        "since": 19723,
        "at": "2023-12-31T22:00:00.000000Z",
        "price": "1.5",
        "place": {"x": 1.0, "y": 2.0, "wkb": "AQEAAAAAAAAAAADwPwAAAAAAAABA", "srid": None},
        "tags": ["a"],
        "mood": "sad",
        "lasts": "P1Y0M2DT0H0M0S",
        "data": data,
        "share": 0.30000000000000004,
        "extra": "{}",
        "flag": True,
        "span": "{[1,3)}",
    }


def test_settings_of_a_database_or_a_role_change_no_value(capture: Capture, owner: psycopg.Connection) -> None:
    ends = len(capture.ends("offers"))
    read_again(owner, ["shop.offers"])
    capture.await_ends("offers", ends + 1)
    owner.execute("UPDATE shop.offers SET data = '\\x00fe' WHERE id = 3")
    capture.await_all_landed()
    changes = [event for event in capture.landed("offers") if event["after"] and event["after"]["id"] == 3]
    # The first snapshot, the one of here and those of other tests, and the change.
    assert [change["op"] for change in changes] == [*["r"] * (len(changes) - 1), "u"]
    rows = [*(change["after"] for change in changes[:-1]), changes[-1]["before"], changes[-1]["after"]]
    seen = [{column: row[column] for column in OFFERED} for row in rows]
    assert seen == [*[offered()] * len(changes), offered(data="00fe")]


def test_a_large_transaction_outlasts_the_timeout_of_a_role(capture: Capture, owner: psycopg.Connection) -> None:
    before = capture.known("documents")
    # The server waits within the transaction until the worker takes more of it.
    waiting = (
        "SELECT pid FROM pg_replication_slots JOIN pg_stat_activity ON pid = active_pid"
        f" WHERE slot_name = '{connectors.SLOT}' AND wait_event = 'WalSenderWriteData'"
    ).encode()
    worker = capture.pipeline.connect.pid
    os.killpg(worker, signal.SIGSTOP)
    try:
        document(owner, 15, "slow", 40)
        wait_until("the server to wait", lambda: owner.execute(waiting).fetchone() is not None, poll=0.1)
        sender = owner.execute(waiting).fetchall()
        owner.execute("SELECT pg_sleep(3)")  # the transaction_timeout of the role
        assert owner.execute(waiting).fetchall() == sender
    finally:
        os.killpg(worker, signal.SIGCONT)
    assert len(capture.await_landed("documents", before + 1)) == before + 1


def test_a_table_that_hides_rows_is_not_read_as_empty(capture: Capture, owner: psycopg.Connection) -> None:
    capture.await_all_landed()
    log, connect = capture.pipeline.connect.log, capture.pipeline.connect
    logged, ends = log.stat().st_size, len(capture.ends("prices"))
    owner.execute("ALTER TABLE shop.prices ENABLE ROW LEVEL SECURITY")
    try:
        read_again(owner, ["shop.prices"])
        unread = f"{connectors.UNREAD_TABLE}: shop.prices".encode()
        wait_until("the table to be reported", lambda: unread in log.read_bytes()[logged:], poll=0.2)
    finally:
        owner.execute("ALTER TABLE shop.prices DISABLE ROW LEVEL SECURITY")
    assert len(capture.ends("prices")) == ends
    read_again(owner, ["shop.prices"])
    capture.await_ends("prices", ends + 1)
    assert connect.task_states(connectors.source_name(capture.pipeline.settings)) == ["RUNNING"]


def test_a_change_is_what_it_was_when_its_columns_changed_since(capture: Capture, owner: psycopg.Connection) -> None:
    capture.known("offers")
    # Debezium reads the catalog again at the first change behind a start.
    name = connectors.source_name(capture.pipeline.settings)
    capture.pipeline.connect.restart(name)
    capture.pipeline.connect.await_running(name)
    known = len(capture.rows("offers"))
    seen = len(capture.landed("offers"))
    values = ", ".join(f"{column} = {value}" for column, value in OFFERED.items())
    required = ", ".join(
        f"ALTER {column} SET NOT NULL, ALTER {column} SET DEFAULT {value}" for column, value in OFFERED.items()
    )
    with owner.transaction():
        owner.execute("DELETE FROM shop.offers WHERE id = 2")
        owner.execute(f"UPDATE shop.offers SET {values} WHERE id = 1".encode())
        owner.execute(f"ALTER TABLE shop.offers {required}".encode())
    # Two types of one name, and one that is gone before its values are read.
    with owner.transaction():
        owner.execute("CREATE DOMAIN shop.code AS integer")
        owner.execute("CREATE SCHEMA other")
        owner.execute("CREATE DOMAIN other.code AS text")
        owner.execute("CREATE TYPE shop.former AS ENUM ('old')")
        owner.execute("ALTER TABLE shop.offers ADD code other.code, ADD former shop.former")
        owner.execute("UPDATE shop.offers SET code = '007', former = 'old' WHERE id = 1")
        owner.execute("ALTER TABLE shop.offers ALTER former TYPE text")
        owner.execute("DROP TYPE shop.former")
    capture.await_all_landed()
    nothing = dict.fromkeys(OFFERED)
    changes = [(event["op"], event["before"], event["after"]) for event in capture.landed("offers")[seen:]]
    added = {"code": None, "former": None}
    assert changes == [
        ("d", {"id": 2, **nothing}, None),
        ("u", {"id": 1, **nothing}, {"id": 1, **offered()}),
        ("u", {"id": 1, **offered(), **added}, {"id": 1, **offered(), "code": "007", "former": "old"}),
    ]
    rows = [(row["id"], row["region"], row["_deleted"]) for row in capture.rows("offers")[known:] if row["_op"]]
    assert rows == [(2, None, True), (1, "eu", False), (1, None, True), (1, "eu", False)]


def test_changes_of_partitions_arrive_as_changes_of_their_table(capture: Capture, owner: psycopg.Connection) -> None:
    (snapshot, *_) = capture.await_landed("visits", 1)
    owner.execute("DELETE FROM shop.visits")
    owner.execute("INSERT INTO shop.visits VALUES (1, '2024-01-05', 'Paris')")
    known = capture.known("visits")
    owner.execute("UPDATE shop.visits SET place = 'Oslo'")
    # A partition that is made by CREATE TABLE, and a table with a row that is attached.
    owner.execute(
        "CREATE TABLE shop.visits_march PARTITION OF shop.visits FOR VALUES FROM ('2024-03-01') TO ('2024-04-01')"
    )
    owner.execute("CREATE TABLE shop.visits_may (LIKE shop.visits INCLUDING ALL)")
    owner.execute("INSERT INTO shop.visits_may VALUES (5, '2024-05-05', 'Bern')")
    owner.execute(
        "ALTER TABLE shop.visits ATTACH PARTITION shop.visits_may FOR VALUES FROM ('2024-05-01') TO ('2024-06-01')"
    )
    owner.execute("INSERT INTO shop.visits VALUES (3, '2024-03-05', 'Kyiv')")
    owner.execute("UPDATE shop.visits SET place = 'Lima' WHERE id = 3")
    # The rows that an attached table brings along are in no event. Whoever attaches it touches them.
    owner.execute("UPDATE shop.visits_may SET place = place")
    owner.execute("UPDATE shop.visits SET visited_on = '2024-05-31' WHERE id = 3")  # to another partition
    owner.execute("DELETE FROM shop.visits WHERE id = 5")
    owner.execute("ALTER TABLE shop.visits DETACH PARTITION shop.visits_january")
    owner.execute("UPDATE shop.visits_january SET place = 'nowhere'")
    owner.execute("TRUNCATE shop.visits")
    events = [snapshot, *capture.await_landed("visits", known + 8)[known:]]
    changes = [
        (
            event["op"],
            event["source"]["table"],
            *((image or {}).get("place") for image in (event["before"], event["after"])),
        )
        for event in events
    ]
    assert changes == [
        ("r", "visits", None, "Rome"),
        ("u", "visits", "Paris", "Oslo"),
        ("c", "visits", None, "Kyiv"),
        ("u", "visits", "Kyiv", "Lima"),
        ("u", "visits", "Bern", "Bern"),
        ("d", "visits", "Lima", None),
        ("c", "visits", None, "Lima"),
        ("d", "visits", "Bern", None),
        ("t", "visits", None, None),
    ]
    for event in events:
        capture.decode("visits", event)


def stores(capture: Capture) -> list[bytes]:
    """All that the source connector has sent or logged: the landing bucket, Kafka's topics, the worker's logs."""
    folder = capture.pipeline.folder
    files = [path for part in ("kafka", "connect") for path in (folder / part).rglob("*") if path.is_file()]
    return [*capture.contents("people"), *(path.read_bytes() for path in files)]


def test_hidden_columns_leave_the_database_by_no_name(capture: Capture, owner: psycopg.Connection) -> None:
    seen = [event["after"] for event in capture.landed("people")[: capture.known("people")]]
    hidden = ["Straße", "password", "🔑 key", '"quoted"', "`tick`", "Paßwort", "Größe", "iban", "token"]

    def changed(statement: str, *before: str) -> dict[str, Any]:
        """The row after a statement's change of the row 1, as it landed."""
        known = len(capture.landed("people"))
        for other in before:
            owner.execute(other.encode())
        owner.execute(statement.encode())
        (event,) = capture.await_landed("people", known + 1)[known:]
        seen.extend(row for row in (event["before"], event["after"]) if row)
        return dict(event["after"] or event["before"])

    masked = changed("UPDATE shop.people SET note = 'b'")
    assert masked.keys() == {"id", "note", "code", "Paßwort", "Größe", "iban"}
    assert (masked["note"], masked["Paßwort"], len(masked["iban"])) == ("b", None, 64)
    every = ", ".join(f"{quoted(name)} = 'hush 2'" for name in hidden)
    assert changed(f"UPDATE shop.people SET {every}")["iban"] != masked["iban"]
    # A column that is renamed is hidden as before.
    renamed = changed(
        "UPDATE shop.people SET note = 'c', badge = 'hush 3'",
        "ALTER TABLE shop.people RENAME token TO badge",
        "ALTER TABLE shop.people RENAME iban TO account",
    )
    assert renamed.keys() == {"id", "note", "code", "Paßwort", "Größe", "account"}
    assert len(renamed["account"]) == 64
    # So is one that is renamed while nothing reads the log, and its name is given to another.
    connect, name = capture.pipeline.connect, connectors.source_name(capture.pipeline.settings)
    config = connectors.source_connector(capture.pipeline.contracts, capture.pipeline.settings)[1]
    connect.delete(name)
    wait_until("the source's task to end", lambda: not _slot_is_active(owner))
    owner.execute("UPDATE shop.people SET password = 'hush 4'")
    owner.execute("ALTER TABLE shop.people RENAME password TO secret")
    owner.execute("UPDATE shop.people SET secret = 'hush 5'")
    owner.execute("ALTER TABLE shop.people RENAME code TO password")
    known = len(capture.landed("people"))
    connect.put(name, config)
    connect.await_running(name)
    # A connector that starts again repeats changes: only all of them tell that the last is there.
    capture.await_all_landed()
    seen += [event["after"] for event in capture.landed("people")[known:]]
    assert seen[-1].keys() == {"id", "note", "Paßwort", "Größe", "account"}
    owner.execute("ALTER TABLE shop.people RENAME password TO code")
    # Capture goes on behind a column that is dropped.
    dropped = ("ALTER TABLE shop.people DROP secret", 'ALTER TABLE shop.people DROP "Straße"')
    assert changed("UPDATE shop.people SET note = 'd'", *dropped)["note"] == "d"
    known = len(capture.landed("people"))
    read_again(owner, ["shop.people"])
    seen += [event["after"] for event in capture.await_landed("people", known + 1)[known:]]
    changed("DELETE FROM shop.people")
    assert not any(b"hush" in store for store in stores(capture))
    assert any(row["Größe"] and len(row["Größe"]) == 64 for row in seen)
    log = b"".join(path.read_bytes() for path in (capture.pipeline.folder / "connect").rglob("*.log"))
    assert f"{connectors.UNCONFIRMED_COLUMN}: shop.people.quoted".encode() in log


def quoted(name: str) -> str:
    """A name as an identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'


def test_a_table_with_a_generated_column_is_read_again(capture: Capture, owner: psycopg.Connection) -> None:
    owner.execute("DELETE FROM shop.documents")
    known = capture.known("prices")
    ends = {table: len(capture.ends(table)) for table in ("prices", "documents")}
    read_again(owner, ["shop.prices"])
    read_again(owner, ["shop.documents"])
    events = capture.await_landed("prices", known + 2)[known:]
    assert [(event["op"], event["after"]["net"]) for event in events] == [("r", 10), ("r", 20)]
    for table, count in ends.items():
        capture.await_ends(table, count + 1)
    # Debezium of before ended its task at the next start.
    name, config = connectors.source_connector(capture.pipeline.contracts, capture.pipeline.settings)
    capture.pipeline.connect.delete(name)
    capture.pipeline.connect.put(name, config)
    capture.pipeline.connect.await_running(name)
    owner.execute("UPDATE shop.prices SET net = 11 WHERE id = 1")
    # A connector that starts again repeats changes.
    capture.await_all_landed()
    assert capture.landed("prices")[-1]["after"]["net"] == 11


def test_a_table_that_left_the_publication_stops_no_other(capture: Capture, owner: psycopg.Connection) -> None:
    capture.await_all_landed()
    connect, name = capture.pipeline.connect, connectors.source_name(capture.pipeline.settings)
    log = connect.log.stat().st_size
    owner.execute("ALTER PUBLICATION headwater DROP TABLE shop.prices")
    try:
        connect.restart(name)
        connect.await_running(name)
        owner.execute("INSERT INTO shop.documents VALUES (9100, 'goes on', '')")
        capture.await_all_landed()
        assert capture.landed("documents")[-1]["after"]["id"] == 9100
        assert f"{connectors.GONE_TABLE}: shop.prices".encode() in connect.log.read_bytes()[log:]
    finally:
        owner.execute("ALTER PUBLICATION headwater ADD TABLE shop.prices")


def test_changes_of_rows_that_an_index_identifies_are_put_aside(capture: Capture, owner: psycopg.Connection) -> None:
    capture.await_all_landed()
    known = len(capture.rows("badges"))

    def changes() -> None:
        owner.execute("ALTER TABLE shop.badges REPLICA IDENTITY USING INDEX badges_code_key")
        owner.execute("UPDATE shop.badges SET note = 'y' WHERE id = 7")
        owner.execute("UPDATE shop.badges SET code = 'other' WHERE id = 7")
        owner.execute("UPDATE shop.badges SET id = 8 WHERE id = 7")
        owner.execute("DELETE FROM shop.badges WHERE id = 8")

    owner.execute("INSERT INTO shop.badges VALUES (0, 'zero', 'the row that a delete without its key would end')")
    owner.execute("ALTER EVENT TRIGGER headwater_new_partitions DISABLE")
    try:
        for reset_before_it_is_read in (False, True):
            owner.execute("INSERT INTO shop.badges VALUES (7, 'seven', 'x')")
            if reset_before_it_is_read:
                with owner.transaction():
                    changes()
                    owner.execute("ALTER TABLE shop.badges REPLICA IDENTITY FULL")
            else:
                changes()
                capture.await_all_landed()
                owner.execute("ALTER TABLE shop.badges REPLICA IDENTITY FULL")
    finally:
        owner.execute("ALTER EVENT TRIGGER headwater_new_partitions ENABLE")
    owner.execute("UPDATE shop.badges SET note = 'whole' WHERE id = 0")
    capture.await_all_landed()
    rows = [(row["_op"] or (row["_reason"] or "")[:4], row["id"]) for row in capture.rows("badges")[known:]]
    aside = [("op u", None), ("op d", None), ("op c", None), ("op u", None), ("op d", None)]
    assert rows == [("c", 0), ("c", 7), *aside, ("c", 7), *aside, ("u", 0)]


def document(owner: psycopg.Connection, id_: int, title: str, megabytes: float) -> None:
    """Insert a document, or update it."""
    owner.execute(
        "INSERT INTO shop.documents VALUES (%s, %s, repeat('x', %s))"
        " ON CONFLICT (id) DO UPDATE SET title = excluded.title, body = excluded.body || 'y'",
        (id_, title, int(megabytes * MIB)),
    )


def _seen(capture: Capture, event: dict[str, Any]) -> tuple[str, int, int | str]:
    """Operation, id and megabytes of a document's event, or its refusal, which the writer quarantines."""
    if "refused" not in event:
        capture.decode("documents", event)
        row = event["after"] or event["before"]
        return event["op"], row["id"], len((event["after"] or {}).get("body") or "") // MIB
    with pytest.raises(BadRecord, match=f"op {event['op']} without its after image"):
        capture.decode("documents", event)
    row = event["refused"]["row"]
    assert event["refused"] == {
        "max_bytes": connectors.LARGEST_RECORD,
        "left_out": ["body"],
        "row": {"id": row["id"], "title": row["title"]},
    }
    return event["op"], row["id"], "refused"


def test_records_of_sixteen_megabytes_arrive_and_larger_ones_are_refused_by_name(
    capture: Capture, owner: psycopg.Connection
) -> None:
    before = capture.known("documents")
    document(owner, 10, "large", 15.9)
    document(owner, 10, "again", 15.9)  # Its event would hold both bodies.
    document(owner, 11, "too large", 16.1)
    document(owner, 12, "far too large", 40)
    owner.execute("UPDATE shop.documents SET title = 'smaller', body = '' WHERE id = 12")
    document(owner, 13, "too large", 20)
    for id_ in (10, 13):
        owner.execute("DELETE FROM shop.documents WHERE id = %s", (id_,))
    document(owner, 14, "small", 0.1)
    events = capture.await_landed("documents", before + 9)[before:]
    assert all(len(json.dumps(event)) <= connectors.LARGEST_RECORD for event in events)
    seen = [_seen(capture, event) for event in events]
    assert seen == [
        ("c", 10, 15),
        ("u", 10, 15),
        ("c", 11, "refused"),
        ("c", 12, "refused"),
        ("u", 12, 0),
        ("c", 13, "refused"),
        ("d", 10, 0),
        ("d", 13, 0),
        ("c", 14, 0),
    ]


def test_a_history_shows_the_table_as_of_any_instant_as_its_source_was(
    capture: Capture, owner: psycopg.Connection
) -> None:
    """Real transactions, two of them open at a time, give the table at a thousand instants between their commits."""
    visits = next(contract for contract in capture.pipeline.contracts if contract.table == "visits")
    contract = replace(visits, history=History(keep_days=1))
    history = change_history(contract)
    assert history is not None
    capture.add(history)
    owner.execute("DELETE FROM shop.visits")
    capture.await_all_landed()
    ends = capture.ends("visits")
    for first_day, end in (("2025-01-01", "2025-02-01"), ("2025-02-01", "2025-03-01")):
        owner.execute(
            f"CREATE TABLE shop.visits_{first_day[:7].replace('-', '_')} PARTITION OF shop.visits"
            f" FOR VALUES FROM ('{first_day}') TO ('{end}')".encode()
        )
    rng = Random(11)  # can be repeated, not secret
    known: list[tuple[dt.datetime, dt.datetime, list[tuple[Any, ...]]]] = []

    def now() -> dt.datetime:
        (moment,) = owner.execute("SELECT clock_timestamp()").fetchone() or (None,)
        assert isinstance(moment, dt.datetime)
        return moment

    def held() -> list[tuple[Any, ...]]:
        return owner.execute("SELECT id, visited_on, place FROM shop.visits ORDER BY 1, 2").fetchall()

    with ExitStack() as sessions:
        first, other = (sessions.enter_context(capture.pipeline.postgres.connect(DATABASE)) for _ in range(2))
        first.autocommit = other.autocommit = False
        since, rows = now(), held()
        for _ in range(120):
            # Each has rows of its own, so that none waits for the other.
            for session, ids in ((first, (1, 2, 3)), (other, (4, 5, 6))):
                for _ in range(rng.randint(1, 3)):
                    session.execute(visit(rng, rng.choice(ids)).encode())
                if rng.random() < 0.6:
                    known.append((since, now(), rows))
                    session.commit()
                    since, rows = now(), held()
                    time.sleep(rng.random() / 100)
        first.commit()
        other.commit()
    read_again(owner, ["shop.visits"], None)
    capture.await_ends("visits", len(ends) + 1)
    capture.await_all_landed()
    changes = capture.rows("visits_changes")
    assert [row["_reason"] for row in changes if row["_reason"]] == []
    # The end of the first snapshot, a TRUNCATE where another test has had one, and the end of what was read again.
    floors = [row for row in changes if row["_op"] == "t"]
    assert len(floors) >= len(ends) + 1
    names = [name for name, _ in history.lake_columns()]
    # A change that came again has the same place in the lake.
    stored = {(row["id"], row["visited_on"], row["_order"]): {name: row[name] for name in names} for row in changes}
    analyst = Analyst(contract, pa.Table.from_pylist(list(stored.values())))
    assert {(row["id"], row["visited_on"], row["place"]) for row in analyst.as_of(now())} == set(held())
    begins, _ = analyst.span()
    rounded = dt.timedelta(milliseconds=1)
    spans = [(since + rounded, until - rounded, rows) for since, until, rows in known if since >= begins]
    spans = [span for span in spans if span[0] < span[1]]
    assert len(spans) > 50
    asked_for = [(since + rng.random() * (until - since), rows) for since, until, rows in rng.choices(spans, k=1000)]
    states = analyst.as_of_each([instant for instant, _ in asked_for])
    for (instant, rows), state in zip(asked_for, states, strict=True):
        assert sorted((row["id"], row["visited_on"], row["place"]) for row in state) == rows, instant


def visit(rng: Random, id_: int) -> str:
    """A statement that changes the visits of an id: some take another partition of the source, or of the lake."""
    day, place = f"2025-0{rng.choice((1, 2))}-05", rng.choice(("Rome", "Oslo", "Bern"))
    return rng.choice(
        (
            f"INSERT INTO shop.visits VALUES ({id_}, '{day}', '{place}') ON CONFLICT DO NOTHING",
            f"UPDATE shop.visits SET place = '{place}' WHERE id = {id_}",
            f"DELETE FROM shop.visits WHERE id = {id_} AND visited_on = '{day}'",
        )
    )


class Interruption:
    """A source connector that is killed in the middle of a transaction. It has sent the records before the first one
    that is larger than 20 KB, and could not send that one."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self._pipeline = capture.pipeline
        self.name, self._config = connectors.source_connector(self._pipeline.contracts, self._pipeline.settings)
        self.sent: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        self._before = self._capture.known("documents")
        self._pipeline.connect.delete(self.name)
        self._pipeline.connect.put(self.name, {**self._config, "producer.override.max.request.size": "20000"})
        wait_until("the source to run", lambda: self._task("RUNNING"))
        return self

    def strike(self, sent: int) -> None:
        """Wait until so many records were sent and the next one was not, and kill the worker."""
        wait_until("a record to be too large", lambda: self._task("FAILED"))
        wait_until(f"{sent} records to land", lambda: len(self._new()) >= sent)
        self.sent = self._new()
        assert len(self.sent) == sent
        assert self._capture.position()["offset"]["lsn"] == self.sent[-1]["source"]["lsn"]
        self._pipeline.connect.kill()

    def __exit__(self, *_: object) -> None:
        if not self._pipeline.connect.running:
            self._pipeline.connect.start()
        self._pipeline.connect.put(self.name, self._config)
        wait_until("the source to run", lambda: self._task("RUNNING"))

    def repeated(self, until: int) -> list[dict[str, Any]]:
        """The records that were sent after the kill, up to the insert of a document."""
        seen = self._before + len(self.sent)

        def there() -> bool:
            self._pipeline.check()
            return any((event["after"] or {}).get("id") == until for event in self._capture.landed("documents"))

        wait_until(f"document {until} to land", there, poll=0.2)
        return self._capture.landed("documents")[seen:]

    def _new(self) -> list[dict[str, Any]]:
        return self._capture.landed("documents")[self._before :]

    def _task(self, state: str) -> bool:
        with suppress(UserError):  # A new connector is unknown until the worker has read its configuration.
            return [task["state"] for task in self._pipeline.connect.status(self.name)["tasks"]] == [state]
        return False


def test_a_kill_among_rows_of_a_copy_that_share_an_lsn_loses_none(capture: Capture, owner: psycopg.Connection) -> None:
    """PostgreSQL logs rows of a COPY that go into one page as one record, with one LSN."""
    ids = list(range(1000, 4000))
    with Interruption(capture) as interruption:
        with owner.cursor() as cursor, cursor.copy("COPY shop.documents FROM STDIN") as copy:
            for id_ in ids:
                copy.write_row((id_, "copied", "x" * (30_000 if id_ == 2300 else 10)))
        interruption.strike(sent=1300)
    document(owner, 4000, "after the kill", 0)
    *repeated, _ = interruption.repeated(until=4000)
    sent = {event["after"]["id"]: event["source"] for event in interruption.sent}
    again = {event["after"]["id"]: event["source"] for event in repeated}
    assert sorted(set(ids) - {*sent, *again}) == []
    # The kill was in the middle of rows of one LSN.
    assert sent[2299]["lsn"] == again[2300]["lsn"]
    # All of the transaction came again, and each row with the order that it had.
    assert sorted(again) == ids
    assert {id_: again[id_]["sequence"] for id_ in sent} == {id_: sent[id_]["sequence"] for id_ in sent}


def test_a_kill_between_the_halves_of_a_change_of_a_key_loses_none(capture: Capture, owner: psycopg.Connection) -> None:
    """Debezium sends a delete and an insert for it, which have one LSN."""
    for id_ in range(5000, 5010):
        document(owner, id_, "to be moved", 0)
    with Interruption(capture) as interruption:
        owner.execute(
            "UPDATE shop.documents SET id = id + 100, body = repeat('y', CASE id WHEN 5005 THEN 30000 ELSE 10 END)"
            " WHERE id BETWEEN 5000 AND 5009"
        )
        interruption.strike(sent=11)
    document(owner, 5200, "after the kill", 0)
    *repeated, _ = interruption.repeated(until=5200)
    halves = [(event["op"], (event["after"] or event["before"])["id"]) for event in interruption.sent]
    assert halves[-2:] == [("c", 5104), ("d", 5005)]
    again = [(event["op"], (event["after"] or event["before"])["id"]) for event in repeated]
    expected = [half for id_ in range(5000, 5010) for half in (("d", id_), ("c", id_ + 100))]
    assert [half for half in expected if half not in halves + again] == []
    assert again == expected
    assert [event["source"]["sequence"] for event in repeated[: len(halves)]] == [
        event["source"]["sequence"] for event in interruption.sent
    ]


def test_the_sink_stops_where_retention_overtook_it_and_goes_on_when_that_is_accepted(
    capture: Capture, owner: psycopg.Connection
) -> None:
    pipeline = capture.pipeline
    accepting = replace(pipeline.settings, missing_offsets="accept")
    (topic,) = (name for name in connectors.table_topics(pipeline.contracts, pipeline.settings) if "visits" in name)
    owner.execute(
        "CREATE TABLE shop.visits_august PARTITION OF shop.visits FOR VALUES FROM ('2024-08-01') TO ('2024-09-01')"
    )
    end = capture.await_all_landed()[f"{topic}/0"]
    landed = len(capture.landed("visits"))
    _, sink = pipeline.connector_names
    pipeline.connect.delete(sink)
    for day in range(1, 8):
        owner.execute("INSERT INTO shop.visits VALUES (100, %s, 'Rome')", (dt.date(2024, 8, day),))
    wait_until("seven more records in Kafka", lambda: pipeline.broker.ends([topic])[topic, 0] == end + 7)
    delete_before(pipeline.broker, topic, 0, end + 4)

    def start_sink(settings: CaptureSettings) -> None:
        pipeline.connect.put(*connectors.sink_connector(pipeline.contracts, settings))
        wait_until("the sink to have a task", lambda: bool(tasks()))

    def tasks() -> list[str]:
        with suppress(UserError):  # A new connector is unknown until the worker has read its configuration.
            return [task["state"] for task in pipeline.connect.status(sink)["tasks"]]
        return []

    def start_accepting() -> None:
        start_sink(accepting)
        wait_until("the sink to run", lambda: tasks() == ["RUNNING"])

    expected = f"no record at offset {end} of {topic}-0, .* goes on at {end + 4}.*missing.offsets = accept"
    try:
        start_sink(pipeline.settings)
        with pytest.raises(ProcessError, match=expected):
            capture.await_landed("visits", landed + 1)
        assert len(capture.landed("visits")) == landed
        start_accepting()
        events = capture.await_landed("visits", landed + 3)
        days = [dt.date(1970, 1, 1) + dt.timedelta(event["after"]["visited_on"]) for event in events[landed:]]
        assert days == [dt.date(2024, 8, day) for day in (5, 6, 7)]
    finally:
        start_accepting()
        # The lake does not know the first four.
        owner.execute("DELETE FROM shop.visits WHERE id = 100")
        capture.await_all_landed()
        start_sink(pipeline.settings)
        pipeline.connect.await_running(sink)


NOTES = """
table: notes
description: A table that is added to a running pipeline.
source: {database: postgresql, table: shop.notes}
key: [id]
partition_by: []
buckets: 1
columns:
  - {name: id, type: int, source_type: integer}
  - {name: title, type: string, source_type: text}
"""


def test_a_table_that_is_added_arrives_with_its_rows_while_the_others_go_on(
    capture: Capture, owner: psycopg.Connection
) -> None:
    pipeline, notes = capture.pipeline, parse_contract(NOTES, "notes.yaml")
    owner.execute("CREATE TABLE shop.notes (id integer PRIMARY KEY, title text)")
    owner.execute("INSERT INTO shop.notes SELECT n, 'early' FROM generate_series(1, 3000) AS n")
    before = capture.known("documents")
    contracts = [*pipeline.contracts, notes]
    Gradual(owner).run(publication_statements(contracts))
    owner.execute("UPDATE shop.notes SET title = 'between' WHERE id = 1")
    # A task with the old configuration must not take what waits for the new one.
    name, config = connectors.source_connector(pipeline.contracts, pipeline.settings)
    pipeline.connect.delete(name)
    pipeline.connect.put(name, config)
    pipeline.connect.await_running(name)
    assert awaiting(owner) == ["shop.notes"]
    pipeline.broker.create_topics({connectors.topic(notes): 1}, connectors.topic_config())
    for render in (connectors.sink_connector, connectors.source_connector):
        pipeline.connect.put(*render(contracts, pipeline.settings))
    capture.add(notes)
    owner.execute("DELETE FROM shop.notes WHERE id > 2998")
    owner.execute("UPDATE shop.notes SET title = 'late' WHERE id = 2")
    owner.execute("INSERT INTO shop.documents VALUES (100, 'meanwhile', '')")
    capture.await_alive("notes", {n: {1: "between", 2: "late"}.get(n, "early") for n in range(1, 2999)})
    capture.await_all_landed()
    assert {event["after"]["id"] for event in capture.landed("documents")[before:]} == {100}
    assert awaiting(owner) == []
    # Deployed again, it waits for nothing.
    Gradual(owner).run(publication_statements(contracts))
    assert awaiting(owner) == []


def awaiting(owner: psycopg.Connection) -> list[str]:
    """The published tables whose rows nobody has requested yet."""
    return [name for (name,) in owner.execute("SELECT name FROM capture.published WHERE awaits_rows").fetchall()]


def test_a_table_that_is_read_again_is_as_the_source_whatever_was_lost(
    capture: Capture, owner: psycopg.Connection
) -> None:
    owner.execute("DELETE FROM shop.documents")
    owner.execute("INSERT INTO shop.documents VALUES (1, 'a', ''), (2, 'b', ''), (3, 'c', '')")
    capture.await_alive("documents", {1: "a", 2: "b", 3: "c"})
    with owner.transaction():
        # No event tells of these.
        owner.execute("ALTER PUBLICATION headwater DROP TABLE shop.documents")
        owner.execute("DELETE FROM shop.documents WHERE id = 1")
        owner.execute("UPDATE shop.documents SET title = 'lost' WHERE id = 2")
        owner.execute("INSERT INTO shop.documents VALUES (4, 'lost', '')")
    owner.execute("ALTER PUBLICATION headwater ADD TABLE shop.documents")
    owner.execute("UPDATE shop.documents SET title = 'seen' WHERE id = 3")
    capture.await_alive("documents", {1: "a", 2: "b", 3: "seen"})
    ends = {table: len(capture.ends(table)) for table in ("documents", "visits")}
    # Debezium reads the second together with the first, and keeps the second's id.
    read_again(owner, ["shop.documents"])
    read_again(owner, ["shop.visits"])
    capture.await_alive("documents", {2: "lost", 3: "seen", 4: "lost"})
    owner.execute("DELETE FROM shop.documents")
    read_again(owner, ["shop.documents"])  # an empty table has an end, too
    owner.execute("INSERT INTO shop.documents VALUES (5, 'new', '')")
    capture.await_alive("documents", {5: "new"})
    capture.await_ends("documents", ends["documents"] + 2)
    capture.await_ends("visits", ends["visits"] + 1)


@pytest.fixture
def command(capture: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Result]:
    """Runs headwater with the pipeline's database and the contracts of documents and visits."""
    for name in ("documents.yaml", "visits.yaml"):
        copy(CONTRACTS / name, tmp_path)
    postgres, aws = capture.pipeline.postgres, capture.pipeline.aws
    monkeypatch.setenv("HEADWATER_DB_PASSWORD", postgres.password)
    for name, value in aws.credentials.items():
        monkeypatch.setenv(name, value)
    folder = lake_folder(tmp_path / "lake", tmp_path)
    at = ["--folder", str(folder.root), "--port", str(postgres.port), "--user", "postgres", "--database", DATABASE]

    def run(verb: str, *arguments: str) -> Result:
        reach = ["--host", "127.0.0.1", "--endpoint", aws.s3_endpoint, "--region", REGION, *at]
        given = [verb, *arguments, *reach]
        return CliRunner().invoke(app, given)

    return run


def test_rows_of_a_condition_are_read_again_and_no_others_end(
    capture: Capture, owner: psycopg.Connection, command: Callable[..., Result]
) -> None:
    owner.execute("DELETE FROM shop.documents")
    owner.execute("INSERT INTO shop.documents VALUES (1, 'a', ''), (2, 'it''s 100%', ''), (3, 'c', ''), (4, 'd', '')")
    capture.await_alive("documents", {1: "a", 2: "it's 100%", 3: "c", 4: "d"})
    with owner.transaction():
        owner.execute("ALTER PUBLICATION headwater DROP TABLE shop.documents")
        owner.execute("DELETE FROM shop.documents WHERE id = 1")
        owner.execute("UPDATE shop.documents SET body = 'lost', title = title || ' lost' WHERE id > 1")
    owner.execute("ALTER PUBLICATION headwater ADD TABLE shop.documents")
    asked = command("resync", "documents", "--where", "title LIKE 'it''s 100%%' OR id = 3")
    assert asked.exit_code == 0, asked.output
    assert "Requested a read of 2 rows of documents" in asked.stdout
    capture.await_alive("documents", {1: "a", 2: "it's 100% lost", 3: "c lost", 4: "d"})
    # One that fails while rows are read by it stops nothing.
    read_again(owner, ["shop.documents"], Condition("1 / (id - id) = 1", rows=0))
    # What a condition alone cannot tell, the whole table does.
    command("resync", "documents")
    capture.await_alive("documents", {2: "it's 100% lost", 3: "c lost", 4: "d lost"})
    for refused in ("id =", "1/(id - id) = 1", "id = 2; DROP TABLE shop.visits", "id = 2 -- x", "body ? 'x'", "nr = 1"):
        with pytest.raises(UserError, match=r"--where: found .* expected a condition of SQL"):
            raise command("resync", "documents", "--where", refused).exception or AssertionError(refused)


def test_what_verification_misses_is_read_again(
    capture: Capture, owner: psycopg.Connection, command: Callable[..., Result]
) -> None:
    owner.execute("DELETE FROM shop.documents")
    owner.execute("INSERT INTO shop.documents VALUES (1, 'a', ''), (2, 'b', '')")
    owner.execute(
        "CREATE TABLE shop.visits_july PARTITION OF shop.visits FOR VALUES FROM ('2024-07-01') TO ('2024-08-01')"
    )
    owner.execute("DELETE FROM shop.visits")
    owner.execute("INSERT INTO shop.visits VALUES (7, '2024-07-07', 'Rome')")
    capture.await_all_landed()
    before = {table: len(capture.landed(table)) for table in ("documents", "visits")}
    found = command("verify", "--lake", f"s3://{LANDING_BUCKET}/nothing", "--repair")
    assert found.exit_code == 1, found.output
    assert "Requested a read of 2 rows of documents" in found.stdout
    assert "Requested a read of 1 rows of visits" in found.stdout
    read = {
        table: capture.await_landed(table, before[table] + count)[before[table] :]
        for table, count in (("documents", 2), ("visits", 1))
    }
    assert [(event["op"], event["after"]["id"]) for event in read["documents"]] == [("r", 1), ("r", 2)]
    assert [(event["op"], event["after"]["id"]) for event in read["visits"]] == [("r", 7)]


def test_positions_of_the_first_release_are_gone_on_from(capture: Capture, owner: psycopg.Connection) -> None:
    connect, name = capture.pipeline.connect, connectors.source_name(capture.pipeline.settings)

    def is_behind_a_commit() -> bool:
        capture.await_all_landed()
        return "lsn_commit" in capture.position()["offset"]

    wait_until("a position behind the commit of a change", is_behind_a_commit)
    before = {table: len(capture.landed(table)) for table in ("documents", "visits")}
    connect.request("PUT", f"/connectors/{name}/stop").raise_for_status()
    wait_until("the source to stop", lambda: connect.status(name)["connector"]["state"] == "STOPPED")
    wait_until("the source's task to end", lambda: not _slot_is_active(owner))
    now = capture.position()  # Not before: a heartbeat moves the slot, and then an older position is refused.
    owner.execute("INSERT INTO shop.documents VALUES (9000, 'meanwhile', '')")
    stored = json.loads((CONTRACTS / "offsets_0_1_0.json").read_text())
    place = {field: now["offset"][field] for field in stored["offset"] if field in now["offset"]}
    altered = {"partition": {**stored["partition"], **now["partition"]}, "offset": {**stored["offset"], **place}}
    # The connector adds the epoch to Debezium's partition. The first release had but the first one, which adds nothing.
    assert altered["partition"].keys() - {"epoch"} == stored["partition"].keys()
    request = {"offsets": [altered]}
    for method, body in (("DELETE", None), ("PATCH", request)):
        connect.request(method, f"/connectors/{name}/offsets", body).raise_for_status()
    connect.request("PUT", f"/connectors/{name}/resume").raise_for_status()
    connect.await_running(name)
    events = capture.await_landed("documents", before["documents"] + 1)[before["documents"] :]
    assert [(event["op"], event["after"]["id"]) for event in events] == [("c", 9000)]
    assert len(capture.landed("visits")) == before["visits"]


REFUSALS = {"gone": "is gone", "invalidated": "was invalidated", "made anew": "was made anew"}


class Epochs:
    """A source connector whose slot is lost, in one epoch after another."""

    def __init__(self, capture: Capture) -> None:
        self._pipeline = capture.pipeline
        self._capture = capture

    def put(self, epoch: int) -> None:
        """Deploy the source connector in an epoch."""
        settings = replace(self._pipeline.settings, epoch=epoch)
        self._pipeline.connect.put(*connectors.source_connector(self._pipeline.contracts, settings))

    def await_refusal(self, reason: str) -> None:
        """Wait until the connector fails for a reason."""
        wait_until(
            f"the source to refuse: {reason}",
            lambda: any(task["state"] == "FAILED" and reason in task["trace"] for task in self._tasks()),
        )

    def await_running(self) -> None:
        """Wait until the connector, which has failed, runs."""
        wait_until("the source to run", lambda: [task["state"] for task in self._tasks()] == ["RUNNING"])

    def _tasks(self) -> list[dict[str, Any]]:
        with suppress(UserError):  # The worker is reading its configuration.
            name = connectors.source_name(self._pipeline.settings)
            return list(self._pipeline.connect.status(name)["tasks"])
        return []


def test_a_lost_slot_stops_capture_and_a_raised_epoch_reads_all_rows_again(
    capture: Capture, owner: psycopg.Connection
) -> None:
    epochs, slot = Epochs(capture), connectors.SLOT
    epoch = first = capture.pipeline.settings.epoch
    try:
        for epoch, loss in enumerate(REFUSALS, first + 1):
            owner.execute("DELETE FROM shop.documents")
            owner.execute("INSERT INTO shop.documents VALUES (1, 'seen', ''), (2, 'seen', '')")
            before = capture.known("documents")
            capture.pipeline.connect.delete(connectors.source_name(capture.pipeline.settings))
            wait_until("the slot to be free", lambda: not _slot_is_active(owner))
            owner.execute("UPDATE shop.documents SET title = 'unseen' WHERE id = 1")
            owner.execute("DELETE FROM shop.documents WHERE id = 2")
            if loss == "invalidated":
                _invalidate(owner)
            else:
                owner.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
            if loss == "made anew":
                owner.execute("SELECT pg_logical_emit_message(false, 'fill', 'x')")
                owner.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))
            epochs.put(epoch - 1)
            epochs.await_refusal(f"{connectors.LOST_SLOT}: the replication slot headwater {REFUSALS[loss]}")
            assert len(capture.landed("documents")) == before
            epochs.put(epoch)
            epochs.await_running()
            capture.await_alive("documents", {1: "unseen"})
            owner.execute("UPDATE shop.documents SET title = 'later' WHERE id = 1")
            capture.await_alive("documents", {1: "later"})
        epochs.put(epoch - 1)
        epochs.await_refusal(f"headwater.epoch: found {epoch - 1}, expected at least {epoch}")
    finally:
        capture.pipeline.settings = replace(capture.pipeline.settings, epoch=epoch)
        epochs.put(epoch)
        epochs.await_running()


def test_a_connector_drops_its_slot_before_it_is_deleted_and_reads_on_only_in_another_epoch(
    capture: Capture, owner: psycopg.Connection
) -> None:
    pipeline, epochs = capture.pipeline, Epochs(capture)
    owner.execute("DELETE FROM shop.documents")
    owner.execute("INSERT INTO shop.documents VALUES (1, 'seen', '')")
    before = capture.known("documents")
    epoch = pipeline.settings.epoch
    try:
        name, config = connectors.source_connector(pipeline.contracts, pipeline.settings)
        pipeline.connect.put(name, {**config, RELEASE: "true"})
        released = RELEASED.format(connectors.SLOT).encode()
        wait_until("the slot to be released", lambda: occurrences(pipeline.connect.log, released) == 1)
        assert owner.execute("SELECT count(*) FROM pg_replication_slots").fetchone() == (0,)
        epochs.await_running()
        # However often such a connector starts, it makes no slot.
        pipeline.connect.restart(name)
        wait_until("it to start again", lambda: occurrences(pipeline.connect.log, released) == 2)
        owner.execute("UPDATE shop.documents SET title = 'unseen' WHERE id = 1")
        assert owner.execute("SELECT count(*) FROM pg_replication_slots").fetchone() == (0,)
        epochs.put(epoch)
        epochs.await_refusal(f"{connectors.LOST_SLOT}: the replication slot headwater is gone")
        assert len(capture.landed("documents")) == before
        epochs.put(epoch + 1)
        epochs.await_running()
        capture.await_alive("documents", {1: "unseen"})
    finally:
        pipeline.settings = replace(pipeline.settings, epoch=epoch + 1)
        epochs.put(epoch + 1)
        epochs.await_running()


def _slot_is_active(owner: psycopg.Connection) -> bool:
    row = owner.execute("SELECT bool_or(active) FROM pg_replication_slots").fetchone()
    return bool(row and row[0])


def _invalidate(owner: psycopg.Connection) -> None:
    """Let the server drop the log that the slot holds back."""
    owner.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'")
    owner.execute("SELECT pg_reload_conf()")

    def lost() -> bool:
        owner.execute("SELECT pg_logical_emit_message(false, 'fill', 'x')")
        owner.execute("SELECT pg_switch_wal()")
        owner.execute("CHECKPOINT")
        return owner.execute("SELECT wal_status FROM pg_replication_slots").fetchone() == ("lost",)

    try:
        wait_until("the slot to be lost", lost)
    finally:
        owner.execute("ALTER SYSTEM RESET max_slot_wal_keep_size")
        owner.execute("SELECT pg_reload_conf()")
