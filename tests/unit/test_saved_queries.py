"""A lake folder's saved queries and charts, as they are read."""

import re
from pathlib import Path

import pytest

from headwater.contract.reading import read_contracts
from headwater.definitions.charts import read_charts
from headwater.definitions.lake_content import read_content
from headwater.definitions.saved_queries import SavedQuery, read_saved_queries
from headwater.errors import UserError
from headwater.lake_folder import EXAMPLE

CONTRACTS = read_contracts(EXAMPLE.contracts)
QUERY = "-- Counts the customers,\n--   now.\nSELECT count(*) AS n\nFROM ${view.customers};\n-- The end.\n"
CHARTS = """sheet: Sums
data:
  - {query: sums, title: Sums, columns: {name: string, n: integer, day: datetime}}
charts:
  - {kind: pie, title: Shares, query: sums, slice: name, size: n, slices: 5}
"""


def read(folder: Path, name: str, text: str | bytes) -> list[SavedQuery]:
    (folder / f"{name}.sql").write_bytes(text.encode() if isinstance(text, str) else text)
    return read_saved_queries(folder, CONTRACTS)


def test_a_file_is_a_query_with_name_and_description(tmp_path: Path) -> None:
    (query,) = read(tmp_path, "count-now", QUERY)
    named = query.named(CONTRACTS, "headwater_dev")
    assert (named.name, named.description) == ("count-now", "Counts the customers, now.")
    assert named.sql == 'SELECT count(*) AS n\nFROM "headwater_dev"."customers_current"'


def test_placeholders_stand_for_tables_views_and_the_database(tmp_path: Path) -> None:
    names = ("database", "view.orders", "table.orders", "view.customers_versions", "table.customers_changes")
    (query,) = read(tmp_path, "all", "-- x\nSELECT " + ", ".join(f"${{{name}}}" for name in names))
    assert query.named(CONTRACTS, "l").sql == (
        'SELECT "l", "l"."orders_current", "l"."orders", "l"."customers_versions", "l"."customers_changes"'
    )
    assert {contract.table for contract in CONTRACTS if query.reads(contract)} == {"customers", "orders"}


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("Sums", QUERY, r"Sums\.sql: found this name, expected 1 to 80 lower-case letters, digits and hyphens"),
        ("deleted-rows", QUERY, r"deleted-rows\.sql: found the name of a query that Headwater adds"),
        (
            "deletedrows",
            QUERY,
            r"deletedrows\.sql: found a name that differs only in hyphens from the query deleted-rows",
        ),
        ("a", "SELECT 1", r"a\.sql, line 1: found no comment, expected lines that begin with --"),
        ("a", f"-- {'x' * 1025}\nSELECT 1", r"a\.sql, line 1: found a comment of 1,025 letters, expected"),
        ("a", "-- x\n", r"a\.sql, line 1: found 0 statements, expected one query"),
        ("a", "-- x\nSELECT 1;\n\nSELECT 2;", r"a\.sql, line 4: found 2 statements, expected one query"),
        ("a", "-- x\nSELECT 'a", r"a\.sql, line 2: found a text that begins with ' and does not end"),
        (
            "a",
            "-- x\nSELECT *\nFROM ${view.order}",
            r"a\.sql, line 3: found \$\{view\.order\}, expected one of .*\. If the table's contract was removed",
        ),
        ("a", "-- x\nSELECT ${view.orders", r"a\.sql, line 2: found \$\{view\.orders, expected one of "),
        ("a", b"-- x\nSELECT '\xe9'", r"a\.sql, line 2: found bytes that are not UTF-8"),
        ("a", f"-- x\nSELECT '{'x' * 262_144}'", r"a\.sql: found 262,153 bytes, expected 262,144 at most"),
    ],
)
def test_what_is_no_saved_query_is_refused_with_file_and_line(
    tmp_path: Path, name: str, text: str | bytes, found: str
) -> None:
    with pytest.raises(UserError, match=rf"^{re.escape(str(tmp_path))}/{found}"):
        read(tmp_path, name, text)


def test_names_that_differ_in_hyphens_alone_are_refused(tmp_path: Path) -> None:
    read(tmp_path, "a-1", QUERY)
    with pytest.raises(UserError, match=r"/a1\.sql: found a name that differs only in hyphens from the query a-1"):
        read(tmp_path, "a1", QUERY)


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("query: sums, title: Sums", "query: sum, title: Sums", r"data\[0\]\.query: found 'sum', expected sums"),
        ("slice: name", "slice: nam", r"charts\[0\]\.slice: found 'nam', expected name, n or day"),
        ("query: sums, slice", "query: more, slice", r"charts\[0\]\.query: found 'more', expected sums"),
        ("kind: pie", "kind: bar", r"charts\[0\]\.kind: found 'bar', expected pie or scatter"),
        ("n: integer", "n: int", r"data\[0\]\.columns\.n: found 'int', expected string, integer"),
        ("size: n", "size: n, colour: red", r"charts\[0\]\.colour: found an unknown field, expected kind, title"),
        ("sheet: Sums\n", "", r"sheet: found nothing, expected a text"),
    ],
)
def test_charts_are_refused_by_field(tmp_path: Path, old: str, new: str, found: str) -> None:
    queries = read(tmp_path, "sums", QUERY)
    (tmp_path / "charts.yaml").write_text(CHARTS)
    assert read_charts(tmp_path, queries) is not None
    assert old in CHARTS
    (tmp_path / "charts.yaml").write_text(CHARTS.replace(old, new))
    with pytest.raises(UserError, match=rf"charts\.yaml: {found}"):
        read_charts(tmp_path, queries)


def test_a_query_that_charts_name_twice_is_refused(tmp_path: Path) -> None:
    line = CHARTS.splitlines()[2]
    (tmp_path / "charts.yaml").write_text(CHARTS.replace(line, f"{line}\n{line}"))
    with pytest.raises(UserError, match=r"data\[1\]\.query: found 'sums', expected each query once"):
        read_charts(tmp_path, read(tmp_path, "sums", QUERY))


def test_a_lake_folder_without_these_folders_has_none(tmp_path: Path) -> None:
    content = read_content(tmp_path / "database", tmp_path / "queries", CONTRACTS)
    assert (list(content.files), list(content.queries), content.charts) == ([], [], None)
    assert not any(content.shows(contract) for contract in CONTRACTS)


def test_the_examples_charts_show_its_orders() -> None:
    content = read_content(EXAMPLE.database, EXAMPLE.queries, CONTRACTS)
    assert [contract.table for contract in CONTRACTS if content.shows(contract)] == ["orders"]
