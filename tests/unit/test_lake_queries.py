"""Queries in Athena's SQL run on the rows that a reader of the lake gets; the documentation's queries are in that
SQL."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from headwater.cli import app
from headwater.contract.model import History, lake_tables
from headwater.contract.reading import read_contracts
from headwater.definitions.glue_table import HUDI_COLUMNS
from headwater.errors import UserError
from headwater.lake_folder import EXAMPLE
from headwater.paths import ROOT
from headwater.queries import LakeQueries
from headwater.queries.isolated_duckdb import isolated_duckdb
from headwater.verify import Lake

ALL = read_contracts(EXAMPLE.contracts)
BEGINS = dt.datetime.now(dt.UTC).replace(microsecond=0) - dt.timedelta(days=5)
PAGES = ("query.md", "history.md")
BLOCKS = [
    pytest.param(query, id=f"{page} {number}")
    for page in PAGES
    for number, block in enumerate(
        re.findall(r"```sql\n(.*?)```", (ROOT / "docs" / "how-to" / page).read_text(), re.DOTALL)
    )
    for query in filter(str.strip, block.split(";"))
]


def change(order: int, op: str, city: str | None, days: int) -> dict[str, Any]:
    at = BEGINS + dt.timedelta(days=days)
    row = {"_key": f"k{order}", "_op": op, "_order": f"{order}", "_source_ts": at, "_position": f"t/0/{order}"}
    key = None if op == "t" else "ALFKI"
    return {**row, "customer_id": key, "city": city, "_deleted": city is None, "change_day": at.date().isoformat()}


ROWS: dict[str, list[dict[str, Any]]] = {
    "customers": [
        {"customer_id": "ALFKI", "city": "Oslo", "_deleted": False, "_source_ts": BEGINS, "_hoodie_commit_time": "2"},
        {"customer_id": "BERGS", "city": None, "_deleted": True, "_source_ts": BEGINS, "_hoodie_commit_time": "1"},
    ],
    "customers_changes": [change(1, "t", None, 0), change(2, "r", "Rome", 0), change(3, "u", "Oslo", 2)],
}
READ: list[str] = []


def read_table(uri: str, storage: Mapping[str, str]) -> Iterable[pa.RecordBatch]:
    """The rows above, in batches of two, if the table was written."""
    name = uri.rpartition("/")[2]
    READ.append(name)
    return pa.Table.from_pylist(ROWS[name]).to_batches(2) if name in ROWS else []


@pytest.fixture
def queries() -> Iterable[LakeQueries]:
    READ.clear()
    with LakeQueries(ALL, Lake("s3://lake/lake", {}, read_table)) as asked:
        yield asked


def test_a_query_reads_the_tables_that_it_names_and_no_others(queries: LakeQueries) -> None:
    answer = queries.answer("SELECT customer_id, city FROM customers_current")
    assert (answer.columns, answer.rows) == (["customer_id", "city"], [("ALFKI", "Oslo")])
    assert READ == ["customers"]
    counted = queries.answer('SELECT count(*), max("_hoodie_commit_time") FROM "lake"."customers"')
    assert counted.rows == [(2, "2")]
    assert READ == ["customers"]


def test_a_prepared_statement_is_executed_with_its_values(queries: LakeQueries) -> None:
    def at(days: float) -> str:
        return f"TIMESTAMP '{BEGINS + dt.timedelta(days=days):%Y-%m-%d %H:%M:%S}'"

    def city(sql: str) -> list[Any]:
        answer = queries.answer(sql)
        return [row[answer.columns.index("city")] for row in answer.rows]

    assert city(f"EXECUTE customers_as_of USING {at(1)}") == ["Rome"]
    assert city(f"execute customers_as_of using {at(1)} + INTERVAL '1' DAY;") == ["Oslo"]
    assert city(f"EXECUTE customers_changes_between USING {at(0)}, {at(3)}") == ["Oslo"]
    with pytest.raises(UserError, match=f"customers: found .*, expected an instant from {BEGINS:%Y-%m-%d %H:%M:%S}"):
        city(f"EXECUTE customers_as_of USING {at(-1)}")


def test_a_shard_that_is_silent_for_a_day_does_not_hold_a_history_back() -> None:
    def moved(order: int, op: str, shard: str, days: float) -> dict[str, Any]:
        at = BEGINS + dt.timedelta(days=days)
        return {"_op": op, "_order": f"{order}", "_source_ts": at, "_position": f"{shard}/{order}"}

    ended, behind, newest = moved(2, "u", "shard-0", 1), moved(3, "u", "shard-1", 3.5), moved(4, "d", "shard-2", 4)
    rows = [moved(1, "t", "export", 0), ended, behind, newest]
    (accounts,) = (contract for contract in ALL if contract.table == "accounts")
    lake = Lake("s3://lake/lake", {}, lambda uri, storage: pa.Table.from_pylist(rows).to_batches())
    with LakeQueries([replace(accounts, history=History(30))], lake) as queries:
        answer = queries.answer("SELECT begins, complete_until FROM accounts_history")
    assert answer.rows == [(BEGINS.replace(tzinfo=None), behind["_source_ts"].replace(tzinfo=None))]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT * FROM nowhere", "query: found nowhere, expected a table or view out of: accounts, accounts_current"),
        ("SELECT nothing FROM customers", "query: Binder Error"),
        ("SELECT FROM WHERE", "query: "),
        ("DROP TABLE customers", "expected one SELECT in Athena's SQL, or EXECUTE"),
        ("SELECT 1; SELECT 2", "expected one SELECT in Athena's SQL, or EXECUTE"),
        ("", "expected one SELECT in Athena's SQL, or EXECUTE"),
        (
            "EXECUTE orders_as_of USING TIMESTAMP '2026-01-01 00:00:00'",
            "expected a prepared statement out of: customers",
        ),
        ("EXECUTE customers_as_of", "found 0 values, expected 1"),
        ("EXECUTE customers_as_of USING current_timestamp FROM orders", "expected values with commas between them"),
        ("SELECT reduce(ARRAY[1], 0, (s, x) -> s + x, s -> s * 2)", "this machine has no such function"),
    ],
)
def test_what_cannot_be_answered_is_refused(queries: LakeQueries, sql: str, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        queries.answer(sql)


def test_athenas_ways_with_names_and_numbers_are_kept(queries: LakeQueries) -> None:
    rows = queries.answer('SELECT City, 7 / 2, 7.0 / 2 FROM "headwater_dev"."Customers_Current"').rows
    assert [(city, whole, float(part)) for city, whole, part in rows] == [("Oslo", 3, 3.5)]
    shadowed = (
        "WITH customers AS (SELECT * FROM customers_current), X AS (SELECT 1 AS n) SELECT n FROM customers, x; -- done"
    )
    assert queries.answer(shadowed).rows == [(1,)]
    assert queries.answer("SELECT count(*) FROM orders").rows == [(0,)]
    assert queries.without_rows == {"orders"}


@pytest.mark.parametrize("sql", BLOCKS)
def test_the_queries_of_the_documentation_run(queries: LakeQueries, sql: str) -> None:
    recent = re.sub(r"2026-11-2[67] (?=\d\d:)", f"{BEGINS + dt.timedelta(days=1):%Y-%m-%d} ", sql)
    queries.answer(recent)


def test_a_lake_in_a_folder_is_asked_on_the_command_line() -> None:
    def run(*arguments: str, stdin: str = "") -> str:
        done = CliRunner().invoke(app, ["sql", *arguments], input=stdin)
        assert done.exit_code == 0, done.output
        return done.stdout

    listed = run().split("\n")
    assert set(listed) > {table.table for table in lake_tables(ALL)}
    assert "EXECUTE customers_as_of" in listed
    counted = run("SELECT count(*) AS number FROM orders", "--lake", "nowhere", "--json")
    assert json.loads(counted) == [{"number": 0}]
    pasted = """SELECT count(*) AS "it's" FROM orders WHERE "_op" = 'd'\n"""
    assert json.loads(run("--lake", "nowhere", "--json", "-", stdin=pasted)) == [{"it's": 0}]
    refused = CliRunner().invoke(app, ["sql", "SELECT 1"])
    assert isinstance(refused.exception, UserError)
    assert HUDI_COLUMNS[0] in run(f'SELECT "{HUDI_COLUMNS[0]}" FROM orders', "--lake", "nowhere")


def test_rows_wider_than_the_terminal_have_a_line_a_value() -> None:
    def shown(query: str) -> str:
        return CliRunner().invoke(app, ["sql", query, "--lake", "nowhere"], env={"COLUMNS": "80"}).stdout

    wide = "x" * 60
    assert shown(f"SELECT '{wide}' AS first, '{wide}' AS second") == (
        f"row 1\n  first: {wide}\n  second: {wide}\n1 rows\n"
    )
    narrow = shown("SELECT '[red]a' AS first, 'b' AS second")
    assert "│ [red]a │ b      │" in narrow


# A name that a CTE has elsewhere passes for that CTE: DuckDB itself has to refuse what it reads otherwise.
SMUGGLED = 'SELECT * FROM (WITH "{0}" AS (SELECT 1) SELECT * FROM "{0}") AS a, "{0}" AS b'
IN_FROM = (
    "in FROM, expected a table, a view, a subquery or UNNEST. headwater sql reads the tables and views of the lake"
)
NO_FILES = "headwater sql reads the tables and views of the lake alone: no files, no addresses, no extensions."
ONE_SELECT = "expected one SELECT in Athena's SQL, or EXECUTE"


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT * FROM read_csv('{file}')", f"found the function read_csv {IN_FROM}"),
        ("SELECT * FROM read_text('{file}')", f"found the function read_text {IN_FROM}"),
        ("SELECT * FROM \"READ_BLOB\"('{file}')", f"found the function read_blob {IN_FROM}"),
        ("SELECT (SELECT content FROM read_text('{file}'))", IN_FROM),
        ("SELECT * FROM customers CROSS JOIN LATERAL read_text('{file}')", IN_FROM),
        ("SELECT * FROM TABLE(read_text('{file}'))", IN_FROM),
        ("WITH f AS (SELECT * FROM read_csv('{file}')) SELECT * FROM f", IN_FROM),
        ("SELECT * FROM query('SELECT 1')", IN_FROM),
        ("SELECT * FROM query_table('{file}')", IN_FROM),
        ("SELECT * FROM json_execute_serialized_sql('')", IN_FROM),
        ("SELECT * FROM duckdb_secrets()", IN_FROM),
        ("SELECT * FROM arrow_scan(1, 2, 3)", IN_FROM),
        ("EXECUTE customers_as_of USING (SELECT max(content) FROM read_text('{file}'))", IN_FROM),
        ("SELECT * FROM glob('{folder}/*')", "query: "),
        ("SELECT * FROM '{file}'", "expected a table or view out of"),
        ('SELECT * FROM "{file}"', "expected a table or view out of"),
        (SMUGGLED.format("{file}"), NO_FILES),
        (SMUGGLED.format("https://127.0.0.1:9/rows.csv"), NO_FILES),
        (SMUGGLED.format("s3://lake/rows.parquet"), NO_FILES),
        # Variables of Python in the function that calls DuckDB.
        (SMUGGLED.format("query"), "Table with name query does not exist"),
        ("SELECT st_point(1, 2)", NO_FILES),
        ("SELECT CAST('127.0.0.1' AS inet)", "query: "),
        ("COPY customers TO '{folder}/stolen.csv'", ONE_SELECT),
        ("COPY (SELECT 1) TO '{folder}/stolen.csv'", ONE_SELECT),
        ("EXPORT DATABASE '{folder}/stolen.csv'", ONE_SELECT),
        ("ATTACH '{folder}/stolen.csv'", ONE_SELECT),
        ("INSTALL httpfs", ONE_SELECT),
        ("LOAD '{file}'", ONE_SELECT),
        ("SET enable_external_access = true", ONE_SELECT),
        ("PRAGMA database_list", ONE_SELECT),
        ("CALL enable_logging()", ONE_SELECT),
    ],
)
def test_a_query_reaches_nothing_but_the_lake(sql: str, message: str, tmp_path: Path) -> None:
    kept = tmp_path / "kept.csv"
    kept.write_text("word\nhunter2\n")
    given = ["sql", sql.format(file=kept, folder=tmp_path), "--lake", "nowhere", "--json"]
    done = CliRunner().invoke(app, given)
    assert isinstance(done.exception, UserError), (done.output, done.exception)
    assert message in str(done.exception)
    assert "hunter2" not in done.output + str(done.exception)
    assert "INSTALL" not in str(done.exception)
    assert list(tmp_path.iterdir()) == [kept]


def test_time_zones_and_json_need_no_extension(queries: LakeQueries) -> None:
    zoned = "SELECT TIMESTAMP '2026-01-01 00:00:00 UTC' AT TIME ZONE 'Europe/Berlin', json_extract('{\"a\":1}', '$.a')"
    ((local, _),) = queries.answer(zoned).rows
    assert local.hour == 1


def test_what_a_query_spills_is_its_owners_alone_and_goes() -> None:
    connection = isolated_duckdb("SET memory_limit = '60MB'", "SET threads = 1")
    told = connection.execute("SELECT current_setting('temp_directory')").fetchone()
    assert told is not None
    folder = Path(told[0])
    assert folder.stat().st_mode & 0o777 == 0o700
    spilled = connection.execute("SELECT repeat(i::varchar, 20) FROM range(1500000) t(i) ORDER BY 1 DESC, i")
    assert spilled.fetchone() is not None
    assert list(folder.iterdir()) != []
    del connection, spilled
    assert not folder.exists()
