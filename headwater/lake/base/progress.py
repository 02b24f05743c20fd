"""The progress of a table: the cursor, the truncate marker and the epoch, which each commit of Headwater carries."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field, fields, replace

NOTED_AS = "headwater.progress"
"""The key under which the metadata of a commit has the progress, as JSON."""


@dataclass(frozen=True)
class Progress:
    """The progress of a table, as every commit of Headwater carries it.

    The commits of compaction and cleaning carry none. So the newest instant that has progress counts.
    """

    cursor: dict[str, int] = field(default_factory=dict)
    """The position up to which the source is read, by partition or shard."""
    floor: str = ""
    """The truncate marker: the ``_order`` below which no row is alive."""
    epoch: int = 1
    """The epoch in which the table was written."""
    layout: str = ""
    """The key, the partitioning and the buckets with which the table was written."""
    since: int = 0
    """When streaming began, in microseconds since 1970; 0 if unknown. Every change since then is or will be read."""
    exports: dict[str, int] = field(default_factory=dict)
    """How many data files of each export are in the table."""
    order_version: int = 1
    """The version of the layout of ``_order``, as ``changes.order_version`` returns it. The oldest commits lack it."""
    purged: str = ""
    """The latest ``_order`` of all purged tombstones."""
    lowest: str = ""
    """No row of the table has had a lower ``_order``; "" if unknown."""
    erased: int = 0
    """The least number of erased keys. ``erased_keys`` has the keys."""
    erased_mark: str = ""
    """A digest of the erased keys and of their highest erased orders."""

    def with_streaming_start(self, since: int = 0) -> Progress:
        """This progress with ``since`` set to a moment, by default now, unless an earlier moment is known."""
        return self if self.since else replace(self, since=since or time.time_ns() // 1000)

    def in_epoch(self, epoch: int, order_version: int, *, from_beginning: bool) -> Progress:
        """This progress at the beginning of an epoch, whose changes are newer than all changes written before.

        ``order_version`` is the layout of the new epoch's orders. If ``from_beginning``, the source is read again from
        its starting position.
        """
        cursor = {} if from_beginning else self.cursor
        return replace(self, cursor=cursor, epoch=epoch, since=0, exports={}, order_version=order_version)

    def to_json(self) -> str:
        """The text for the commit's metadata."""
        recorded = asdict(self)
        if not self.erased:
            # These fields are left out if they are empty, so that a release without erased keys can read the table.
            del recorded["erased"], recorded["erased_mark"]
        return json.dumps(recorded, sort_keys=True)

    @staticmethod
    def from_json(text: str) -> Progress:
        """The progress that ``to_json`` wrote. Raises ValueError if a later release has written it."""
        recorded = json.loads(text)
        unknown = sorted(recorded.keys() - {known.name for known in fields(Progress)})
        if unknown:
            raise ValueError(
                f"progress of the last commit: found {', '.join(unknown)}, which this release does not know: a later "
                "one has written the table. Use that one."
            )
        return Progress(**recorded)
