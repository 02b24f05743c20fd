"""Landing objects (staged files): the S3 sink wrote them, and the writer reads them in the order of offsets.

Their keys are ``<prefix>/<topic>/<partition>/<first offset, 20 digits>.jsonl.gz``. In their metadata, ``next-offset``
is the offset after the last one. Every offset of a partition is in exactly one object, so a gap between two objects is
an error. Objects that were read long ago are deleted, the oldest first, so there is no gap between the others.
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
    """Offsets are missing between two landing objects. If the writer went on, changes would be lost."""


@dataclass(frozen=True)
class LandingObject:
    """A landing object."""

    bucket: str
    """The object's bucket."""
    key: str
    """The object's key."""
    source: str
    """``topic/partition``."""
    first: int
    """The first offset in the object."""
    next: int
    """The offset after the last one in the object."""
    size: int
    """The object's size in bytes, compressed."""

    @property
    def uri(self) -> str:
        """The object's address."""
        return object_uri(self.bucket, self.key)


@dataclass(frozen=True)
class Waiting:
    """Numbers on the landing objects after a cursor."""

    objects: int
    """The number of objects."""
    size: int
    """The size of all objects in bytes, compressed."""
    records: int
    """The number of records in the objects."""
    since: dt.datetime | None
    """When the oldest object landed; None without objects."""
    gap: str
    """The first ``topic/partition`` without the offsets right after the cursor; "" if there is none."""
    ends: OffsetCursor
    """The cursor after all objects."""


class Landing:
    """The landing objects of one topic below ``uri`` (``s3://bucket/prefix``)."""

    def __init__(self, s3: Any, uri: str, topic: str) -> None:
        self._s3 = s3
        self._bucket, prefix = split_uri(uri)
        self._topic = topic
        self._prefix = key_below(prefix, f"{topic}/")

    def after(self, cursor: Mapping[str, int], most_bytes: int) -> list[LandingObject]:
        """The objects after the cursor, of each partition up to ``most_bytes`` (compressed), but at least one.

        Raises LandingGap.
        """
        listed = self._only_partition(cursor, most_bytes)
        if listed is None:
            listed = [
                entry for partition in self._partitions() for entry in self._listed(partition, cursor, most_bytes)
            ]
        if not listed:
            return []
        # An object's end is only in its metadata. Check that each object begins at the end of the last one.
        with ThreadPoolExecutor(_HEADS_AT_ONCE) as pool:
            ends = list(pool.map(self._end, (key for _, key, _ in listed)))
        objects = []
        expected = dict(cursor)
        for (source, key, size), end in zip(listed, ends, strict=True):
            first = _first_offset(key)
            if first != expected.get(source, first):
                raise LandingGap(
                    f"{object_uri(self._bucket, key)}: found {first} as first offset, expected {expected[source]}: "
                    f"landing objects of {source} are missing. The table waits, so that no change is lost. Restore "
                    "them; if they are gone for good, docs/runbooks/writer.md says how to go on without them."
                )
            expected[source] = end
            objects.append(LandingObject(self._bucket, key, source, first, end, size))
        return objects

    def waiting(self, cursor: Mapping[str, int]) -> Waiting:
        """Count the objects after the cursor, from their names and one request for each partition's last object.

        Raises LandingGap if the sink did not write that last object.
        """
        objects = size = records = 0
        since, gap = None, ""
        ends = dict(cursor)
        # Sum up the objects of each partition. The first object must begin at the cursor.
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
        """Bucket, key and size in bytes of all objects, whether they were read or not."""
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=self._prefix)
        landed = (entry for page in pages for entry in _landed(page))
        return [(self._bucket, entry["Key"], entry["Size"]) for entry in landed if _is_of_sink(entry["Key"])]

    def body(self, landed: LandingObject) -> bytes:
        """The content of an object: lines, compressed."""
        return bytes(self._s3.get_object(Bucket=landed.bucket, Key=landed.key)["Body"].read())

    def expire(self, cursor: Mapping[str, int], before: dt.datetime) -> int:
        """Delete objects that landed before a moment and lie before the cursor. Returns their number.

        Each partition's newest object stays, because the sink takes its position from that object. Raises ClientError,
        and then may have deleted some objects.
        """
        deleted = 0
        for partition in self._partitions():
            read = cursor.get(f"{self._topic}/{partition}", 0)
            keys = list(self._expired(f"{self._prefix}{partition}/", read, before))
            delete_all(self._s3, self._bucket, keys)
            deleted += len(keys)
        return deleted

    def _expired(self, folder: str, read: int, before: dt.datetime) -> Iterator[str]:
        """The keys of a partition's objects that landed before a moment and were read.

        An object was read if the object after it begins at or before ``read``, the next offset to read.
        """
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
        """List a topic with one partition by one request. None if there are more partitions, or too many objects.

        The cursor must have only partition 0. S3 lists that partition first, so other partitions would appear after it.
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
        """The partition's objects after the cursor, as S3 lists them.

        The listing starts at the cursor, so its cost does not grow with the objects before it.
        """
        start = self._last_read(partition, cursor)
        pages = self._s3.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=f"{self._prefix}{partition}/", StartAfter=start
        )
        return (entry for page in pages for entry in _landed(page))

    def _last_read(self, partition: str, cursor: Mapping[str, int]) -> str:
        """The key after which the listing of the partition's objects starts."""
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
        end = metadata.get("next-offset") or None
        if end is None or not end.isdigit():
            raise LandingGap(
                f"{object_uri(self._bucket, key)}: metadata: next-offset: found {end!r}, expected an offset: the S3 "
                "sink did not write this object. Move it away if it does not belong there; else restore the version "
                "that the sink wrote."
            )
        return int(end)


def _landed(page: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The landing objects in a page of a listing."""
    return [entry for entry in page.get("Contents", ()) if entry["Key"].endswith(_SUFFIX)]


def _is_of_sink(key: str) -> bool:
    """Whether the sink wrote an object: it is in the folder of a partition, and its name is an offset."""
    *_, partition, name = key.split("/")
    return partition.isdigit() and name[: -len(_SUFFIX)].isdigit()


def _first_offset(key: str) -> int:
    return int(key.rpartition("/")[2][: -len(_SUFFIX)])


def cursor_after(cursor: Mapping[str, int], objects: list[LandingObject]) -> OffsetCursor:
    """The cursor after these objects."""
    return {**cursor, **{landed.source: landed.next for landed in objects}}
