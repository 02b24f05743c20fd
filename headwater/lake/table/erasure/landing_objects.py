"""Rewriting landing objects without the records of keys that are forgotten: the one exception to writing them once.

An object keeps its name, its metadata, and a line for each offset, so that the sink, the cursors and the order of
offsets know nothing of it. It is written over the version that was read: one that has expired meanwhile does not come
back.
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
    """What was done to landing objects: how many were read and rewritten, how many of their records gave way, and how
    many tell no row."""

    objects: int = 0
    rewritten: int = 0
    records: int = 0
    unreadable: int = 0

    def and_those(self, others: Searched) -> Searched:
        """The sums of both."""
        return Searched(*(one + other for one, other in zip(self, others, strict=True)))


def clear(
    spark: SparkSession, objects: Sequence[tuple[str, str]], parallelism: int, lines: Callable[[], LandedLines]
) -> Searched:
    """Rewrite those of the landing objects, each its bucket and key, in which something is of a key that is forgotten,
    and remove their former versions. ``lines`` makes what finds it in an object."""
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
    """Write an object over the version that was read. False where that is gone: it has expired, somebody else has
    rewritten it, or this has, and the answer was lost."""
    told = {name: stored[name] for name in ("ContentType", "ContentEncoding") if stored.get(name)}
    body = gzip.compress(text.encode("utf-8"), mtime=0)
    try:
        s3.put_object(Bucket=bucket, Key=key, Body=body, Metadata=stored["Metadata"], IfMatch=stored["ETag"], **told)
    except s3.exceptions.ClientError as error:
        if not met_another(error) or not may_be_refused:
            raise
        return False
    return True
