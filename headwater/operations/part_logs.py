"""The logs of an environment's parts: where each is, and the lines of it that are wanted."""

from __future__ import annotations

import gzip
import heapq
import io
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from headwater.contract.model import DYNAMODB, POSTGRESQL
from headwater.environment.model import SOURCE_NAMES
from headwater.errors import UserError
from headwater.operations.deployed import Deployed

# The parts that write into log groups, by the paths of these; a path that ends with * begins the names of several.
_GROUPS: Mapping[str, str] = {
    "source": "/headwater/{environment}/connect/source",
    "sink": "/headwater/{environment}/connect/sink",
    "brokers": "/headwater/{environment}/brokers",
    "database": "/aws/rds/cluster/headwater-{environment}/postgresql",
    "job": "/headwater/{environment}/glue/*",
    "steps": "/headwater/{environment}/custom-resources/steps",
    "runs": "/headwater/{environment}/custom-resources/runs",
    "rotation": "/headwater/{environment}/custom-resources/rolerotation",
}
WRITER = "writer"
"""The EMR step, whose logs lie in S3."""
PARTS = (*_GROUPS, WRITER)
_OF_DYNAMODB = ("job", "runs")
# All other parts are those of PostgreSQL's pipeline.
# How a line begins, or what stands in it, that tells of an error: of Java, of a log's level, of Python.
_ERROR = re.compile(r"^(Caused by: )?[\w.$]+(Exception|Error)\b|\b(ERROR|FATAL)\b")
# Connect says it of each plugin that it cannot load, and goes on.
_HARMLESS = ("PluginScanner",)
# MSK Connect begins each line with the worker's name.
_WORKER = re.compile(r"^\[Worker-[0-9a-f]+\] ?")
_MILLISECONDS = 1000
_LINE_CHARACTERS = 300
# A task that fails says why, and within that much that it ends.
_TOGETHER_SECONDS = 300.0
_EVENTS, _REST = "stdout.gz", "stderr.gz"


@dataclass(frozen=True)
class Line:
    """A line of a log."""

    at: float | None
    """When it was written, in epoch seconds; None if the log does not say."""
    text: str


@dataclass(frozen=True)
class Wanted:
    """The lines of a log that are wanted."""

    since: float
    """Only lines since this moment, in epoch seconds."""
    errors: bool = False
    """Only lines of errors."""
    table: str = ""
    """Only lines of a table's events."""
    text: str = ""
    """Only lines that contain this text."""

    @property
    def pattern(self) -> str:
        """A filter pattern with which CloudWatch leaves out most of the other lines."""
        if self.table:
            return f'{{ $.table = "{_plain(self.table)}" }}'
        if self.text:
            return f'"{_plain(self.text)}"'
        return "?Error ?ERROR ?Exception ?FATAL ?fail" if self.errors else ""

    def takes(self, line: str) -> bool:
        """Whether a line is wanted, whenever it was written."""
        if self.errors and not _ERROR.search(line) and not _failed(line):
            return False
        if self.table and _event(line).get("table") != self.table:
            return False
        return self.text in line


def lines(deployed: Deployed, part: str, wanted: Wanted) -> Iterator[Line]:
    """The lines of a part's log, the oldest first. Raises UserError for a part that there is not, or credentials of
    another account, and what boto3 raises."""
    expected = _parts(deployed)
    if part not in expected:
        missing = SOURCE_NAMES[DYNAMODB if part in _OF_DYNAMODB else POSTGRESQL]
        why = f": no contract is of {missing}" if part in PARTS else ""
        raise UserError(f"PART: found {part}, expected one of {', '.join(expected)}{why}")
    _ = deployed.account
    if part == WRITER:
        return _of_the_step(deployed, wanted)
    logs = deployed.client("logs")
    groups = _groups(logs, group_path(part, deployed.environment.name))
    return heapq.merge(*(_of_group(logs, group, wanted) for group in groups), key=lambda line: line.at or 0.0)


def _parts(deployed: Deployed) -> list[str]:
    """The parts of the sources that have contracts."""
    contracts = {False: deployed.relational, True: deployed.key_value}
    return [part for part in PARTS if contracts[part in _OF_DYNAMODB]]


def _of_group(logs: Any, group: str, wanted: Wanted) -> Iterator[Line]:
    pages = logs.get_paginator("filter_log_events").paginate(
        logGroupName=group, startTime=int(wanted.since * _MILLISECONDS), filterPattern=wanted.pattern
    )
    for page in pages:
        for event in page["events"]:
            text = _WORKER.sub("", event["message"].rstrip())
            if wanted.takes(text):
                yield Line(event["timestamp"] / _MILLISECONDS, text)


def group_path(part: str, environment: str) -> str:
    """The log group of a part other than the writer; with * at its end, how the names of several begin."""
    return _GROUPS[part].format(environment=environment)


def last_error(deployed: Deployed, part: str, seconds: float, foremost: Sequence[str]) -> str:
    """Return an error of the last ``seconds`` from a part's log, in a line; "" if there is none.

    It is an error with one of the ``foremost`` texts, or else the newest. Errors long before the newest do not count,
    because they have another cause.
    """
    found = [
        line
        for line in lines(deployed, part, Wanted(deployed.now() - seconds, errors=True))
        if not any(word in line.text for word in _HARMLESS)
    ]
    if not found:
        return ""
    at = (found[-1].at or 0.0) - _TOGETHER_SECONDS
    known = [line for line in found if (line.at or 0.0) >= at and any(word in line.text for word in foremost)]
    return (known or found)[-1].text[:_LINE_CHARACTERS]


def _groups(logs: Any, path: str) -> Sequence[str]:
    if not path.endswith("*"):
        return [path]
    pages = logs.get_paginator("describe_log_groups").paginate(logGroupNamePrefix=path[:-1])
    return [group["logGroupName"] for page in pages for group in page["logGroups"]]


def _of_the_step(deployed: Deployed, wanted: Wanted) -> Iterator[Line]:
    """The events of the newest step that has logs, and if errors are wanted what else it says, behind them. EMR puts
    both into S3 every few minutes, whole; only events have a time."""
    emr, cluster = deployed.client("emr"), deployed.cluster_id
    uri = urlsplit(emr.describe_cluster(ClusterId=cluster)["Cluster"]["LogUri"])
    folder = f"{uri.path.strip('/')}/{cluster}/steps"
    s3 = deployed.client("s3")
    for step in emr.list_steps(ClusterId=cluster)["Steps"]:
        if not step["Name"].startswith(deployed.step_name):
            continue
        events = _read(s3, uri.netloc, f"{folder}/{step['Id']}/{_EVENTS}")
        if events is None:
            continue
        rest = _read(s3, uri.netloc, f"{folder}/{step['Id']}/{_REST}") if wanted.errors else None
        for text in itertools.chain(events, rest or ()):
            at = _event(text).get("at")
            if wanted.takes(text) and (at is None or at >= wanted.since):
                yield Line(at, text)
        return


def _read(s3: Any, bucket: str, key: str) -> Iterator[str] | None:
    """Stream the lines of a compressed object; None if there is no such object."""
    try:
        body = s3.get_object(Bucket=bucket, Key=key)["Body"]
    except s3.exceptions.NoSuchKey:
        return None
    return (line.rstrip("\n") for line in io.TextIOWrapper(gzip.GzipFile(fileobj=body), "utf-8", "replace"))


def _plain(text: str) -> str:
    """A text within quotation marks of a pattern."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _event(line: str) -> Mapping[str, Any]:
    """The event that a writer tells in a line; empty if it is another line."""
    if not line.startswith("{"):
        return {}
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


def _failed(line: str) -> bool:
    return "fail" in str(_event(line).get("event", ""))
