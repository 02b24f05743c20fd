"""The state of the two connectors on MSK Connect, and of the records in Kafka between them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from headwater.definitions import connectors
from headwater.definitions.connectors import GONE_TABLE, LOST_SLOT, UNREAD_TABLE
from headwater.operations.database import then_read_again
from headwater.operations.deployed import Deployed
from headwater.operations.measurements import Measurements, Metric, of_last_hour
from headwater.operations.part_logs import Wanted, last_error, lines
from headwater.operations.state import Part, Problem, Runbook

SOURCE, SINK = "source connector", "sink"
# Texts in the source connector's log, each with its page in docs/runbooks.
_PAGES: Mapping[str, Runbook] = {LOST_SLOT: "lost-slot", UNREAD_TABLE: "unread-table"}
_GONE = re.compile(rf"{GONE_TABLE}: (\w+\.\w+)")
_UNREADABLE = "its log cannot be read"
_CONNECTOR: Runbook = "connector"
_RECENTLY_SECONDS, _LONG_AGO_SECONDS = 120.0, 86_400.0
_IN_CHANGE = ("CREATING", "RESTARTING", "RESUMING", "UPDATING")


def metrics(deployed: Deployed) -> Iterable[Metric]:
    """The metrics that ``observe`` needs."""
    if not deployed.relational:
        return
    for name in deployed.connector_names:
        yield _tasks(name, "RunningTaskCount")
        yield _tasks(name, "ErroredTaskCount")
    yield from (_lag(deployed, topic) for topic in connectors.table_topics(deployed.relational, deployed.capture))


def observe(deployed: Deployed, measurements: Measurements, database: Part) -> list[Part]:
    """Return the state of the source connector, then of the sink. Raises the exceptions of boto3.

    If the ``database`` has a problem, the source connector may be failing and retrying, although MSK Connect reports
    its tasks as running. So its log is searched for an error.
    """
    listed: dict[str, Mapping[str, str]] = {}
    pages = deployed.client("kafkaconnect").get_paginator("list_connectors")
    for page in pages.paginate(connectorNamePrefix=deployed.prefix):
        listed |= {each["connectorName"]: each for each in page["connectors"]}
    source, sink = deployed.connector_names
    reader = _connector(deployed, measurements, SOURCE, source, listed.get(source), suspect=bool(database.problems))
    if database.unasked:
        reader = _with_gone_tables(deployed, reader)
    parts = [
        reader,
        _with_lag(deployed, measurements, _connector(deployed, measurements, SINK, sink, listed.get(sink))),
    ]
    return [replace(part, unasked=measurements.unasked) for part in parts]


def lags(deployed: Deployed, topic: str) -> Mapping[float, float]:
    """Return the sink's lag of a topic: the largest number of records that it had not stored yet, in all partitions.

    The values are by the epoch seconds at which each minute of the last hour began. Raises UserError, and the
    exceptions of boto3.
    """
    return of_last_hour(deployed.client("cloudwatch"), _lag(deployed, topic), deployed.now())


def _connector(
    deployed: Deployed,
    measurements: Measurements,
    part: str,
    name: str,
    listed: Mapping[str, str] | None,
    *,
    suspect: bool = False,
) -> Part:
    state = None if listed is None else listed["connectorState"]
    running = measurements.last(_tasks(name, "RunningTaskCount"))
    failed = measurements.last(_tasks(name, "ErroredTaskCount"))
    facts = {"connector": name, "state": state, "tasks_running": running, "tasks_failed": failed}
    deploy = f"headwater deploy --env {deployed.environment.name}"
    if listed is None:
        return Part(part, "not there", facts, [Problem(f"there is no connector {name}", deploy, "connector")])
    tasks = "no metric of its tasks" if running is None else f"{running:.0f} tasks run"
    if state in _IN_CHANGE:
        return Part(part, f"{state}: it is being deployed", facts)
    runs = state == "RUNNING" and running != 0 and not failed
    if runs and not suspect:
        return Part(part, f"{state}, {tasks}", facts)
    if failed:
        tasks += f", {failed:.0f} failed"
    # Only recent errors count: a part that goes on failing has just logged one.
    since = _RECENTLY_SECONDS if runs else _LONG_AGO_SECONDS
    error = _last_error(deployed, "source" if part == SOURCE else "sink", since)
    if runs and (not error or error.startswith(_UNREADABLE)):
        return Part(part, f"{state}, {tasks}", facts)
    facts["last_error"] = error
    found = f"{state}, {tasks}" + (f": {error}" if error else "")
    runbook = next((page for said, page in _PAGES.items() if said in error), _CONNECTOR)
    log = f"headwater logs {part.split()[0]} --env {deployed.environment.name}"
    advice = f"correct the error in the log ({log}), then restart the connector"
    if state == "PAUSED":
        advice = f"somebody has paused it: aws kafkaconnect resume-connector --connector-arn {listed['connectorArn']}"
    return Part(part, f"{state}, {tasks}", facts, [Problem(found, advice, runbook)])


def _last_error(deployed: Deployed, log: str, seconds: float) -> str:
    """The last error of a log; if the log cannot be read, a text that says so."""
    try:
        return last_error(deployed, log, seconds, list(_PAGES))
    except (BotoCoreError, ClientError) as error:
        return f"{_UNREADABLE}: {error}"


def _with_gone_tables(deployed: Deployed, source: Part) -> Part:
    """Return the source connector with the captured tables that are gone according to its log.

    This is for a database that could not be reached. For other databases, ``database.observe`` reports such tables.
    """
    try:
        said = list(lines(deployed, "source", Wanted(deployed.now() - _RECENTLY_SECONDS, text=GONE_TABLE)))
    except (BotoCoreError, ClientError):
        return source
    gone = sorted({found[1] for line in said if (found := _GONE.search(line.text))})
    if not gone:
        return source
    problem = Problem(
        f"dropped, renamed or unpublished in the source: {', '.join(gone)}",
        "rename the table back, or publish it or its successor, as the runbook says"
        + then_read_again(gone, deployed.relational, deployed.commands),
        "gone-table",
    )
    return replace(source, problems=[*source.problems, problem])


def _with_lag(deployed: Deployed, measurements: Measurements, sink: Part) -> Part:
    topics = connectors.table_topics(deployed.relational, deployed.capture)
    lags = {topic: measurements.last(_lag(deployed, topic)) for topic in topics}
    known = {topic: lag for topic, lag in lags.items() if lag is not None}
    facts: dict[str, Any] = {**sink.facts, "records_to_land": lags}
    most = deployed.environment.monitoring.consumer_lag_records
    problems = list(sink.problems)
    for topic, lag in known.items():
        if lag > most:
            hours = deployed.environment.postgresql.stream.retention_hours
            problems.append(
                Problem(
                    f"{lag:,.0f} records of {topic} have not landed; Kafka keeps them for {hours} h",
                    "see whether the sink runs; if it does, give it more tasks or units",
                    "consumer-lag",
                )
            )
    says = f"{sink.says}, {sum(known.values()):,.0f} records to land" if known else sink.says
    return Part(sink.name, says, facts, problems)


def _tasks(name: str, metric: str) -> Metric:
    statistic = "Minimum" if metric == "RunningTaskCount" else "Maximum"
    return Metric.of("AWS/KafkaConnect", metric, statistic, ConnectorName=name)


def _lag(deployed: Deployed, topic: str) -> Metric:
    group = connectors.sink_group(deployed.capture)
    dimensions = {"Cluster_Name": deployed.prefix, "Consumer_Group": group, "Topic": topic}
    return Metric.of("AWS/Kafka", "SumOffsetLag", "Maximum", **dimensions)
