"""Positions of the sources, and tests of whether the lake has reached them. A comparison waits for these tests."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headwater.definitions.connectors import SLOT
from headwater.lake.sources.kinesis import (
    NOTHING_READ,
    READ_TO_END,
    ShardCursor,
    ShardReader,
    is_incomplete,
    list_shards,
)
from headwater.lake.sources.landing import OffsetCursor
from headwater.operations.database import Query
from headwater.verify.watch import Reached

Goals = Callable[[], Sequence[OffsetCursor]]
"""Returns goals: next offsets by partition. Once a table's cursor has reached one of the goals, the lake has every
record that Kafka had when the goals were taken. The sequence is empty while no goal is known."""
ByMinute = Callable[[], Mapping[float, float]]
"""Returns a CloudWatch metric's values, by the epoch seconds at which each minute began."""

SINK_SECONDS = 60.0
"""If no metric reports the sink's lag, the sink is trusted to store Kafka's records within this time. It is many times
the sink's interval."""
REPLICATION_SECONDS = 30.0
"""If no metric reports the age of waiting changes, DynamoDB is trusted to put a change into Kinesis within this time.
It usually takes milliseconds."""
SILENT_SECONDS = 300.0
"""A metric without a value for this many seconds is not sent. Until then, its value may just be late."""
CLOCK_SECONDS = 5.0
"""AWS's clock is at most this many seconds ahead of our estimate."""
ARRIVAL_SECONDS = 5.0
"""Kinesis' arrival times are trusted to be wrong by at most this many seconds. Kinesis guarantees nothing."""
_MINUTE = 60.0
# A request costs.
_ASK_SECONDS = 15.0
_MOST_GOALS = 8
# Kinesis answers five requests a second for each shard, and the job needs some of them.
_CALLS_AT_ONCE = 4


class LandedPosition:
    """Takes a PostgreSQL database's position, for a test of whether the lake has reached it.

    The connector confirms to its slot every change that Kafka has acknowledged. Once the position is confirmed, the
    test takes goals for the sink. Then it waits until the table's last commit has reached one of these goals.

    Args:
        query: Runs a query in the database.
        stored: Returns goals that the sink reaches once it has stored every record that Kafka has by now.
        cursor: Returns the next offset of each partition after the table's last commit.
    """

    def __init__(self, query: Query, stored: Callable[[], Goals], cursor: Callable[[], Mapping[str, int]]) -> None:
        self._query = query
        self._stored = stored
        self._cursor = cursor

    def __call__(self) -> Reached:
        """Take the source's position and return the test.

        Both raise the exceptions of the query. The test also raises boto3's.
        """
        written = self._query("SELECT pg_current_wal_insert_lsn()::text")
        confirmed = (
            f"SELECT coalesce(bool_and(confirmed_flush_lsn >= '{written}'), false)::text "
            f"FROM pg_replication_slots WHERE slot_name = '{SLOT}'"
        )
        goals: Goals | None = None

        def reached() -> bool:
            nonlocal goals
            if goals is None and self._query(confirmed) == "true":
                goals = self._stored()
            known = goals() if goals is not None else ()
            if not known:
                return False
            cursor = self._cursor()
            return any(all(cursor.get(source, 0) >= next_ for source, next_ in goal.items()) for goal in known)

        return reached


class SinkTime:
    """Goals for the sink if no metric reports its lag: the ends of the landed records some seconds later.

    Args:
        ends: Returns the next offset of each partition after the landed records.
        seconds: How long the sink is given.
        clock: Returns seconds that only grow.
    """

    def __init__(
        self,
        ends: Callable[[], OffsetCursor],
        seconds: float = SINK_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ends = ends
        self._seconds = seconds
        self._clock = clock

    def __call__(self) -> Goals:
        """Return a function for the goals of all records that Kafka has now. It raises the exceptions of ``ends``."""
        since = self._clock()
        found: list[OffsetCursor] = []

        def goals() -> Sequence[OffsetCursor]:
            if not found and self._clock() - since >= self._seconds:
                found.append(self._ends())
            return found

        return goals


class SinkLag:
    """Goals for the sink by its lag: the records of a topic that it had not stored yet.

    A minute that began after the call has a lag L, in all partitions together. Two facts give an upper bound for the
    end of a partition's log:

    - The sink commits only offsets that it has stored. So in that minute its offset was at most ``ends``, the next
      offset after everything that has landed by now.
    - The log ended at most L records after the sink's offset.

    So the log ended at ``ends`` + L at the latest, and this is the goal. If L is not 0, a partition without new records
    never reaches it, and a later minute with a lag of 0 decides.

    If no record of a partition has landed, its offset is not known. Then only a lag of 0 gives a goal: no record of the
    partition is on its way.

    Args:
        partitions: All partitions of the topic.
        ends: Returns the next offset of each partition after the landed records.
        lags: Returns the topic's lag, by minute.
        now: Returns the time by AWS's clock, in epoch seconds.
    """

    def __init__(
        self,
        partitions: Sequence[str],
        ends: Callable[[], OffsetCursor],
        lags: ByMinute,
        now: Callable[[], float],
    ) -> None:
        self._partitions = partitions
        self._ends = ends
        self._lags = lags
        self._now = now

    def __call__(self) -> Goals:
        """Return a function for the goals of all records that Kafka has now.

        The function raises the exceptions of ``ends``, ``lags`` and ``now``.
        """
        since = self._now() + CLOCK_SECONDS
        next_at = _next_minute(since)
        least = math.inf
        found: list[OffsetCursor] = []

        def goals() -> Sequence[OffsetCursor]:
            nonlocal next_at, least
            now = self._now()
            if now < next_at or not least:
                return found
            next_at = now + _ASK_SECONDS
            lag = min((lag for minute, lag in self._lags().items() if minute >= since), default=math.inf)
            # Without a smaller lag, a new goal would only be further away, because more records have landed.
            if lag >= least:
                return found
            ends = self._ends()
            if lag and not ends.keys() >= set(self._partitions):
                return found
            least = lag
            found.append({source: end + math.ceil(lag) for source, end in ends.items()})
            del found[:-_MOST_GOALS]
            return found

        return goals


class UnreadRecords:
    """Finds the oldest record of a stream that a cursor has not reached yet.

    It reads one record of each shard and keeps its iterator, because after a long silence Kinesis gives many empty
    answers before the next record.
    """

    def __init__(self) -> None:
        self._firsts: dict[str, _FirstUnread] = {}

    def oldest(self, kinesis: Any, stream: str, cursor: ShardCursor) -> float:
        """Return when the oldest unread record arrived, in epoch seconds.

        The time is plus infinity if there is no such record, and minus infinity while that is unknown. Raises the
        exceptions of boto3, and ShardGone if the cursor is of another stream.

        Args:
            kinesis: boto3's client.
            stream: The stream's name.
            cursor: The position in each shard. It has to be read before this call lists the shards.
        """
        # Children of shards that are not read to their end count as well. A shard whose cursor has moved gets a new
        # reader; the others go on where they are.
        shards = {f"{stream}/{shard['ShardId']}": shard for shard in list_shards(kinesis, stream)}
        firsts = {}
        for source, shard in shards.items():
            after = cursor.get(source, NOTHING_READ)
            first = self._firsts.get(source)
            if first is None or first.after != after:
                first = _FirstUnread(ShardReader(kinesis, stream, shard["ShardId"], after))
            if after != READ_TO_END:
                firsts[source] = first
        self._firsts = firsts
        oldest = min((first.arrived() for first in firsts.values()), default=math.inf)
        going_on = {source for source, first in firsts.items() if not first.is_end}
        ended = {shard["ShardId"] for source, shard in shards.items() if source not in going_on}
        return -math.inf if is_incomplete(shards.values(), ended) else oldest


class _FirstUnread:
    """The first record of a shard after a reader's position."""

    def __init__(self, reader: ShardReader) -> None:
        self.after = reader.after
        self._reader = reader
        self._arrived: float | None = None

    @property
    def is_end(self) -> bool:
        """Whether the shard is closed and has no record after the position."""
        return self._reader.is_closed and self._arrived is None

    def arrived(self) -> float:
        """Return when the record arrived, in epoch seconds.

        It is plus or minus infinity as in ``UnreadRecords.oldest``.
        """
        reader = self._reader
        for _ in range(_CALLS_AT_ONCE):
            if self._arrived is not None or self.is_end:
                break
            for record in reader.ask(1):
                self._arrived = record["ApproximateArrivalTimestamp"].timestamp()
            if not reader.is_behind:
                break
        if self._arrived is not None:
            return self._arrived
        return -math.inf if reader.is_behind else math.inf


class StreamedPosition:
    """Takes the time of a DynamoDB table, for a test of whether the lake has every change until then.

    Args:
        waiting: Returns the age, in seconds by minute, of the oldest change that DynamoDB had yet to put into the
            stream.
        unread: Returns when the oldest record arrived that the table's last commit has not reached, as
            ``UnreadRecords.oldest`` does.
        now: Returns the time by AWS's clock, in epoch seconds.
    """

    def __init__(self, waiting: ByMinute, unread: Callable[[], float], now: Callable[[], float]) -> None:
        self._waiting = waiting
        self._unread = unread
        self._now = now

    def __call__(self) -> Reached:
        """Take the time and return the test. Raises the exceptions of ``now``.

        The test also raises the exceptions of ``waiting`` and ``unread``.
        """
        taken = self._now() + CLOCK_SECONDS
        next_at = _next_minute(taken)
        streamed_at: float | None = None

        def reached() -> bool:
            nonlocal next_at, streamed_at
            now = self._now()
            if now < next_at:
                return False
            next_at = now + _ASK_SECONDS
            if streamed_at is None:
                streamed_at = self._streamed_at(taken, now)
            return streamed_at is not None and self._unread() >= streamed_at + ARRIVAL_SECONDS

        return reached

    def _streamed_at(self, taken: float, now: float) -> float | None:
        """Return the latest time at which the last change until ``taken`` entered the stream; None while unknown.

        In each minute DynamoDB measures the age of its oldest waiting change at least once. Every older change is in
        the stream by then. DynamoDB's documentation says that values may come every five minutes. It does not say that
        a value comes if no change waits. So if a minute has no value, the values just before decide, and DynamoDB is
        trusted to take its usual time.
        """
        waiting = self._waiting()
        if any(minute >= taken for minute in waiting):
            # The first minute whose oldest waiting change is younger than ``taken``.
            streamed = (minute for minute, age in waiting.items() if minute >= taken and minute - age >= taken)
            return min((minute + _MINUTE for minute in streamed), default=None)
        if now - taken < SILENT_SECONDS:
            return None
        before = (age for minute, age in waiting.items() if minute > taken - SILENT_SECONDS)
        return None if max(before, default=0.0) > REPLICATION_SECONDS else taken + REPLICATION_SECONDS


def _next_minute(seconds: float) -> float:
    return math.ceil(seconds / _MINUTE) * _MINUTE
