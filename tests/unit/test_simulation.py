"""The simulation of the relational pipeline, held to what can be reckoned without it."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from headwater.benchmark import planning, simulation
from headwater.benchmark.planning import Plan
from headwater.benchmark.simulation import Change, Costs, Outcome, Setting, Table, evenly, simulate
from headwater.lake.idle_pause import IdlePause
from headwater.paths import ROOT

COSTS = Costs(transport=0.1, landing=0.05, commit=0.2, file_group=0.01, log_file=0.01, row=1e-5)
CHANGE = Change(kib=1, capture=0.0001, decoding=0.001)
SETTING = Setting(flush=0.5, pause=IdlePause(0.5, 5.0), cores=8)
SECONDS = 120.0
_COLUMNS = 10


def of(
    rate: float, *, tables: int = 1, change: Change = CHANGE, row: float = COSTS.row, rows: int = 10_000, **setting: Any
) -> Outcome:
    """What comes of so many changes a second, spread over tables."""
    spread = [
        Table(evenly(rate / tables, SECONDS, number), change, file_groups=4, rows=rows) for number in range(tables)
    ]
    return simulate(spread, replace(COSTS, row=row), replace(SETTING, **setting), SECONDS)


def test_a_lone_change_takes_the_way_the_gathering_the_look_and_the_commit() -> None:
    table = Table([(10.0, 1)], CHANGE, file_groups=4, rows=100)
    found = simulate([table], COSTS, replace(SETTING, pause=IdlePause(1.0, 1.0)), 20)
    ((seconds, changes),) = found.freshness
    assert changes == 1
    way = COSTS.transport + CHANGE.capture + SETTING.flush / 10 + COSTS.landing
    commit = COSTS.commit + COSTS.file_group + CHANGE.decoding
    # The looks are at whole seconds.
    assert seconds == pytest.approx(math.ceil(way) + commit, abs=0.03)


def test_a_writer_that_is_always_busy_commits_as_often_as_batches_allow() -> None:
    """A batch is what came during the commit before: a period T takes commit + rate × T × decoding."""
    rate = 600
    found = of(rate, flush=0.02, pause=IdlePause(0.01, 0.01))
    period = (COSTS.commit + 4 * COSTS.file_group) / (1 - rate * CHANGE.decoding)
    assert SECONDS / found.commits == pytest.approx(period, rel=0.05)
    assert found.busy > 0.95
    # A change waits half a period on average, then for its own commit.
    assert found.percentile(50) == pytest.approx(COSTS.transport + COSTS.landing + 1.5 * period, rel=0.1)


def test_more_changes_are_never_fresher() -> None:
    outcomes = [of(rate) for rate in (20, 100, 300, 600, 900)]
    for percent in (50, 95):
        freshness = [outcome.percentile(percent) for outcome in outcomes]
        assert all(later > earlier - 0.05 for earlier, later in pairwise(freshness)), freshness
        assert freshness[-1] > 1.2 * freshness[0]


@pytest.mark.parametrize(
    ("change", "limit"),
    [
        # One thread decodes a table's changes.
        (CHANGE, 1 / CHANGE.decoding),
        # One task captures the changes of all tables.
        (Change(kib=1, capture=0.002, decoding=0), 1 / 0.002),
    ],
)
def test_a_part_that_has_more_than_a_second_of_work_a_second_falls_behind(change: Change, limit: float) -> None:
    below, above = of(0.7 * limit, change=change), of(1.3 * limit, change=change)
    assert below.backlog < 0.05 * SECONDS * limit
    # The excess, and what is being committed when time is up.
    assert 0.28 < above.backlog / (SECONDS * limit) < 0.5
    assert above.percentile(95) == math.inf
    assert max(above.busy, above.source_busy) > 0.99


def test_tables_share_the_cores_and_gain_by_more() -> None:
    few, many = (of(3000, tables=6, cores=cores) for cores in (2, 8))
    assert few.cores_used > 0.95
    assert few.percentile(50) > 2 * many.percentile(50)
    assert many.backlog < few.backlog


def test_compactions_take_cores_from_the_commits() -> None:
    idle, compacting = of(500, cores=1), of(500, row=1e-3, cores=1)
    assert compacting.cores_used > idle.cores_used
    assert compacting.percentile(95) > 1.5 * idle.percentile(95)


def test_commits_wait_for_the_compactions_of_a_table_that_is_too_large_for_so_many_commits() -> None:
    small, large = (of(100, rows=rows) for rows in (10_000, 20_000_000))
    assert large.commits < 0.8 * small.commits
    assert large.percentile(75) > 5 * small.percentile(75)
    rare = of(100, rows=20_000_000, flush=10)
    assert rare.percentile(75) < large.percentile(75)


def test_nothing_is_lost_or_made_up() -> None:
    table = Table(evenly(250, 30), CHANGE, file_groups=4, rows=100)
    made = sum(changes for _, changes in table.arrivals)
    for drain in (0, 1, 30):
        found = simulate([table], COSTS, SETTING, 30, drain)
        assert sum(changes for _, changes in found.freshness) + found.backlog == made
    assert found.backlog == 0
    assert made == pytest.approx(250 * 30, rel=0.05)


@pytest.mark.parametrize(
    ("source", "name", "value"),
    [
        ("connect/src/main/java/io/headwater/connect/s3/PartitionWriter", "GATHERING_PART", simulation._GATHERING_PART),
        ("lake_jvm/src/main/java/io/headwater/hudi/SmallUpserts", "MANY_LOG_FILES", simulation._LOG_FILES_BEHIND),
        ("lake_jvm/src/main/java/io/headwater/hudi/SmallUpserts", "MOST_LOG_FILES", simulation._LOG_FILES_TO_WAIT),
    ],
)
def test_the_rules_are_those_of_the_parts(source: str, name: str, value: int) -> None:
    assert f" {name} = {value};" in (ROOT / f"{source}.java").read_text()


def test_the_page_on_scaling_has_what_the_simulation_gives() -> None:
    rows = [line.strip("| ").split(" | ") for line in (ROOT / "docs" / "scaling.md").read_text().splitlines()]
    simulated = [row for row in rows if len(row) == _COLUMNS and row[0][0].isdigit()]
    assert len(simulated) >= 6
    for row in simulated[::3]:  # all of them take nine seconds
        rate, tables, buckets, table_rows, cores, flush_ms = (int(cell.replace(",", "")) for cell in row[:6])
        outcome = planning.simulated(Plan(rate, tables, "payment", buckets, table_rows, cores, flush_ms / 1000, 5))
        p50, p95 = (outcome.percentile(percent) for percent in (50, 95))
        fresh = ["falls behind"] * 2 if math.isinf(p95) else [f"{p50:.1f} s", f"{p95:.1f} s"]
        assert [*row[:6], *fresh, f"{outcome.source_busy:.0%}", f"{outcome.cores_used:.0%}"] == row
