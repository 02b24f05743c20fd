"""What `headwater status` prints of the state of an environment."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from headwater.cli import app
from headwater.commands import environments, status
from headwater.lake.base.command_lines import CommandLines
from headwater.operations import watched
from headwater.operations.state import Part, Problem, State
from headwater.operations.watched import Watched, problems
from tests.unit.conftest import BUCKET

NOW = 1_800_000_000.0
HOUR = 3600.0


def shown(monkeypatch: pytest.MonkeyPatch, *tables: Part, options: tuple[str, ...] = ()) -> Result:
    """The command's output for an environment with these tables, on a wide terminal."""
    state = State("dev", NOW, (), tables, ())
    monkeypatch.setattr(environments, "deployed", lambda name, contracts: SimpleNamespace())
    monkeypatch.setattr(status, "through_data_api", lambda deployed: None)
    monkeypatch.setattr(status, "observe", lambda deployed, query: state)
    arguments = ["status", "--env", "dev", *options]
    return CliRunner(env={"COLUMNS": "250"}).invoke(app, arguments, catch_exceptions=False)


def compared(s3: Any, known: Watched) -> Part:
    lake = f"s3://{BUCKET}/status"
    watched.write(s3, lake, known)
    facts, found = watched.observe(s3, lake, known.table, NOW, CommandLines("dev"))
    return Part(known.table, "", facts, found)


def cells(result: Result, table: str) -> list[str]:
    (line,) = [line for line in result.output.splitlines() if line.startswith(f"│ {table} ")]
    return [cell.strip() for cell in line.strip("│").split("│")]


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (Watched("orders", NOW, round_at=NOW - 300, source_rows=9), ["5 min", "0"]),
        (Watched("orders", NOW, ended=True, round_at=NOW - 3 * HOUR), ["3 h, ended", "0"]),
        (Watched("orders", NOW), ["not yet", ""]),
        (Watched("orders", NOW, ended=True), ["not yet, ended", ""]),
        (Watched("orders", NOW, missing=2), ["not yet", "2"]),
        (Watched("orders", NOW, round_at=NOW - 300, source_rows=9, unsettled=3), ["5 min", "0 (3 not told)"]),
    ],
)
def test_a_table_says_how_long_ago_it_was_compared_and_with_what_result(
    s3: Any, monkeypatch: pytest.MonkeyPatch, known: Watched, expected: list[str]
) -> None:
    assert cells(shown(monkeypatch, compared(s3, known)), "orders")[-2:] == expected


def test_a_table_that_nobody_compares_says_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    result = shown(monkeypatch, Part("orders"))
    assert (cells(result, "orders")[-2:], result.exit_code) == (["", ""], 0)


def test_json_has_what_is_known_of_a_comparison(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    known = Watched("orders", NOW, round_at=NOW - 5, extra=1, error="gone", error_since=NOW - 9, started_at=NOW - 99)
    (table,) = json.loads(shown(monkeypatch, compared(s3, known), options=("--json",)).output)["tables"]
    assert table["facts"]["comparison_error"] == "gone"
    assert (table["facts"]["comparison_started_at"], table["facts"]["rows_that_differ"]) == (NOW - 99, 1)
    assert [problem["runbook"] for problem in table["problems"]] == ["differs", "differs"]


def test_what_is_wrong_beside_rows_that_differ_is_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page has advice of several kinds. Each kind is shown once, with the tables that it is for."""

    def part(known: Watched) -> Part:
        return Part(known.table, problems=problems(known, NOW, CommandLines("dev")))

    output = shown(
        monkeypatch,
        part(Watched("accounts", NOW, round_at=NOW, missing=1)),
        part(Watched("customers", NOW - 2 * HOUR, round_at=NOW, extra=2)),
        part(Watched("orders", NOW - 2 * HOUR)),
    ).output
    assert "1. accounts and 1 more (customers): rows of accounts differ" in output
    assert "2. customers and 1 more (orders): the comparison has said nothing for 7,200 s" in output
    assert "3. " not in output


def test_advice_that_names_its_table_is_told_once_for_all_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = [Part(name, problems=[Problem(f"{name} waits", f"see {name}", "writer")]) for name in ("one", "two")]
    output = shown(monkeypatch, *tables).output
    assert "1. one and 1 more (two): one waits" in output
    assert "2. " not in output


def test_what_a_problem_says_steers_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Watched("orders", NOW, round_at=NOW, error="a\x1b[2Jb [red]c\x9b")
    output = shown(monkeypatch, Part("orders", problems=problems(known, NOW, CommandLines("dev")))).output
    assert "the comparison fails: a?[2Jb [red]c?" in output
