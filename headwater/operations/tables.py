"""The state of the lake's tables: the last commit, the waiting changes, and the changes that could not be written."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any

from headwater.console import one_line
from headwater.contract.model import POSTGRESQL, Contract, catalog_names, change_history
from headwater.definitions import connectors
from headwater.definitions.published_view import published_view_name
from headwater.lake.base import metrics as reported
from headwater.lake.base.quarantine import Quarantine
from headwater.lake.sources.landing import Landing, LandingGap, Waiting
from headwater.operations import database, key_value, watched
from headwater.operations.deployed import Deployed
from headwater.operations.measurements import Measurements, Metric
from headwater.operations.state import UNWRITTEN, Part, Problem
from headwater.operations.timeline import LastCommit, last_commit
from headwater.operations.writers import RUNS_SINCE

CATALOG = "Glue catalog"
Catalog = Mapping[str, Mapping[str, Any]]
"""Facts of the catalog on its tables and views, by name: ``location``, and ``created_at`` in epoch seconds."""
QUARANTINE = "_quarantine"
# Seconds, as for the alarm writer-TABLE: a first load or a large batch takes its time.
_SILENT_SECONDS = 600.0
_HOUR = 3600.0
# Seconds. A late commit or an unfit value counts within this time, as for their alarms.
_RECENT_SECONDS = 300.0


def metrics(deployed: Deployed) -> Iterable[Metric]:
    """The metrics that ``observe`` needs."""
    for contract in deployed.tables:
        yield _of(deployed, contract, reported.CHANGES, "SampleCount")
        yield _of(deployed, contract, reported.FRESHNESS, "Maximum")
        yield _of(deployed, contract, reported.UNFIT, "Sum")
        if contract.hidden_inside:
            yield _of(deployed, contract, reported.LEFT_OUT, "Sum")


def observe_catalog(deployed: Deployed) -> Part:
    """The state of the Glue catalog. Its facts are by table; views have no location. Raises the exceptions of boto3."""
    pages = deployed.client("glue").get_paginator("get_tables").paginate(DatabaseName=deployed.glue_database)
    found = {
        table["Name"]: {
            "location": table.get("StorageDescriptor", {}).get("Location", ""),
            "created_at": table["CreateTime"].timestamp() if "CreateTime" in table else None,
        }
        for page in pages
        for table in page["TableList"]
    }
    return Part(CATALOG, f"{len(found):,} tables and views", found)


def observe(
    deployed: Deployed,
    measurements: Measurements,
    contract: Contract,
    writer: Part,
    catalog: Catalog | None,
    query: database.Query | None = None,
) -> Part:
    """Return the state of a table of the lake. Raises the exceptions of boto3.

    Args:
        deployed: The environment.
        measurements: The values of its metrics.
        contract: The table's contract.
        writer: The state of the step or the job that writes the table.
        catalog: The facts of the catalog; None if it could not be read.
        query: Runs a query in PostgreSQL; None if there is no way to it.
    """
    table, environment = contract.table, deployed.environment
    s3, uri = deployed.client("s3"), f"{deployed.lake}/{contract.table}"
    committed = last_commit(s3, uri)
    reports = measurements.last_at(_of(deployed, contract, reported.CHANGES, "SampleCount"))
    fresh = measurements.most(_of(deployed, contract, reported.FRESHNESS, "Maximum"), _RECENT_SECONDS)
    unfit = measurements.total(_of(deployed, contract, reported.UNFIT, "Sum"), _HOUR)
    stored = Quarantine(s3, f"{deployed.lake}/{QUARANTINE}", table).listed()
    # The writer reads the batch of a sample again, so samples do not count.
    aside = [each for each in stored if not each.is_sample]
    problems, waiting = _landed(deployed, contract, committed)
    problems = [*_awaited(deployed, contract, committed), *problems]
    limits = environment.monitoring
    silent = None if reports is None else measurements.now - reports
    began = writer.facts.get(RUNS_SINCE)
    created = (catalog or {}).get(table, {}).get("created_at")
    expected = began if created is None else created
    # A table without a commit is a problem unless its source is empty.
    empty, unwritten = None, None
    if committed is None:
        landed = waiting.records if waiting else 0
        empty, why = (False, f"{landed:,} landed records wait") if landed else _source(deployed, contract, query)
        if not empty:
            when = (
                "" if expected is None else f" since {dt.datetime.fromtimestamp(expected, dt.UTC):%Y-%m-%d %H:%M} UTC"
            )
            unwritten = Problem(f"{UNWRITTEN}{when}: {why}", _first_rows(deployed, contract, landed), "writer")
    signs = [began, reports, committed.completed.timestamp() if committed else None]
    quiet = measurements.now - max(sign for sign in signs if sign is not None) if began is not None else 0.0
    # If the step or job does not run, or not yet, its own state says so.
    if quiet > _SILENT_SECONDS and not measurements.unasked:
        problems.append(
            Problem(
                f"the writer runs, and has said nothing of {table} for {quiet:,.0f} s",
                f"its last event of the table says why: headwater logs "
                f"{'writer' if contract.source.database == POSTGRESQL else 'job'} --env {environment.name} "
                f"--table {table} --since 1d; a large load or compaction logs nothing until its end",
                "writer",
            )
        )
    # The signs of the metrics and of the quarantine.
    if fresh is not None and fresh > limits.freshness_seconds:
        problems.append(
            Problem(
                f"a change reached {table} after {fresh:,.0f} s",
                "find the part before the table that is behind; after a load in the source, wait",
                "freshness",
            )
        )
    if aside:
        problems.append(
            Problem(
                f"{len(aside):,} quarantine objects wait; their records could not be decoded",
                f"headwater quarantine show {table} --env {environment.name}; correct, deploy, then replay or drop",
                "quarantine",
            )
        )
    recently = measurements.total(_of(deployed, contract, reported.UNFIT, "Sum"), _RECENT_SECONDS)
    if recently > limits.unfit_values:
        seen_in = table if contract.is_history else published_view_name(contract)
        problems.append(
            Problem(
                f"{recently:,.0f} values of the last minutes do not fit their columns",
                f'see the rows of {seen_in} where "_unfit" is not null',
                "unfit",
            )
        )
    if contract.hidden_inside:
        lost = measurements.total(_of(deployed, contract, reported.LEFT_OUT, "Sum"), _RECENT_SECONDS)
        if lost:
            paths = ", ".join(dict.fromkeys(".".join(path) for path in contract.hidden_inside))
            problems.append(
                Problem(
                    f"{lost:,.0f} attributes of the last minutes are not stored: no maps lead to {paths}",
                    "find the items in the source; correct them, or exclude or mask the whole attribute",
                    "left-out",
                )
            )
    if catalog is not None:
        problems += _uncatalogued(deployed, contract, uri, catalog)
    compared, found = watched.observe(s3, deployed.lake, table, measurements.now, deployed.commands)
    problems += found
    facts: dict[str, Any] = {
        "last_commit": committed.instant if committed else None,
        "last_commit_at": committed.completed.timestamp() if committed else None,
        "expected_since": expected,
        "source_is_empty": empty,
        "epoch": committed.progress.epoch if committed else None,
        "position": committed.progress.cursor if committed else None,
        "waiting_objects": waiting.objects if waiting else None,
        "waiting_records": waiting.records if waiting else None,
        "waiting_since": waiting.since.timestamp() if waiting and waiting.since else None,
        "freshness_seconds": fresh,
        "writer_silent_seconds": silent,
        "quarantine_objects": len(aside),
        "unfit_values_of_an_hour": unfit,
        **compared,
    }
    return Part(table, "", facts, problems, measurements.unasked, unwritten)


def _source(deployed: Deployed, contract: Contract, query: database.Query | None) -> tuple[bool | None, str]:
    """Whether a table's source is empty (None if that is not known), and a text about the result."""
    try:
        if contract.source.database == POSTGRESQL:
            empty = database.is_empty(query, contract)
        else:
            empty = key_value.is_empty(deployed, contract)
    except Exception as error:  # whatever the error is, the table itself has been checked
        return None, f"its source, {contract.source.table}, could not be read: {one_line(str(error))}"
    return empty, f"its source, {contract.source.table}, has {'no ' if empty else ''}rows"


def _first_rows(deployed: Deployed, contract: Contract, landed: int) -> str:
    """The advice for a table that gets no first rows while so many landed records wait."""
    name, table = deployed.environment.name, contract.main_table
    if landed:
        return f"see the writer: headwater logs writer --env {name} --table {contract.table} --since 1d"
    if contract.source.database == POSTGRESQL and _reads_no_rows(deployed):
        return deployed.commands.backfill(table)
    if contract.source.database == POSTGRESQL:
        return f"wait while all rows are read: headwater logs source --env {name} says how far it is"
    return f"items older than the stream of changes need a load: headwater resync {table} --env {name}"


def _reads_no_rows(deployed: Deployed) -> bool:
    return deployed.environment.postgresql.connect.snapshot_mode == connectors.NO_DATA


def _awaited(deployed: Deployed, contract: Contract, committed: LastCommit | None) -> list[Problem]:
    """The problem of a table that waits for the rows of its source; empty if it does not wait."""
    if committed is not None or contract.source.database != POSTGRESQL or not _reads_no_rows(deployed):
        return []
    found = f"{contract.table} waits for the rows that its source has: connect.snapshot_mode is no_data"
    return [Problem(found, deployed.commands.backfill(contract.main_table), "writer")]


def _uncatalogued(deployed: Deployed, contract: Contract, uri: str, catalog: Catalog) -> list[Problem]:
    """The problems of a table that the catalog lacks, or has at another location."""
    # The views of a history belong to its table.
    history = change_history(contract)
    names = [contract.table] if contract.is_history else catalog_names(contract)
    missing = [name for name in names if name not in catalog and (history is None or name != history.table)]
    if missing:
        found = f"the catalog lacks {', '.join(missing)}: queries do not find them"
    elif (location := catalog[contract.table]["location"] if contract.table in catalog else uri).rstrip("/") != uri:
        found = f"the catalog has {contract.table} at {location}, and it is written to {uri}"
    else:
        return []
    name = deployed.environment.name
    advice = (
        f"if they were never deployed, headwater deploy --env {name}; if somebody deleted them, create them again from "
        "the template"
    )
    return [Problem(found, advice, "catalog")]


def _landed(
    deployed: Deployed, contract: Contract, committed: LastCommit | None
) -> tuple[list[Problem], Waiting | None]:
    """The landed records of a PostgreSQL table that are not committed yet; a table of DynamoDB has none."""
    if contract.source.database != POSTGRESQL:
        return [], None
    landing = Landing(
        deployed.client("s3"), deployed.landing, connectors.topic(contract, deployed.capture.topic_prefix)
    )
    cursor = committed.progress.cursor if committed else {}
    gap = "restore the objects, as the writer's message says"
    try:
        waiting = landing.waiting(cursor)
    except LandingGap as error:
        return [Problem(str(error), gap, "writer")], None
    problems = []
    if waiting.gap:
        problems.append(Problem(f"landing objects of {waiting.gap} are missing", gap, "writer"))
    since = waiting.since
    if since is not None:
        seconds = deployed.now() - since.timestamp()
        if seconds > deployed.environment.monitoring.freshness_seconds:
            problems.append(
                Problem(
                    f"{waiting.records:,} records have landed and wait, the oldest for {seconds:,.0f} s",
                    "see the writer; its last event says why: headwater logs writer "
                    f"--env {deployed.environment.name} --table {contract.table} --since 1d",
                    "freshness",
                )
            )
    return problems, waiting


def _of(deployed: Deployed, contract: Contract, name: str, statistic: str) -> Metric:
    dimensions = {reported.DATABASE: deployed.glue_database, reported.TABLE: contract.table}
    return Metric.of(reported.NAMESPACE, name, statistic, **dimensions)
