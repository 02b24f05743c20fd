"""Reading a real PostgreSQL in bunches, beside its other work: which rows are read, how many at once, and how long."""

from __future__ import annotations

import datetime as dt
import tempfile
import time
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql
from psycopg.pq import TransactionStatus

from headwater.commands import sources
from headwater.commands.postgresql import CredentialsRefused
from headwater.commands.verify import _Postgresql
from headwater.contract.model import Contract
from headwater.contract.reading import from_document
from headwater.errors import UserError
from headwater.verify import PostgresqlSource, paced_reader
from headwater.verify.bunches import Bunch, Pace
from headwater.verify.forms import Row
from headwater.verify.paced_reader import PacedReader, Work, copied
from headwater.verify.postgresql_source import PostgresqlTable
from headwater.waiting import wait_until
from rig.local.postgresql_server import PostgresqlServer

DATABASE = "bunches"


@pytest.fixture(scope="module")
def database(postgres: PostgresqlServer) -> str:
    with postgres.connect() as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
        connection.execute(f"CREATE DATABASE {DATABASE}")
        # Keys have to be read as they were written, whatever a server is set to.
        connection.execute(f"ALTER DATABASE {DATABASE} SET timezone = 'Asia/Kathmandu'")
        connection.execute(f"ALTER DATABASE {DATABASE} SET datestyle = 'SQL, DMY'")
        connection.execute(f"ALTER DATABASE {DATABASE} SET intervalstyle = 'sql_standard'")
    return DATABASE


@pytest.fixture
def source(postgres: PostgresqlServer, database: str) -> Iterator[psycopg.Connection]:
    """A connection to a database without tables."""
    with postgres.connect(database) as connection:
        yield connection
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")


def contract_of(key: dict[str, str | tuple[str, str]], **columns: str | tuple[str, str]) -> Contract:
    """A contract of the table ``things``; some columns are its key. A type is one text if lake and source have the same
    name for it."""
    named = {
        name: types if isinstance(types, tuple) else (types, "integer" if types == "int" else "text")
        for name, types in {**key, **columns}.items()
    }
    document = {
        "table": "things",
        "description": "For a test.",
        "source": {"database": "postgresql", "table": "public.things"},
        "key": list(key),
        "partition_by": [],
        "buckets": 1,
        "columns": [{"name": name, "type": type_, "source_type": source} for name, (type_, source) in named.items()],
    }
    return from_document(document, "things.yaml")


BY_ID = contract_of({"id": "int"}, value="string")


def table_of(
    source: psycopg.Connection, contract: Contract = BY_ID, query: str | None = None, share: float = 0.5
) -> PostgresqlTable:
    """The table ``things``, at a pace whose clock stands still."""
    return PostgresqlTable(contract, source, query, share=share, pace=Pace(lambda: 0.0))


def keys_of(bunches: Iterable[Bunch]) -> list[Row]:
    return [key for bunch in bunches for key in bunch]


def things(source: psycopg.Connection, rows: int, key: str = "PRIMARY KEY") -> None:
    source.execute(f"CREATE TABLE things (id integer {key}, value text)".encode())
    source.execute("INSERT INTO things SELECT number, 'a' FROM generate_series(1, %s) AS number", (rows,))


# Lake type, PostgreSQL type, the lake's value, and a neighbour that must not be taken for it.
KEYS: list[tuple[str, str, object, str]] = [
    ("int", "smallint", -32768, "32767"),
    ("bigint", "bigint", 2**63 - 1, "9007199254740993"),
    ("date", "date", dt.date(2024, 2, 29), "2024-03-01"),
    ("string", "integer", "-7", "7"),
    ("string", "numeric", "1.50", "1.500001"),
    ("string", "numeric", "NaN", "0"),
    ("string", "date", "2024-02-29", "2024-02-28"),
    ("string", "date", "0044-03-15 BC", "0044-03-15"),
    ("string", "date", "12024-02-29", "2024-02-29"),
    ("string", "date", "-infinity", "infinity"),
    ("string", "time without time zone", "24:00:00", "00:00:00"),
    ("string", "time without time zone", "00:00:00.000001", "00:00:00"),
    ("string", "timestamp without time zone", "2024-02-29T12:00:00.5", "2024-02-29 12:00:00.500001"),
    ("string", "timestamp without time zone", "0044-03-15 10:00:00 BC", "0044-03-15 10:00:00"),
    ("string", "timestamp without time zone", "1969-12-31T23:59:59.999999", "1970-01-01 00:00:00"),
    ("string", "timestamp with time zone", "2024-02-29T10:00:00.000001Z", "2024-02-29 10:00:00+00"),
    ("string", "timestamp with time zone", "0044-03-15 10:00:00+00 BC", "0044-03-15 10:00:00+00"),
    ("string", "timestamp with time zone", "infinity", "-infinity"),
    ("string", "interval", "P0Y10M3DT4H5M6.7S", "10 mons 3 days 04:05:06.7001"),
    ("string", "interval", "P0Y0M-1DT-2H0M-0.5S", "-1 days +02:00:00.5"),
    ("string", "interval", "P178000000Y0M0DT0H0M0S", "1 year"),
    ("string", "uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a12"),
    ("string", "enum", "it's", "ok"),
    ("string", "character(4)", "ab  ", "abc"),
    ("string", "character varying(4)", "ab", "ab "),
    ("string", "text", "a\tb\\ ''\" %s é ", "a"),
    ("string", "text", "", " "),
    ("string", "int4range", "[1,4)", "[1,5)"),
    ("string", "tstzrange", '["2024-02-29 10:00:00+00",)', "empty"),
    ("string", "jsonb", '{"a": [null, "\\""], "b": 1.50}', "{}"),
]  # fmt: skip


class TestKeys:
    @pytest.mark.parametrize(("type_", "source_type", "value", "neighbour"), KEYS)
    def test_a_key_that_the_lake_has_asks_for_its_row_and_no_other(
        self, source: psycopg.Connection, type_: str, source_type: str, value: object, neighbour: str
    ) -> None:
        source.execute("CREATE TYPE enum AS ENUM ('it''s', 'ok')")
        source.execute(f"CREATE TABLE things (id {source_type} PRIMARY KEY)".encode())
        insert = f"INSERT INTO things VALUES (%s::text::{source_type})".encode()
        source.execute(insert, (neighbour,))
        table = table_of(source, contract_of({"id": (type_, source_type)}))
        (other,) = keys_of(table.bunches(10))
        key = tuple(table.fields[0].lake_forms(pa.array([value])))
        asked = table.asked_of(key)
        assert asked is not None
        assert keys_of(table.rows_at([asked])) == []

        with source.transaction():
            source.execute("SET LOCAL timezone = 'UTC'")
            source.execute(insert, (str(value),))
        (bunch,) = table.rows_at([asked])
        assert list(bunch) == [key]
        assert keys_of(table.rows_at([bunch[key].asked])) == [key]
        assert set(keys_of(table.bunches(1))) == {key, other}

    def test_a_key_of_several_columns_asks_for_its_row(self, source: psycopg.Connection) -> None:
        source.execute("CREATE TABLE things (a date, b text, c integer, PRIMARY KEY (a, b, c))")
        source.execute(
            "INSERT INTO things VALUES ('2024-02-29', 'x', 1), ('2024-02-29', 'x', 2), ('2024-03-01', 'x', 1)"
        )
        table = table_of(source, contract_of({"a": ("string", "date"), "b": "string", "c": "int"}))
        keys = sorted(keys_of(table.bunches(10)))
        assert len(keys) == 3
        asked = table.asked_of(keys[1])
        assert asked == ("2024-02-29", "x", "2")
        assert keys_of(table.rows_at([asked, ("2024-02-29", "y", "1")])) == [keys[1]]

    def test_a_padded_key_is_that_of_the_row_whatever_blanks_ask_for_it(self, source: psycopg.Connection) -> None:
        source.execute("CREATE TABLE things (id character(4) PRIMARY KEY)")
        source.execute("INSERT INTO things VALUES ('ab')")
        table = table_of(source, contract_of({"id": ("string", "character(4)")}))
        assert keys_of(table.rows_at([("ab",), ("ab  ",), ("abcde",)])) == [("ab  ",)]

    @pytest.mark.parametrize(
        ("source_type", "bad"),
        [
            ("integer", ["x", "", "99999999999", "\0"]),
            ("uuid", ["a0eebc99", "\ud800"]),
            ("date", ["2024-02-30", "99999999-01-01"]),
            ("text", ["\0"]),
        ],
    )
    def test_keys_that_postgresql_cannot_read_are_no_rows_and_hide_no_others(
        self, source: psycopg.Connection, source_type: str, bad: list[str]
    ) -> None:
        good = {"integer": "7", "uuid": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "date": "2024-02-29", "text": "a"}
        source.execute(f"CREATE TABLE things (id {source_type} PRIMARY KEY)".encode())
        source.execute(f"INSERT INTO things VALUES ('{good[source_type]}')".encode())
        table = table_of(source, contract_of({"id": ("string", source_type)}))
        asked = [(text,) for text in [bad[0], good[source_type], *bad]]
        assert len(keys_of(table.rows_at(asked))) == 1
        assert keys_of(table.rows_at(asked[2:])) == []

    def test_what_a_query_does_not_compute_is_no_fault_of_the_key(self, source: psycopg.Connection) -> None:
        things(source, 2)
        table = table_of(source, query="SELECT id, (100 / (id - 1))::text AS value FROM things")
        with pytest.raises(UserError, match=r"reading public.things failed: division by zero \(22012\)"):
            keys_of(table.rows_at([("1",)]))
        wrong = table_of(source, query="SELECT id, value FROM things WHERE id = 'a'")
        with pytest.raises(UserError, match=r"invalid text representation \(22P02\)"):
            keys_of(wrong.rows_at([("1",)]))

    def test_nothing_is_asked_where_no_key_is(self, source: psycopg.Connection) -> None:
        # There is no table.
        assert list(table_of(source).rows_at([])) == []


class TestBunches:
    def test_all_rows_come_in_the_order_of_their_index_at_most_so_many_at_once(
        self, source: psycopg.Connection
    ) -> None:
        things(source, 2500)
        bunches = list(table_of(source).bunches(1200))
        assert [len(bunch) for bunch in bunches] == [1000, 1200, 300]
        assert keys_of(bunches) == [(id_,) for id_ in range(1, 2501)]

    def test_they_go_on_behind_a_row(self, source: psycopg.Connection) -> None:
        things(source, 10)
        table = table_of(source)
        first = next(iter(table.bunches(4)))
        *_, last = first.values()
        assert keys_of(table.bunches(4, last.asked)) == [(id_,) for id_ in range(5, 11)]

    def test_rows_that_come_and_go_meanwhile_leave_no_other_out(self, source: psycopg.Connection) -> None:
        things(source, 10)
        bunches = table_of(source).bunches(3)
        keys = list(next(bunches))
        source.execute("DELETE FROM things WHERE id IN (3, 6)")
        source.execute("INSERT INTO things VALUES (0, 'a'), (11, 'a'), (12, 'a'), (13, 'a')")
        assert keys + keys_of(bunches) == [(id_,) for id_ in (1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13)]

    def test_the_order_is_that_of_the_index_not_of_the_contracts_key(self, source: psycopg.Connection) -> None:
        source.execute("CREATE TABLE things (a integer, b integer, c integer NOT NULL, PRIMARY KEY (b, a))")
        source.execute("INSERT INTO things SELECT n % 3, n / 3, n FROM generate_series(0, 8) AS n")
        source.execute("ANALYZE things")
        bunches = list(table_of(source, contract_of({"a": "int", "c": "int", "b": "int"})).bunches(2))
        assert [len(bunch) for bunch in bunches] == [2, 2, 2, 2, 1]
        assert keys_of(bunches) == [(n % 3, n, n // 3) for n in range(9)]

    @pytest.mark.parametrize("index", ["(id) WHERE id > 2", "((id + 0))", "(value)", "(id, value)"])
    def test_a_table_without_an_index_that_tells_its_rows_apart_is_read_whole(
        self, source: psycopg.Connection, index: str
    ) -> None:
        things(source, 5, key="NOT NULL")
        source.execute("UPDATE things SET value = id")
        source.execute("ALTER TABLE things ALTER value SET NOT NULL")
        source.execute(f"CREATE UNIQUE INDEX ON things {index}".encode())
        assert keys_of(table_of(source).rows_at([("4",), ("9",)])) == [(4,)]
        bunches = table_of(source).bunches(2)
        first = next(bunches)
        source.execute("DELETE FROM things")
        assert [len(bunch) for bunch in (first, *bunches)] == [2, 2, 1]

    @pytest.mark.parametrize("index", ["", "CREATE UNIQUE INDEX ON things (id)"])
    def test_a_row_without_a_key_is_told(self, source: psycopg.Connection, index: str) -> None:
        things(source, 5, key="")
        source.execute("INSERT INTO things VALUES (NULL, 'swordfish')")
        source.execute(index.encode() or b"SELECT 1")
        with pytest.raises(UserError, match="things: found a row whose id is null, expected a value"):
            keys_of(table_of(source).bunches(2))

    def test_a_key_that_a_query_repeats_is_told_without_its_value(self, source: psycopg.Connection) -> None:
        with pytest.raises(UserError, match=r"things: the source has a key twice, expected once: .*\(id\)") as raised:
            keys_of(table_of(source, query="SELECT 77 AS id, 'a' AS value UNION ALL SELECT 77, 'b'").bunches(5))
        assert "77" not in str(raised.value)

    def test_an_empty_table_has_no_rows(self, source: psycopg.Connection) -> None:
        things(source, 0)
        assert keys_of(table_of(source).bunches(5)) == []
        assert keys_of(table_of(source, query="SELECT * FROM things").bunches(5)) == []

    def test_what_is_not_there_is_told(self, source: psycopg.Connection) -> None:
        with pytest.raises(UserError, match=r"source\.table: found no table public\.things"):
            keys_of(table_of(source).bunches(5))

    def test_long_rows_come_fewer_at_once(self, source: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(paced_reader, "_PIECE_BYTES", 100_000)
        things(source, 300)
        source.execute("UPDATE things SET value = repeat('x', 10000) WHERE id > 100")
        bunches = list(table_of(source).bunches(250))
        assert max(len(bunch) for bunch in bunches[1:]) <= 10
        assert keys_of(bunches) == [(id_,) for id_ in range(1, 301)]
        asked = [(str(id_),) for id_ in range(1, 301)]
        parts = list(table_of(source).rows_at(asked))
        assert max(sum(len(found.row[1]) for found in part.values()) for part in parts) <= 110_000
        assert sorted(keys_of(parts)) == [(id_,) for id_ in range(1, 301)]

    def test_one_row_may_be_longer_than_all_that_is_held(
        self, source: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(paced_reader, "_PIECE_BYTES", 1_000)
        things(source, 3)
        source.execute("UPDATE things SET value = repeat('x', 10000)")
        assert keys_of(table_of(source).bunches(2)) == [(1,), (2,), (3,)]
        assert keys_of(table_of(source).rows_at([("1",), ("2",), ("3",)])) == [(1,), (2,), (3,)]


# What it computes is counted by the server's notices.
COMPUTED = """
CREATE FUNCTION computed() RETURNS integer LANGUAGE plpgsql AS
    $$ BEGIN RAISE NOTICE 'computed'; PERFORM pg_sleep(0.1); RETURN 0; END $$
"""
QUERY = "SELECT id + computed.computed AS id, value FROM computed() CROSS JOIN things"


class TestVerifyWith:
    def test_it_is_computed_once_for_all_its_bunches_and_once_for_all_keys(self, source: psycopg.Connection) -> None:
        things(source, 5)
        source.execute(COMPUTED)
        notices: list[str] = []
        source.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
        table = table_of(source, query=QUERY)
        bunches = table.bunches(2)
        assert len(next(bunches)) == 2
        # Whoever takes a bunch may take hours: nothing is open meanwhile.
        assert source.info.transaction_status is TransactionStatus.IDLE
        assert source.execute("SELECT 1").fetchone() == (1,)
        assert [len(bunch) for bunch in bunches] == [2, 1]
        assert notices == ["computed"]
        assert keys_of(table.rows_at([(str(id_),) for id_ in range(2, 1200)])) == [(2,), (3,), (4,), (5,)]
        assert notices == ["computed"] * 2
        # One cannot be read.
        assert keys_of(table.rows_at([("x",), ("4",)])) == [(4,)]
        assert notices == ["computed"] * 3
        assert keys_of(table.rows_at([("x",), ("y",)])) == []
        assert notices == ["computed"] * 3

    def test_the_server_rests_when_all_was_given(self, source: psycopg.Connection) -> None:
        things(source, 5)
        source.execute(COMPUTED)
        table = table_of(source, query=QUERY)
        for bunches in (table.bunches(2), table.rows_at([("1",), ("2",)])):
            before = table.pace.wait
            next(bunches)
            assert table.pace.wait - before < 0.1
            keys_of(bunches)
            assert table.pace.wait - before >= 0.1

    def test_the_server_rests_where_not_all_is_taken(self, source: psycopg.Connection) -> None:
        things(source, 5)
        source.execute(COMPUTED)
        table = table_of(source, query=QUERY)
        bunches = table.bunches(2)
        next(bunches)
        bunches.close()  # type: ignore[attr-defined]
        assert table.pace.wait >= 0.1

    def test_long_values_come_fewer_at_once(self, source: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(paced_reader, "_PIECE_BYTES", 100_000)
        texts = "'\t\n\\N\\' || chr(233) || chr(128512) || repeat('x', 10000)"
        query = f"SELECT number AS id, {texts} AS value FROM generate_series(1, 50) AS number"
        bunches = list(table_of(source, query=query).bunches(250))
        assert max(map(len, bunches)) == 10
        values = {found.row[1] for bunch in bunches for found in bunch.values()}
        assert values == {"\t\n\\N\\é😀" + "x" * 10000}
        assert sum(map(len, bunches)) == 50

    def test_where_it_cannot_be_kept_is_told(self, source: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(*arguments: object, **options: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(tempfile, "TemporaryFile", full)
        with pytest.raises(UserError, match=r"things: found no room for its rows in .*: No space left on device"):
            keys_of(table_of(source, query="SELECT 1 AS id, 'a' AS value").bunches(2))


class TestPace:
    def test_what_the_server_does_before_the_first_row_is_counted(self, source: psycopg.Connection) -> None:
        pace = Pace(lambda: 0.0)
        reader = PacedReader(source, 0.1, pace)
        reader.part(sql.SQL("COPY (SELECT pg_sleep(0.2)) TO STDOUT").format())
        assert pace.wait >= 0.2 * 9

    def test_what_is_done_with_the_rows_is_not_counted(
        self, source: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        things(source, 100)
        now = [0.0]
        monkeypatch.setattr(paced_reader, "_PIECE_BYTES", 1_000)
        monkeypatch.setattr(time, "perf_counter", lambda: now[0])
        work = Work()
        for _ in copied(source, sql.SQL("COPY things TO STDOUT").format(), work):
            now[0] += 10
        assert now[0] > 50
        assert work.seconds == 0

    def test_what_fails_is_counted(self, source: psycopg.Connection) -> None:
        pace = Pace(lambda: 0.0)
        with pytest.raises(psycopg.DataError):
            PacedReader(source, 0.5, pace).part(sql.SQL("COPY (SELECT pg_sleep(0.2)::text::int) TO STDOUT").format())
        assert pace.wait >= 0.2

    def test_all_tables_of_a_server_have_one_pace(self, source: psycopg.Connection) -> None:
        things(source, 5)
        pace = Pace(lambda: 0.0)
        reader = PostgresqlSource(source, {"things": ""}, None, 0.5, pace)
        first, second = reader.table(BY_ID), reader.table(BY_ID)
        assert first.pace is second.pace is pace
        assert PostgresqlSource(source, {}).table(BY_ID).pace is not pace

    def test_no_parallel_worker_helps(self, source: psycopg.Connection) -> None:
        query = "SELECT 1 AS id, current_setting('max_parallel_workers_per_gather') AS value"
        (bunch,) = table_of(source, query=query).bunches(1)
        assert [found.row for found in bunch.values()] == [(1, "0")]


class TestErrors:
    def test_a_statement_that_waits_too_long_is_ended_and_says_so(
        self, postgres: PostgresqlServer, source: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        things(source, 5)
        table = table_of(source)
        monkeypatch.setattr(paced_reader, "STATEMENT_MINUTES", 0.005)
        monkeypatch.setattr(paced_reader, "PASS_MINUTES", 0.005)
        with postgres.connect(DATABASE) as other, other.transaction():
            other.execute("LOCK TABLE things")
            for minutes, begin in (
                (15, partial(table.bunches, 2)),
                (15, partial(table.rows_at, [("1",)])),
                (60, partial(table_of(source, query="SELECT * FROM things").bunches, 2)),
            ):
                with pytest.raises(
                    UserError, match=rf"canceling statement due to statement timeout \(57014\). .* {minutes} minutes"
                ):
                    keys_of(begin())
        assert len(keys_of(table.bunches(2))) == 5
        assert source.execute("SHOW statement_timeout").fetchone() == ("0",)

    @pytest.mark.parametrize(
        ("query", "told"),
        [
            ("SELECT 1 AS id, 'swordfish'::integer::text AS value", r"invalid text representation \(22P02\)"),
            ("SELECT 1 AS id, raised('22000') AS value", r"data exception \(22000\)"),
            ("SELECT 1 AS id, raised('P0001') AS value", r"raise exception \(P0001\)"),
            ("SELECT 1 AS id, 'swordfish' + 1 AS value", r"invalid text representation \(22P02\)"),
            ("SELECT 1 AS id, nothing('swordfish') AS value", r"function nothing\(unknown\) does not exist \(42883\)"),
        ],
    )
    def test_what_is_said_holds_no_value(self, source: psycopg.Connection, query: str, told: str) -> None:
        source.execute(
            "CREATE FUNCTION raised(state text) RETURNS text LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'swordfish' USING ERRCODE = state; END $$"
        )
        table = table_of(source, query=query)
        for read in (table.rows, partial(table.bunches, 5), partial(table.rows_at, [("1",)])):
            with pytest.raises(UserError, match=told) as raised:
                list(read())
            assert "swordfish" not in str(raised.value)


class TestConnection:
    @pytest.fixture
    def role(self, postgres: PostgresqlServer, source: psycopg.Connection) -> Iterator[str]:
        source.execute("CREATE ROLE watcher LOGIN PASSWORD 'first'")
        yield "watcher"
        source.execute("DROP ROLE watcher")

    @pytest.fixture
    def postgresql(
        self, postgres: PostgresqlServer, role: str, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[_Postgresql]:
        monkeypatch.setenv("HEADWATER_DB_PASSWORD", "first")
        connecting = partial(sources.connector, "", postgres.host, postgres.port, DATABASE, role)
        postgresql = _Postgresql(connecting)
        yield postgresql
        postgresql.close()

    def end(self, source: psycopg.Connection, connection: psycopg.Connection) -> None:
        """End a connection as a server does that stops."""
        pid = connection.info.backend_pid
        source.execute("SELECT pg_terminate_backend(%s)", (pid,))
        gone = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s"
        wait_until("the connection to end", lambda: source.execute(gone, (pid,)).fetchone() == (0,), poll=0.05)

    def test_one_that_is_lost_is_made_again(
        self, source: psycopg.Connection, postgresql: _Postgresql, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = postgresql.connection()
        assert postgresql.connection() is first
        self.end(source, first)
        with pytest.raises(UserError, match=r"PostgreSQL does not answer: .*terminating connection"):
            postgresql.value("SELECT 1")
        monkeypatch.delenv("HEADWATER_DB_PASSWORD")  # Nobody is asked again.
        connect, told = psycopg.connect, dict[str, Any]()

        def connected(**parts: Any) -> psycopg.Connection:
            told.update(parts)
            return connect(**parts)

        monkeypatch.setattr(psycopg, "connect", connected)
        assert postgresql.value("SELECT 1") == "1"
        assert first.closed
        # The name is looked up again: after a failover it is another server's.
        assert "host" in told
        assert "hostaddr" not in told

    def test_one_that_was_left_within_a_transaction_is_made_again(self, postgresql: _Postgresql) -> None:
        first = postgresql.connection()
        first.execute("BEGIN")
        assert postgresql.connection() is not first
        assert first.closed

    def test_a_password_that_was_changed_meanwhile_is_told_from_a_server_that_is_away(
        self, source: psycopg.Connection, postgresql: _Postgresql
    ) -> None:
        first = postgresql.connection()
        source.execute("ALTER ROLE watcher PASSWORD 'second'")
        first.close()
        for _ in range(2):
            with pytest.raises(CredentialsRefused, match="password authentication failed"):
                postgresql.connection()
        source.execute("ALTER ROLE watcher PASSWORD 'first' CONNECTION LIMIT 0")
        with pytest.raises(UserError, match="too many connections") as raised:
            postgresql.connection()
        assert not isinstance(raised.value, CredentialsRefused)
        source.execute("ALTER ROLE watcher CONNECTION LIMIT 5")
        assert postgresql.value("SELECT 1") == "1"

    def test_a_role_that_may_no_longer_come_is_refused(
        self, source: psycopg.Connection, postgresql: _Postgresql
    ) -> None:
        source.execute("ALTER ROLE watcher NOLOGIN")
        with pytest.raises(CredentialsRefused, match="is not permitted to log in"):
            postgresql.connection()

    def test_a_network_that_is_dead_is_noticed(self, postgresql: _Postgresql) -> None:
        told = postgresql.connection().info.get_parameters()
        for name in ("connect_timeout", "keepalives_idle", "keepalives_interval", "keepalives_count"):
            assert 0 < int(told[name]) <= 30
        assert 0 < int(told["tcp_user_timeout"]) <= 60_000
