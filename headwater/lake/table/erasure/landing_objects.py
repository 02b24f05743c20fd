"""Rewrites landing objects without the records of erased keys. No other code rewrites a landing object.

An object keeps its name, its metadata, and a line for each offset. So the sink, the cursors and the order of offsets do
not change. The new object is written over the version that was read, so an object that was deleted meanwhile does not
come back.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.lake.base.s3_versions import delete_former, met_another
from headwater.lake.decoding.decoded_frame import spread
from headwater.lake.table.erasure.records import LandedLines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TRIES = 6


class Searched(NamedTuple):
    """The result of searching landing objects."""

    objects: int = 0
    """The number of objects that were read."""
    rewritten: int = 0
    """The number of objects that were rewritten."""
    records: int = 0
    """The number of records that were removed or changed."""
    unreadable: int = 0
    """The number of records without a readable key, and of objects that cannot be read."""

    def and_those(self, others: Searched) -> Searched:
        """The sums of these numbers and the others."""
        return Searched(*(one + other for one, other in zip(self, others, strict=True)))


def clear(
    spark: SparkSession, objects: Sequence[tuple[str, str]], parallelism: int, lines: Callable[[], LandedLines]
) -> Searched:
    """Rewrite the landing objects that have records of erased keys, and delete their former versions.

    - ``objects``: the bucket and the key of each object.
    - ``parallelism``: the number of Spark tasks.
    - ``lines``: makes the reader for the lines of one object.
    """
    if not objects:
        return Searched()

    def search(part: Iterable[tuple[str, str]]) -> Iterator[Searched]:
        import boto3

        s3 = boto3.client("s3")
        for bucket, key in part:
            yield _search(s3, bucket, key, lines)

    total = Searched()
    for one in spread(spark, objects, parallelism).mapPartitions(search).collect():
        total = total.and_those(Searched(*one))
    return total


def _search(s3: Any, bucket: str, key: str, line_reader: Callable[[], LandedLines]) -> Searched:
    for tries_left in reversed(range(_TRIES)):
        try:
            stored = s3.get_object(Bucket=bucket, Key=key)
        except s3.exceptions.NoSuchKey:
            return Searched()
        lines = line_reader()
        try:
            former = gzip.decompress(stored["Body"].read()).decode("utf-8").split("\n")
        except (OSError, EOFError, zlib.error, UnicodeDecodeError):
            return Searched(1, 0, 0, 1)
        now = [lines.without_erased(line) if line else line for line in former]
        if now == former:
            return Searched(1, 0, 0, lines.cleared.unreadable)
        written = _written_over(s3, bucket, key, stored, "\n".join(now), may_be_refused=tries_left > 0)
        delete_former(s3, bucket, key)
        if written:
            break
    return Searched(1, 1, lines.cleared.lines, lines.cleared.unreadable)


def _written_over(
    s3: Any, bucket: str, key: str, stored: Mapping[str, Any], text: str, *, may_be_refused: bool
) -> bool:
    """Write an object over the version that was read. Returns False if that version is gone.

    Then the object was deleted, or another process has rewritten it. Or this process has, and S3's answer was lost.
    """
    kept = {name: stored[name] for name in ("ContentType", "ContentEncoding") if stored.get(name)}
    body = gzip.compress(text.encode("utf-8"), mtime=0)
    try:
        s3.put_object(Bucket=bucket, Key=key, Body=body, Metadata=stored["Metadata"], IfMatch=stored["ETag"], **kept)
    except s3.exceptions.ClientError as error:
        if not met_another(error) or not may_be_refused:
            raise
        return False
    return True
