"""The README's figures stand on the benchmark page, and in the files that they come from."""

import html
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.contract.reading import read_contracts
from headwater.definitions.published_view import athena_type, published_columns, published_view_name
from headwater.environment.rules import read_environment
from headwater.lake_folder import EXAMPLE
from headwater.paths import ROOT

README = (ROOT / "README.md").read_text()
PAGE = (ROOT / "docs" / "benchmarks.md").read_text()
ENVIRONMENTS = ("dev", "stage", "prod")
SECTION = README.split("\n## Why Headwater\n")[1].split("\n## ")[0]
REASONS = re.findall(r"^- .*(?:\n  .*)*", SECTION, re.MULTILINE)
_LINKED = re.compile(r"\[([^\]]+)\]\(docs/benchmarks\.md#([\w-]+)\)")
"""A figure of the README, and the heading of the benchmark page below which it stands."""


def below(anchor: str) -> str:
    """The benchmark page's text from a heading to the next one of its level or above."""
    headings = list(re.finditer(r"^(#+) (.*)$", PAGE, re.MULTILINE))
    for number, heading in enumerate(headings):
        if re.sub(r"[^\w\- ]", "", heading[2].lower()).replace(" ", "-") == anchor:
            ends = (other.start() for other in headings[number + 1 :] if len(other[1]) <= len(heading[1]))
            return PAGE[heading.end() : next(ends, len(PAGE))]
    raise AssertionError(f"docs/benchmarks.md: found no heading #{anchor}")


def cells(row: str) -> list[str]:
    """The cells of a row of the README's table of environments, behind its name."""
    return rows_of(README, row)[0]


def rows_of(page: str, row: str) -> list[list[str]]:
    """The cells of each row of a page whose first cell begins so, behind that cell."""
    rows = [line.strip("|").split("|") for line in page.splitlines() if line.startswith(f"| {row}")]
    assert rows, row
    return [[cell.strip() for cell in cells[1:]] for cells in rows]


def test_the_readme_has_at_most_eight_kilobytes() -> None:
    assert len(README.encode()) <= 8192


def test_there_are_six_reasons_each_with_one_linked_figure() -> None:
    assert [len(_LINKED.findall(reason)) for reason in REASONS] == [1] * 6


@pytest.mark.parametrize(("figure", "anchor"), _LINKED.findall(SECTION))
def test_a_reasons_figure_stands_on_the_benchmark_page(figure: str, anchor: str) -> None:
    assert re.search(rf"(?<![\d.,]){re.escape(figure)}(?![\d.,]\d)", below(anchor))


def test_every_other_number_of_a_reason_stands_there_too() -> None:
    for reason in REASONS:
        _, anchor = _LINKED.findall(reason)[0]
        numbers = re.findall(r"\d[\d,.]*\d", _LINKED.sub("", reason))
        assert [number for number in numbers if number not in below(anchor)] == [], reason


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_a_cost_on_a_page_is_what_the_command_estimates(environment: str) -> None:
    command = [sys.executable, "-m", "headwater.cli", "cost", "--env", environment, "--json", "--baselines"]
    done = subprocess.run([*command, str(ROOT / "reviewed" / "baselines")], check=True, capture_output=True, text=True)
    estimated = f"{json.loads(done.stdout)['total']:,.0f}"
    column = ENVIRONMENTS.index(environment)
    assert cells("a month")[column] == f"${estimated}"
    decisions = ROOT / "docs" / "decisions" / "either-source-alone.md"
    assert rows_of(decisions.read_text(), "both sources")[0][column] == estimated
    if environment == "prod":
        (scaled,) = rows_of((ROOT / "docs" / "scaling.md").read_text(), "prod as it is in")
        assert [cell.rpartition("$")[2] for cell in scaled] == [estimated] * 3


def test_the_pauses_in_the_readme_are_those_of_the_files() -> None:
    known = [read_environment(name, EXAMPLE.config) for name in ENVIRONMENTS]
    assert cells("PostgreSQL: the sink flushes") == [
        f"{each.postgresql.connect.flush_ms / 1000:g} s, {each.postgresql.emr.idle_seconds_max:g} s" for each in known
    ]
    assert cells("DynamoDB: the job commits") == [f"{each.dynamodb.glue.window_seconds} s" for each in known]


def test_the_freshness_in_the_readme_is_that_of_the_runs() -> None:
    runs = [rows_of(below("as-each-environment-waits"), name)[0] for name in ENVIRONMENTS]
    assert rows_of(README, "half of its changes") == [
        [f"{run[first]}, {run[first + 1]}" for run in runs] for first in (1, 4)
    ]


def test_the_readmes_contract_makes_the_table_beside_it(tmp_path: Path) -> None:
    contract, table = map(html.unescape, re.findall(r"<pre[^>]*>\n(.*?)\n?</pre>", README, re.DOTALL))
    (tmp_path / "customers.yaml").write_text(f"{contract}\n")
    [made] = read_contracts(tmp_path)
    assert len(contract.splitlines()) == 12
    columns = [f"  {name:<10} {athena_type(type_)}" for name, type_ in published_columns(made)]
    assert table.splitlines() == [published_view_name(made), *columns]
