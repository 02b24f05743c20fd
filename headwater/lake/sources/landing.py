"""Landing objects: what the S3 sink wrote, read in the order of offsets.

``<prefix>/<topic>/<partition>/<first offset, 20 digits>.jsonl.gz``, with the offset after the object's last one in its
metadata as ``next-offset``. Every offset of a partition is in exactly one object: a gap between two of them is an
error. What was read long ago expires, the oldest first, so that the rest begins with an object and has no gap.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from headwater.lake.base.s3_deletion import delete_all
from headwater.lake.base.s3_uri import key_below, object_uri, split_uri

OffsetCursor = dict[str, int]
"""The next offset to read of each ``topic/partition``."""

_Listed = tuple[str, str, int]
"""Source, key and size of an object."""

_SUFFIX = ".jsonl.gz"
_HEADS_AT_ONCE = 16


class LandingGap(RuntimeError):
    """Offsets are missing between two landing objects; going on would lose changes."""


@dataclass(frozen=True)
class LandingObject:
    """One object: offsets ``first`` (included) to ``next`` (excluded) of ``source``, a ``topic/partition``."""

    bucket: str
    key: str
    source: str
    first: int
    next: int
    size: int

    @property
    def uri(self) -> str:
        """The object's address."""
        return object_uri(self.bucket, self.key)


@dataclass(frozen=True)
class Waiting:
    """What has landed after a cursor: how many objects, of how many bytes, with how many records; when the oldest
    landed, and None where nothing waits; the first partition that lacks offsets right after the cursor, or ""; and the
    cursor after all of it."""

    objects: int
    size: int
    records: int
    since: dt.datetime | None
    gap: str
    ends: OffsetCursor


class Landing:
    """The landing objects of one topic below ``uri`` (``s3://bucket/prefix``)."""

    def __init__(self, s3: Any, uri: str, topic: str) -> None:
        self._s3 = s3
        self._bucket, prefix = split_uri(uri)
        self._topic = topic
        self._prefix = key_below(prefix, f"{topic}/")

    def after(self, cursor: Mapping[str, int], most_bytes: int) -> list[LandingObject]:
        """The objects after the cursor: in each partition, until ``most_bytes`` (compressed) are reached, and at least
        one if there is any. Raises LandingGap."""
        listed = self._only_partition(cursor, most_bytes)
        if listed is None:
            listed = [
                entry for partition in self._partitions() for entry in self._listed(partition, cursor, most_bytes)
            ]
        if not listed:
            return []
        with ThreadPoolExecutor(_HEADS_AT_ONCE) as pool:
            ends = list(pool.map(self._end, (key for _, key, _ in listed)))
        objects = []
        expected = dict(cursor)
        for (source, key, size), end in zip(listed, ends, strict=True):
            first = _first_offset(key)
            if first != expected.get(source, first):
                raise LandingGap(
                    f"{object_uri(self._bucket, key)}: found {first} as first offset, expected {expected[source]}: "
                    f"landing objects of {source} are missing. Restore them; where they are gone for good, "
                    "docs/runbooks/writer.md says how to go on without them."
                )
            expected[source] = end
            objects.append(LandingObject(self._bucket, key, source, first, end, size))
        return objects

    def waiting(self, cursor: Mapping[str, int]) -> Waiting:
        """What has landed after the cursor, by the objects' names and one request for each partition's last object.
        Raises LandingGap where that one is not the sink's."""
        objects = size = records = 0
        since, gap = None, ""
        ends = dict(cursor)
        for partition in self._partitions():
            source = f"{self._topic}/{partition}"
            entries = list(self._entries(partition, cursor))
            if not entries:
                continue
            first = _first_offset(entries[0]["Key"])
            if first != cursor.get(source, first):
                gap = gap or source
            objects += len(entries)
            size += sum(entry["Size"] for entry in entries)
            ends[source] = self._end(entries[-1]["Key"])
            records += ends[source] - first
            oldest = min(entry["LastModified"] for entry in entries)
            since = oldest if since is None else min(since, oldest)
        return Waiting(objects, size, records, since, gap, ends)

    @property
    def folder(self) -> tuple[str, str]:
        """The bucket, and the prefix of the topic's objects."""
        return self._bucket, self._prefix

    def all(self) -> list[tuple[str, str, int]]:
        """Bucket, key and size in bytes of all objects, read or not."""
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=self._prefix)
        landed = (entry for page in pages for entry in _landed(page))
        return [(self._bucket, entry["Key"], entry["Size"]) for entry in landed if _is_of_sink(entry["Key"])]

    def body(self, landed: LandingObject) -> bytes:
        """What is in an object: its lines, compressed."""
        return bytes(self._s3.get_object(Bucket=landed.bucket, Key=landed.key)["Body"].read())

    def expire(self, cursor: Mapping[str, int], before: dt.datetime) -> int:
        """Delete the objects that landed before that moment and lie before the cursor, but for each partition's newest,
        from which the sink takes its position. Returns their number. Raises ClientError, and then may have deleted
        some."""
        deleted = 0
        for partition in self._partitions():
            read = cursor.get(f"{self._topic}/{partition}", 0)
            keys = list(self._expired(f"{self._prefix}{partition}/", read, before))
            delete_all(self._s3, self._bucket, keys)
            deleted += len(keys)
        return deleted

    def _expired(self, folder: str, read: int, before: dt.datetime) -> Iterator[str]:
        """The keys of the objects below a partition's folder that landed before that moment and are read: the next one
        begins before or at the offset to read next."""
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=folder)
        entries = (entry for page in pages for entry in _landed(page))
        for entry, following in itertools.pairwise(entries):
            if entry["LastModified"] >= before or _first_offset(following["Key"]) > read:
                return
            yield entry["Key"]

    def _partitions(self) -> list[str]:
        pages = self._s3.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=self._prefix, Delimiter="/"
        )
        names = (
            entry["Prefix"].rstrip("/").rpartition("/")[2] for page in pages for entry in page.get("CommonPrefixes", ())
        )
        return sorted((name for name in names if name.isdigit()), key=int)

    def _only_partition(self, cursor: Mapping[str, int], most_bytes: int) -> list[_Listed] | None:
        """What ``_listed`` gives of all partitions, by one request, where the cursor knows partition 0 alone, which is
        listed before all others, and no other one has come. None elsewhere, or where one request does not list it all.
        """
        if [source for source in cursor if source.startswith(f"{self._topic}/")] != [f"{self._topic}/0"]:
            return None
        start = self._last_read("0", cursor)
        page = self._s3.list_objects_v2(Bucket=self._bucket, Prefix=self._prefix, StartAfter=start)
        entries = _landed(page)
        if page["IsTruncated"] or any(not entry["Key"].startswith(f"{self._prefix}0/") for entry in entries):
            return None
        return list(self._until("0", entries, most_bytes))

    def _listed(self, partition: str, cursor: Mapping[str, int], most_bytes: int) -> Iterator[_Listed]:
        """Source, key and size of the objects to read."""
        return self._until(partition, self._entries(partition, cursor), most_bytes)

    def _entries(self, partition: str, cursor: Mapping[str, int]) -> Iterator[Mapping[str, Any]]:
        """The partition's objects after the cursor, as S3 lists them. The listing starts there, so its cost does not
        grow with the history."""
        start = self._last_read(partition, cursor)
        pages = self._s3.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=f"{self._prefix}{partition}/", StartAfter=start
        )
        return (entry for page in pages for entry in _landed(page))

    def _last_read(self, partition: str, cursor: Mapping[str, int]) -> str:
        """The key after which the partition's objects are to be read."""
        folder = f"{self._prefix}{partition}/"
        last_read = cursor.get(f"{self._topic}/{partition}", 0) - 1
        return f"{folder}{last_read:020d}{_SUFFIX}" if last_read >= 0 else folder

    def _until(self, partition: str, entries: Iterable[Mapping[str, Any]], most_bytes: int) -> Iterator[_Listed]:
        """Source, key and size of a partition's objects until ``most_bytes`` are reached."""
        for entry in entries:
            yield f"{self._topic}/{partition}", entry["Key"], entry["Size"]
            most_bytes -= entry["Size"]
            if most_bytes <= 0:
                return

    def _end(self, key: str) -> int:
        metadata = self._s3.head_object(Bucket=self._bucket, Key=key)["Metadata"]
        if not metadata.get("next-offset", "").isdigit():
            raise LandingGap(
                f"{object_uri(self._bucket, key)}: no next-offset in its metadata: not written by the S3 sink"
            )
        return int(metadata["next-offset"])


def _landed(page: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The landing objects in a page of a listing."""
    return [entry for entry in page.get("Contents", ()) if entry["Key"].endswith(_SUFFIX)]


def _is_of_sink(key: str) -> bool:
    """Whether an object lies in the folder of a partition, and is called by an offset."""
    *_, partition, name = key.split("/")
    return partition.isdigit() and name[: -len(_SUFFIX)].isdigit()


def _first_offset(key: str) -> int:
    return int(key.rpartition("/")[2][: -len(_SUFFIX)])


def cursor_after(cursor: Mapping[str, int], objects: list[LandingObject]) -> OffsetCursor:
    """The cursor after these objects."""
    return {**cursor, **{landed.source: landed.next for landed in objects}}
