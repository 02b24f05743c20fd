"""How far the sources are, and whether the lake has come as far: what a comparison waits for while all writes go on."""

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
"""Next offsets by partition. Where a table's cursor has come to any of them, the lake has all that Kafka had at some
moment; none while they are not known."""
ByMinute = Callable[[], Mapping[float, float]]
"""What CloudWatch has of a metric, by the epoch seconds at which each minute began."""

SINK_SECONDS = 60.0
"""Within them the sink stores what Kafka has, where nothing tells of its lag: many times its interval."""
REPLICATION_SECONDS = 30.0
"""Within them DynamoDB has its changes in Kinesis, where it tells nothing: usually it takes milliseconds."""
SILENT_SECONDS = 300.0
"""After them a metric that is not there is not sent, and not just late."""
CLOCK_SECONDS = 5.0
"""So far at most AWS's clock is ahead of what is known of it."""
ARRIVAL_SECONDS = 5.0
"""So far at most Kinesis' times of arrival are from the truth, for which Kinesis gives no guarantee."""
_MINUTE = 60.0
# A request costs.
_ASK_SECONDS = 15.0
_MOST_GOALS = 8
# Kinesis gives five answers a second for each shard, and the job wants some of them.
_CALLS_AT_ONCE = 4


class LandedPosition:
    """The position of a PostgreSQL that ``query`` asks, and the lake's behind it. The connector confirms to its slot
    what Kafka has acknowledged. Once it has confirmed all that was written, ``stored`` gives what the sink has to have
    stored of it, and ``cursor``, that of the table's last commit, the next offset of each partition."""

    def __init__(self, query: Query, stored: Callable[[], Goals], cursor: Callable[[], Mapping[str, int]]) -> None:
        self._query = query
        self._stored = stored
        self._cursor = cursor

    def __call__(self) -> Reached:
        """Take the source's position. Raises what the query raises; so does the test, and what asks AWS raises."""
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
    """What the sink has stored some ``seconds`` after it was in Kafka, where nobody tells how far the sink is. ``ends``
    gives the next offset of each partition after what has landed."""

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
        """The goals for what Kafka has now. They raise what ``ends`` raises."""
        since = self._clock()
        found: list[OffsetCursor] = []

        def goals() -> Sequence[OffsetCursor]:
            if not found and self._clock() - since >= self._seconds:
                found.append(self._ends())
            return found

        return goals


class SinkLag:
    """What the sink has to store of a topic, by how many records it lagged behind Kafka (``lags``), in all
    ``partitions`` together. ``ends`` is as for ``SinkTime``, and ``now`` gives the time by AWS's clock.

    The lag of a minute that began later than all was in Kafka was taken when it was. The sink's place in a partition
    was no further then than what has landed by now, because it commits only what it has stored; and the partition's
    log ended no further behind that place than the lag of all partitions. So it ended at ``ends`` and the lag at the
    latest. With a lag of 0 that is what has landed. With another one, a partition that gets no more records never comes
    as far: then a later minute without a lag decides. Of a partition of which nothing has landed the place is not
    known, so that nothing follows of a lag; without one, nothing of it is on its way."""

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
        """The goals for what Kafka has now. They raise what ``ends``, ``lags`` and ``now`` raise."""
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
            # With no smaller lag, and what has landed since, a goal would only lie further.
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
    """When the records arrived that a cursor has not come to yet. It asks each shard for one record, and keeps its
    place there: after a long silence, Kinesis gives many empty answers before the next record."""

    def __init__(self) -> None:
        self._firsts: dict[str, _FirstUnread] = {}

    def oldest(self, kinesis: Any, stream: str, cursor: ShardCursor) -> float:
        """When the oldest of them arrived, in epoch seconds.

        It is infinity where there is none, and minus infinity while that is not known. Raises what boto3 raises, and
        ShardGone where the cursor is of another stream.

        Args:
            kinesis: boto3's client.
            stream: The stream's name.
            cursor: What was read of its shards. It has to be known before the shards are listed.
        """
        # A child of a shard that is not read to its end counts, too.
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
        """Whether the shard will hold none."""
        return self._reader.is_closed and self._arrived is None

    def arrived(self) -> float:
        """When it arrived, as ``UnreadRecords`` says."""
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
    """The time of a DynamoDB table, and the lake's behind it.

    ``waiting`` gives how old what DynamoDB had yet to put into the stream was at most, in seconds by minute, and
    ``unread`` when the oldest record arrived that the table's last commit has not come to, as ``UnreadRecords`` says.
    ``now`` is the time by AWS's clock."""

    def __init__(self, waiting: ByMinute, unread: Callable[[], float], now: Callable[[], float]) -> None:
        self._waiting = waiting
        self._unread = unread
        self._now = now

    def __call__(self) -> Reached:
        """Take the time. Raises what ``now`` raises; the test also what the others raise."""
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
        """When all that was written until a moment was in the stream at the latest; None while that is not known.

        Whenever DynamoDB looks in a minute that begins later, all is in the stream that is older than the age that it
        tells; it looks once a minute at least. By its documentation such figures may come every five minutes, and
        nothing there says that one comes where nothing waits. Without one, what waited just before decides, and the
        usual time is trusted."""
        waiting = self._waiting()
        if any(minute >= taken for minute in waiting):
            streamed = (minute for minute, age in waiting.items() if minute >= taken and minute - age >= taken)
            return min((minute + _MINUTE for minute in streamed), default=None)
        if now - taken < SILENT_SECONDS:
            return None
        before = (age for minute, age in waiting.items() if minute > taken - SILENT_SECONDS)
        return None if max(before, default=0.0) > REPLICATION_SECONDS else taken + REPLICATION_SECONDS


def _next_minute(seconds: float) -> float:
    return math.ceil(seconds / _MINUTE) * _MINUTE
