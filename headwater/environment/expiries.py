"""The places outside the lake that may keep an erased row, and how long, by an environment's settings."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from headwater.contract.model import POSTGRESQL, Contract
from headwater.environment.model import Aurora, CreatedTables, Environment, ExistingTables

OLDER_VERSION_DAYS = 7
"""How many days a versioned bucket keeps older versions of objects.

A week is enough to undo a mistake. A longer time would cost much, because the writers delete files all the time.
"""
_REFRESHES = {"hourly": dt.timedelta(hours=1), "daily": dt.timedelta(days=1)}
_DYNAMODB_BACKUP_DAYS = 35
"""How many days DynamoDB's point-in-time recovery, which the deployment switches on, goes back."""
_SEGMENT = dt.timedelta(days=7)
"""The longest time that a segment of Kafka's log is open (``log.roll.hours``). Kafka deletes only whole segments."""


@dataclass(frozen=True)
class Expiry:
    """A place that may keep an erased row."""

    place: str
    """The name of the place."""
    keeps: dt.timedelta | None
    """The longest time for which the place keeps a row after its last write; None if Headwater does not know."""
    why: str
    """The setting that limits the time, or the person to ask."""

    def document(self, now: dt.datetime) -> dict[str, str | None]:
        """Return the entry for a receipt that is written ``now``."""
        gone_by = None if self.keeps is None else (now + self.keeps).isoformat(timespec="seconds")
        return {"place": self.place, "gone_by": gone_by, "why": self.why}


def expiries(environment: Environment, contract: Contract, *, in_charts: bool) -> list[Expiry]:
    """Return the places that may keep a row of a contract's table, the source's own copies first.

    Some places expire, and people have to delete the others. ``in_charts`` says whether QuickSight's charts show the
    table.
    """
    of_source = _of_postgresql if contract.source.database == POSTGRESQL else _of_dynamodb
    days = dt.timedelta(days=1)
    return [
        *of_source(environment),
        *_of_lake(environment, in_charts),
        Expiry("Athena's query results", environment.lake.query_result_days * days, "lake.query_result_days"),
        Expiry("logs of writers, connectors and functions", environment.log_days * days, "log_days"),
        Expiry(
            "people's files: the demo's report, the output of verify, results of queries", None, "people delete them"
        ),
    ]


def _of_lake(environment: Environment, in_charts: bool) -> list[Expiry]:
    found = []
    if environment.data.retain:
        versions = dt.timedelta(days=OLDER_VERSION_DAYS)
        place = "older versions in S3, if a writer was killed before it deleted them"
        found.append(Expiry(place, versions, f"the buckets keep them for {OLDER_VERSION_DAYS} days"))
    if environment.bi is not None and environment.bi.refresh is not None and in_charts:
        found.append(Expiry("QuickSight's import", _REFRESHES[environment.bi.refresh], "bi.refresh, if it succeeds"))
    return found


def _of_postgresql(environment: Environment) -> list[Expiry]:
    kafka = dt.timedelta(hours=environment.postgresql.stream.retention_hours) + _SEGMENT
    database = environment.postgresql.database
    backups = Expiry("backups of the database", None, "whoever runs the database says how long backups stay")
    if isinstance(database, Aurora):
        backups = Expiry("Aurora's automatic backups", dt.timedelta(days=database.backup_days), "database.backup_days")
    return [Expiry("Kafka's topic", kafka, "stream.retention_hours, and 7 days until a segment is full"), backups]


def _of_dynamodb(environment: Environment) -> list[Expiry]:
    key_value = environment.dynamodb.key_value
    stream = Expiry(
        "the Kinesis stream",
        dt.timedelta(hours=key_value.stream_retention_hours),
        "key_value.stream_retention_hours",
    )
    if isinstance(key_value, ExistingTables):
        days = dt.timedelta(days=environment.lake.tombstone_days)
        stream = Expiry(stream.place, days, "lake.tombstone_days, for which an existing stream may keep records")
    backups = Expiry("backups of the DynamoDB table", None, "whoever runs the table says how long backups stay")
    if isinstance(key_value, CreatedTables):
        days = dt.timedelta(days=_DYNAMODB_BACKUP_DAYS)
        backups = Expiry("DynamoDB's point-in-time recovery", days, "AWS keeps 35 days")
    return [stream, backups]
