"""``headwater dev bench``: measure commits, drain, decoding and freshness on this machine."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from headwater.console import announce, say
from headwater.packaging import artifacts
from headwater.paths import BUILD
from rig import fixed_loop
from rig.benchmark import bursts, commits, decoding, first_load, pipeline, report
from rig.benchmark.commits import OURS, PEERS, Measured, Scale, Variant

_Runs = tuple[tuple[Scale, Sequence[Variant], Sequence[str]], ...]
# The scales, with Headwater's tables and the other systems measured at each.
QUICK_RUNS: _Runs = ((commits.QUICK, OURS, ("iceberg", "read")),)
FULL_RUNS: _Runs = (*((scale, OURS, tuple(PEERS)) for scale in commits.FULL), (commits.LARGEST, OURS[:1], ("iceberg",)))


class Only(StrEnum):
    """A benchmark that can be run alone."""

    PIPELINE = "pipeline"
    PACED = "paced"
    MANY_COMMITS = "many-commits"
    BACKLOG = "backlog"
    UNITS = "units"
    FIRST_LOAD = "first-load"


def bench(
    quick: Annotated[
        bool, typer.Option("--quick", help="Take minutes instead of hours: a small table, one other system.")
    ] = False,
    scale: Annotated[float, typer.Option(min=0.1, help="Size of the drained data; 1 is Northwind's.")] = 60,
    idle: Annotated[
        int, typer.Option(min=5, help="The number of transactions, one per second, that measure freshness.")
    ] = 120,
    only: Annotated[
        Only | None,
        typer.Option(
            help="Measure only one thing. pipeline: drain and freshness. paced: 200 commits, one every three seconds."
            " many-commits: 3,000 commits, back to back. backlog: millions of changes of flat rows. units: the costs"
            " of one change and of one commit. first-load: a table of 5,000,000 rows. Without this option, the"
            " benchmark measures pipeline, commits and decoding."
        ),
    ] = None,
) -> None:
    """Measure how long the writer's commits take, beside the commits of Iceberg, Delta and Hudi.

    Also measure how fast the writer drains and decodes, and how fresh an almost idle lake is.
    """
    artifacts.build(announce)
    folder = BUILD / "bench"
    if only is not None:
        document: dict[str, Any]
        match only:
            case Only.PIPELINE:
                document = asdict(pipeline.run(scale, idle, announce))
                for name, figure in document.items():
                    say(f"{name}: {figure}" if isinstance(figure, dict) else f"{name}: {figure:,}")
            case Only.PACED:
                document = {"paced": _paced()}
            case Only.MANY_COMMITS:
                document = _many_commits()
            case Only.BACKLOG:
                document = _backlog()
            case Only.FIRST_LOAD:
                document = _first_load()
            case Only.UNITS:
                document = asdict(bursts.run(announce))
                for name, seconds in document.items():
                    say(f"{name}: {seconds:.6f} s")
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{only}.json"
        figures = {"loop_seconds": round(fixed_loop.seconds(), 2), "figures": document}
        path.write_text(json.dumps(figures, indent=1) + "\n")
        say(f"Figures: {path}")
        return
    loop = fixed_loop.seconds()
    measured: list[Measured] = []
    for scale_, variants, peers in QUICK_RUNS if quick else FULL_RUNS:
        for each in commits.run(scale_, announce, variants, peers):
            measured.append(each)
            # Hours may follow, so the report keeps all figures so far if a later measurement fails.
            report.build(folder, report.Run(measured, (), None, loop))
    with announce("Decoding DynamoDB's changes on one core, by the writer and by boto3's deserializer"):
        decoder = decoding.run()
    report.build(folder, report.Run(measured, decoder, None, loop))
    if not quick:
        report.build(folder, report.Run(measured, decoder, pipeline.run(scale, idle, announce), loop))
    table = Table(title="Commits, and their requests to S3 a month", title_justify="left")
    for heading in ("system", "rows", "median s", "times", "p99 s", "$/month", "differ"):
        table.add_column(heading, justify="left" if heading == "system" else "right", no_wrap=True)
    for each in measured:
        table.add_row(
            each.system,
            f"{each.scale.rows:,}",
            f"{each.median:.2f}",
            f"{commits.ratio(each, measured):.1f}",
            f"{each.p99:.2f}",
            f"{each.requests_dollars:.2f}",
            "" if each.differences is None else str(each.differences),
        )
    Console().print(table)
    say(f"Report: {folder / 'report.html'}")


def _first_load() -> dict[str, Any]:
    title = "Loading a PostgreSQL table's existing rows, by headwater backfill and by Debezium's snapshot"
    table = Table(title=title, title_justify="left")
    for heading in ("by", "rows", "seconds", "to read", "a second", "MB", "differ"):
        table.add_column(heading, justify="left" if heading == "by" else "right", no_wrap=True)
    loaded = {"backfill": first_load.run(announce), "Debezium": first_load.run_peer(announce)}
    for name, each in loaded.items():
        table.add_row(
            name,
            f"{each.rows:,}",
            f"{each.seconds:.1f}",
            f"{each.reading_seconds:.1f}",
            f"{each.rows_a_second:,.0f}",
            f"{each.peak_memory_bytes / 1e6:,.0f}",
            str(each.differences),
        )
    Console().print(table)
    return {name: asdict(each) for name, each in loaded.items()}


def _paced() -> list[dict[str, Any]]:
    title = f"Commits with a batch every {commits.PACE_SECONDS:g} s, and from landing to commit, in seconds"
    table = Table(title=title, title_justify="left")
    for heading in ("rows", "median", "p99", "times", "max", "growth", "landing p50", "p99", "log files", "differ"):
        table.add_column(heading, justify="right", no_wrap=True)
    documents = []
    for scale in commits.PACED:
        each = commits.paced(scale, announce)
        documents.append(each.document())
        seconds, fresh = each.commit_seconds, each.fresh_seconds
        table.add_row(
            f"{scale.rows:,}",
            f"{statistics.median(seconds):.2f}",
            f"{commits.p99(seconds):.2f}",
            f"{commits.p99(seconds) / statistics.median(seconds):.1f}",
            f"{max(seconds):.2f}",
            f"{commits.growth(seconds):.2f}",
            f"{statistics.median(fresh):.2f}",
            f"{commits.p99(fresh):.2f}",
            str(each.depth),
            str(each.differences),
        )
    Console().print(table)
    return documents


def _many_commits() -> dict[str, Any]:
    many = commits.many(commits.MANY, announce)
    seconds = many.commits.commit_seconds
    say(
        f"{len(seconds):,} commits of {many.scale.changes:,} changes into {many.scale.rows:,} rows: median"
        f" {statistics.median(seconds):.2f} s, p99 {commits.p99(seconds):.2f} s, {max(seconds):.2f} s at most. As a"
        f" multiple of the 20th, the 200th takes {commits.growth(seconds, 200):.2f}, the last one"
        f" {commits.growth(seconds):.2f}. A new process's 20th commit takes {many.growth:.2f} times as long"
        f" after all commits as before them. Peak memory: {many.commits.peak_memory_bytes / 1e6:,.0f} MB;"
        f" {many.commits.differences} rows differ, {many.old.differences} in the end"
    )
    return {name: each.document() for name, each in vars(many).items() if name != "scale"}


def _backlog() -> dict[str, Any]:
    drained = commits.backlog(commits.BACKLOG, announce)
    for changes, seconds in drained.commits:
        say(f"{changes:,} changes in {seconds:.1f} s")
    say(
        f"{drained.scale.landed:,} changes into {drained.scale.rows:,} rows in {drained.seconds:.1f} s:"
        f" {drained.changes_per_second:,.0f} a second, {drained.median_changes_per_second:,.0f} at the median;"
        f" {drained.peak_memory_bytes / 1e6:,.0f} MB; {drained.differences} rows differ"
    )
    return asdict(drained)
