"""Places beside the lake in which an erased row may stay, and for how long, by an environment's settings."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from headwater.contract.model import POSTGRESQL, Contract
from headwater.environment.model import Aurora, CreatedTables, Environment, ExistingTables

OLDER_VERSION_DAYS = 7
"""How long a versioned bucket keeps older versions of objects. It is long enough to undo a mistake, and no longer,
because the writers delete files all the time."""
_REFRESHES = {"hourly": dt.timedelta(hours=1), "daily": dt.timedelta(days=1)}
_DYNAMODB_BACKUP_DAYS = 35
"""Point-in-time recovery as the deployment switches it on."""
_SEGMENT = dt.timedelta(days=7)
"""Kafka deletes whole segments, and begins another one after so long (``log.roll.hours``, Kafka's default)."""


@dataclass(frozen=True)
class Expiry:
    """A place in which a row may stay."""

    place: str
    keeps: dt.timedelta | None
    """The longest time that it stays after it was last written there; None if Headwater does not know."""
    why: str
    """The setting that limits the time, or whom to ask."""

    def document(self, now: dt.datetime) -> dict[str, str | None]:
        """For a receipt of that moment."""
        gone_by = None if self.keeps is None else (now + self.keeps).isoformat(timespec="seconds")
        return {"place": self.place, "gone_by": gone_by, "why": self.why}


def expiries(environment: Environment, contract: Contract, *, in_charts: bool) -> list[Expiry]:
    """What expires of a contract's row, the source's own copies first, and what people have to delete. ``in_charts``
    says whether QuickSight's charts show the table."""
    of_source = _of_postgresql if contract.source.database == POSTGRESQL else _of_dynamodb
    days = dt.timedelta(days=1)
    return [
        *of_source(environment),
        *_of_lake(environment, in_charts),
        Expiry("Athena's query results", environment.lake.query_result_days * days, "lake.query_result_days"),
        Expiry("logs of writers, connectors and functions", environment.log_days * days, "log_days"),
        Expiry("files of people: the demo's report, what verify printed, results of queries", None, "theirs to delete"),
    ]


def _of_lake(environment: Environment, in_charts: bool) -> list[Expiry]:
    found = []
    if environment.data.retain:
        versions = dt.timedelta(days=OLDER_VERSION_DAYS)
        place = "older versions in S3, where a writer was killed before it deleted them"
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
