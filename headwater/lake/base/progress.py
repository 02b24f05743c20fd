"""How far a table has been written: the cursor, the floor and the epoch that each of its commits carries."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field, fields, replace

NOTED_AS = "headwater.progress"
"""What the metadata of a commit calls its progress, which is there as JSON."""


@dataclass(frozen=True)
class Progress:
    """What every commit of Headwater's carries. ``cursor``: how far the source is read. ``floor``: the ``_order`` below
    which no row is alive. ``epoch`` and ``layout`` (key, partitioning, buckets): what the table was written with.
    ``since``: when streaming began, in microseconds since 1970; every change since then is read or will be; 0 where
    that moment is not known. ``exports``: how many data files of each export are in the table. ``order_version``: the
    layout of the table's ``_order``, as ``changes.order_version`` counts them. Older commits carry none: theirs is 1.
    ``purged``: the latest ``_order`` of a tombstone that is purged. ``lowest``: no row of the table has had a lower
    ``_order``, "" where that is not known. ``erased``: how many keys are forgotten at least, which
    ``erased_keys`` has; ``erased_mark`` tells which they are, and up to which orders.

    The commits of compaction and cleaning carry none, so the newest instant that holds one counts."""

    cursor: dict[str, int] = field(default_factory=dict)
    floor: str = ""
    epoch: int = 1
    layout: str = ""
    since: int = 0
    exports: dict[str, int] = field(default_factory=dict)
    order_version: int = 1
    purged: str = ""
    lowest: str = ""
    erased: int = 0
    erased_mark: str = ""

    def with_streaming_start(self, since: int = 0) -> Progress:
        """This progress with that moment as ``since``, or now without one, unless an earlier moment is known."""
        return self if self.since else replace(self, since=since or time.time_ns() // 1000)

    def in_epoch(self, epoch: int, order_version: int, *, from_beginning: bool) -> Progress:
        """This progress at the beginning of an epoch: what was loaded or read before counts as older than everything
        from now on, whatever the layout of its order. ``from_beginning``: the source is read anew from its starting
        position."""
        cursor = {} if from_beginning else self.cursor
        return replace(self, cursor=cursor, epoch=epoch, since=0, exports={}, order_version=order_version)

    def to_json(self) -> str:
        """The text kept in the commit's metadata."""
        noted = asdict(self)
        if not self.erased:
            # A release that does not know of forgotten keys may read on where there are none.
            del noted["erased"], noted["erased_mark"]
        return json.dumps(noted, sort_keys=True)

    @staticmethod
    def from_json(text: str) -> Progress:
        """Read back what ``to_json`` wrote. Raises ValueError where a later release has."""
        noted = json.loads(text)
        unknown = sorted(noted.keys() - {known.name for known in fields(Progress)})
        if unknown:
            raise ValueError(
                f"progress of the last commit: found {', '.join(unknown)}, which this release does not know: a later "
                "one has written the table. Use that one."
            )
        return Progress(**noted)
