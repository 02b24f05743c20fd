"""The logs of an environment's parts: the place of each log, and the wanted lines of a log."""

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

# The parts that write into log groups, with the paths of the groups. A path that ends with * matches several groups.
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
# All other parts belong to PostgreSQL's pipeline.
# The beginning or a text of a line that reports an error: of Java, of a log's level, of Python.
_ERROR = re.compile(r"^(Caused by: )?[\w.$]+(Exception|Error)\b|\b(ERROR|FATAL)\b")
# Connect logs this for each plugin that it cannot load, and goes on.
_HARMLESS = ("PluginScanner",)
# MSK Connect begins each line with the worker's name.
_WORKER = re.compile(r"^\[Worker-[0-9a-f]+\] ?")
_MILLISECONDS = 1000
_LINE_CHARACTERS = 300
# A failing task logs the reason. Within this many seconds it also logs that it ends.
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
    """The choice of a log's lines."""

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
    """The lines of a part's log, the oldest first.

    Raises UserError if there is no such part or the credentials are of another account. Also raises the exceptions of
    boto3.
    """
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
    """The parts of the pipelines whose sources have contracts."""
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
    """The log group of a part other than the writer. With * at its end, it is the beginning of several names."""
    return _GROUPS[part].format(environment=environment)


def last_error(deployed: Deployed, part: str, seconds: float, foremost: Sequence[str]) -> str:
    """Return an error of the last ``seconds`` from a part's log, in one line; "" if there is none.

    The error contains one of the ``foremost`` texts if there is such an error; otherwise it is the newest. Errors long
    before the newest do not count, because they have another cause.
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
    """The events of the newest step that has logs. If errors are wanted, the other lines of its logs follow.

    EMR puts whole log files into S3 every few minutes. Only events have a time.
    """
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
    """The text as it may be between the quotation marks of a filter pattern."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _event(line: str) -> Mapping[str, Any]:
    """The event that a writer has written in a line; empty for another line."""
    if not line.startswith("{"):
        return {}
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


def _failed(line: str) -> bool:
    return "fail" in str(_event(line).get("event", ""))
