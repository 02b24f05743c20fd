"""How far the sources are, and whether the lake has come as far: what a comparison waits for while all writes go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from headwater.definitions.connectors import SLOT
from headwater.lake.landing import Landing, OffsetCursor
from headwater.operations.database import Query
from headwater.verify.watch import Reached

SINK_SECONDS = 15.0
"""Within them the sink stores what Kafka has: many times its interval."""
REPLICATION_SECONDS = 30.0
"""Within them DynamoDB has its changes in Kinesis: many times what it takes. An alarm tells where it takes longer."""
_MINUTE = 60.0
_ASK_SECONDS = 15.0


class LandedPosition:
    """The position of a PostgreSQL that ``query`` asks, and the lake's behind it: by what the connector has confirmed,
    what has landed then, and the ``cursor`` of the table's last commit, which is the next offset of each partition."""

    def __init__(
        self,
        query: Query,
        landing: Landing,
        cursor: Callable[[], Mapping[str, int]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._query = query
        self._landing = landing
        self._cursor = cursor
        self._clock = clock

    def __call__(self) -> Reached:
        """Take the source's position. Raises what the query raises, and so does the test, and what boto3 raises."""
        written = self._query("SELECT pg_current_wal_insert_lsn()::text")
        confirmed = (
            f"SELECT coalesce(bool_and(confirmed_flush_lsn >= '{written}'), false)::text "
            f"FROM pg_replication_slots WHERE slot_name = '{SLOT}'"
        )
        confirmed_at: float | None = None
        ends: OffsetCursor | None = None

        def reached() -> bool:
            nonlocal confirmed_at, ends
            if confirmed_at is None and self._query(confirmed) == "true":
                confirmed_at = self._clock()
            if confirmed_at is None or self._clock() - confirmed_at < SINK_SECONDS:
                return False
            cursor = self._cursor()
            if ends is None:
                ends = self._landing.waiting(cursor).ends
            return all(cursor.get(source, 0) >= end for source, end in ends.items())

        return reached


class StreamedPosition:
    """The time of a DynamoDB table, and the lake's behind it: by ``ages``, which gives how old what the job reads from
    the table's stream was at most, in seconds by the epoch seconds at which each minute began. ``now`` is the time by
    AWS's clock."""

    def __init__(self, ages: Callable[[], Mapping[float, float]], now: Callable[[], float]) -> None:
        self._ages = ages
        self._now = now

    def __call__(self) -> Reached:
        """Take the time. The test raises what ``ages`` raises."""
        streamed_at = self._now() + REPLICATION_SECONDS
        next_at = streamed_at + _MINUTE

        def reached() -> bool:
            nonlocal next_at
            if self._now() < next_at:
                return False
            # A request costs.
            next_at = self._now() + _ASK_SECONDS
            ages = self._ages()
            read = [minute for minute, age in ages.items() if minute - age >= streamed_at]
            # The job reads on when it has committed what it read.
            return bool(read) and max(ages) > min(read)

        return reached
