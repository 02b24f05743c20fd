"""The SQL files of a lake folder's database, as they are read."""

import re
from pathlib import Path

import pytest

from headwater.definitions.database_files import SqlFile, checks, document, read_database_files
from headwater.errors import UserError
from headwater.lake_folder import EXAMPLE


def read(folder: Path, **files: str | bytes) -> list[SqlFile]:
    """Write files, ``_1_a="…"`` as ``1_a.sql``, and read the folder."""
    for name, text in files.items():
        path = folder / f"{name.removeprefix('_')}.sql"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_database_files(folder)


def test_files_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("Not SQL")
    found = read(tmp_path, _10_c="SELECT 1", _2_b="SELECT 1", _01_a="SELECT 1")
    assert [file.name for file in found] == ["01_a.sql", "2_b.sql", "10_c.sql"]
    assert read_database_files(tmp_path / "none") == []


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("tables", "SELECT 1", r"tables\.sql: found this name, expected a number, an underscore and letters"),
        ("2_", "SELECT 1", r"2_\.sql: found this name"),
        ("01_other", "SELECT 1", r"1_first\.sql: found the number of 01_other\.sql, expected another number"),
        ("2_a", "-- nothing", r"2_a\.sql: found no statement, expected at least one"),
        ("2_a", "SET a.b = 1;", r"2_a\.sql: found no statement, expected at least one"),
        ("2_a", b"SELECT 1;\nSELECT '\xe9'", r"2_a\.sql, line 2: found bytes that are not UTF-8"),
        ("2_a", "SELECT 1;\nSELECT '\0'", r"2_a\.sql, line 2: found the character NUL, expected none"),
        ("2_a", "\n\\i other.sql", r"2_a\.sql, line 2: found .*i other\.sql, a psql meta-command, expected statements"),
        ("2_a", "COPY t FROM stdin;\n1\n\\.\n", r"2_a\.sql, line 1: found a COPY whose rows psql sends, .* --inserts"),
        ("2_a", "BEGIN;\nSELECT 1;\nCOMMIT;", r"2_a\.sql, line 1: found BEGIN, expected no BEGIN, COMMIT"),
        ("2_a", "SELECT 1;\nstart transaction", r"2_a\.sql, line 2: found start transaction, expected no BEGIN"),
        (
            "2_a",
            "CREATE UNIQUE INDEX CONCURRENTLY i ON t (a)",
            r"line 1: found CREATE .*expected no CONCURRENTLY",
        ),
        ("2_a", "REINDEX TABLE CONCURRENTLY t", r"line 1: found REINDEX .*expected no CONCURRENTLY"),
        (
            "2_a",
            "VACUUM t",
            r"line 1: found VACUUM t, expected a statement that may run in a transaction: run this one by hand",
        ),
        (
            "2_a",
            "CREATE TEMP TABLE t (a int)",
            r"line 1: found CREATE TEMP .*expected nothing that ends with its session",
        ),
        (
            "2_a",
            "SET LOCAL a.b = 1; SELECT 1",
            r"line 1: found SET LOCAL .*expected nothing that ends with its session",
        ),
        ("2_a", f"SELECT '{'x' * 65_536}'", r"line 1: found 65,545 bytes, expected at most 65,536 bytes"),
    ],
)
def test_what_cannot_run_is_refused_with_file_and_line(
    tmp_path: Path, name: str, text: str | bytes, found: str
) -> None:
    (tmp_path / "1_first.sql").write_text("SELECT 1")
    with pytest.raises(UserError, match=rf"^{re.escape(str(tmp_path))}/.*{found}"):
        read(tmp_path, **{name: text})


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TEMPORARY TABLE t (a int)",
        "CREATE LOCAL TEMP TABLE t (a int)",
        "create global temporary table t (a int)",
        "CREATE OR REPLACE TEMP VIEW v AS SELECT 1",
        "CREATE /* kept? */ TEMP SEQUENCE s",
        "CREATE TABLE pg_temp.t (a int)",
        "SELECT 1 AS a INTO TEMP t",
        "WITH w AS (SELECT 1 a) SELECT a INTO TEMPORARY t FROM w",
        "SELECT 1 AS a INTO pg_temp.t",
    ],
)
def test_what_is_temporary_is_refused_wherever_it_says_so(tmp_path: Path, statement: str) -> None:
    found = re.escape(" ".join(statement.split())) + ", expected nothing that ends with its session"
    with pytest.raises(UserError, match=rf"1_a\.sql, line 2: found {found}"):
        read(tmp_path, _1_a=f"SELECT 0;\n{statement};\n")


def test_what_is_called_temp_and_stays_is_taken(tmp_path: Path) -> None:
    script = """
        CREATE TABLE temp (temporary int);
        INSERT INTO temp VALUES (1);
        MERGE INTO temp USING temp AS other ON false WHEN NOT MATCHED THEN DO NOTHING;
        SELECT 'INTO TEMP t' AS "INTO TEMP";
        CREATE FUNCTION f() RETURNS int LANGUAGE sql SET search_path = pg_catalog, pg_temp AS 'SELECT 1';
    """
    (file,) = read(tmp_path, _1_a=script)
    assert len(file.statements) == 5


def test_a_folder_of_capitals_is_refused_not_left_out(tmp_path: Path) -> None:
    (tmp_path / "1_a.SQL").write_text("SELECT 1")
    with pytest.raises(UserError, match=r"1_a\.SQL: found this name"):
        read_database_files(tmp_path)


def test_what_transactions_may_do_concurrently_is_taken(tmp_path: Path) -> None:
    (file,) = read(tmp_path, _1_a="REFRESH MATERIALIZED VIEW CONCURRENTLY v; SELECT concurrently FROM t")
    assert len(file.statements) == 2


def test_line_ends_and_a_mark_of_utf_8_change_no_checksum(tmp_path: Path) -> None:
    (plain,) = read(tmp_path, _1_a="SELECT\n  1;\nSELECT 2;\n")
    (other,) = read(tmp_path, _1_a=b"\xef\xbb\xbfSELECT\r\n  1;\r\nSELECT 2;\r\n")
    assert plain.calls() == other.calls()


def test_a_checksum_depends_on_all_that_ran_before(tmp_path: Path) -> None:
    def checksums(text: str) -> list[str]:
        (file,) = read(tmp_path, _1_a=text)
        return [call.parameters["checksum"] for call in file.calls()]

    first = checksums("SELECT 1; SELECT 2; SELECT 3")
    assert len(set(first)) == 3
    assert checksums("SELECT 1; SELECT 4; SELECT 3")[0] == first[0]
    assert not set(checksums("SELECT 1; SELECT 4; SELECT 3")[1:]) & set(first)
    assert not set(checksums("SET a.b = 1; SELECT 1; SELECT 2; SELECT 3")) & set(first)


def test_a_set_becomes_one_of_each_later_statement(tmp_path: Path) -> None:
    script = """
        SELECT 0;
        SET SESSION search_path TO own;
        set role other;
        SET SESSION AUTHORIZATION another;
        SET transaction_timeout = 0;
        SELECT pg_catalog.set_config('lock_timeout', '0', false);
        SELECT set_config('a.b', 'it''s', false);
        SELECT set_config('a.b', 'x', true);
    """
    (file,) = read(tmp_path, _1_a=script)
    first, last = file.statements
    assert (first.text, first.settings) == ("SELECT 0", ())
    assert last.text == "SELECT set_config('a.b', 'x', true)"
    assert last.settings == (
        "SET LOCAL search_path TO own",
        "SET LOCAL role other",
        "SET LOCAL SESSION AUTHORIZATION another",
        "SELECT pg_catalog.set_config('a.b', 'it''s', true)",
    )


def test_a_file_of_thousands_of_statements_is_checked_in_parts(tmp_path: Path) -> None:
    (file,) = read(tmp_path, _1_a="SELECT 1;\n" * 1_200)
    order, *parts = checks([file])
    assert order.parameters == {"files": "1_a.sql", "checksums": file.checksums()[-1]}
    assert [(part.parameters["first"], part.parameters["total"]) for part in parts] == [
        ("1", "1200"), ("501", "1200"), ("1001", "1200"),
    ]  # fmt: skip
    assert all(len(part.parameters["checksums"].encode()) < 65_536 for part in parts)
    checksums = " ".join(part.parameters["checksums"] for part in parts).split(" ")
    assert checksums == [call.parameters["checksum"] for call in file.calls()]
    (written,) = document([file])["files"]
    assert written["statements"][1_000]["place"] == "database/1_a.sql, line 1001"


def test_the_examples_files_are_read() -> None:
    files = read_database_files(EXAMPLE.database)
    assert [file.name.partition("_")[0] for file in files] == ["1", "2", "3", "4", "5", "6"]
