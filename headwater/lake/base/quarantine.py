"""The quarantine (a dead-letter queue): it keeps each record that cannot be decoded, with its position and the reason.

The writer counts these records, and goes on with the table.
"""

from __future__ import annotations

import datetime as dt
import gzip
import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from headwater.errors import UserError
from headwater.lake.base.s3_uri import key_below, object_uri, split_uri


class TooManyBadRecords(RuntimeError):
    """Too many records of a batch are bad, so the contract or the source must be wrong.

    Bad are records that cannot be decoded, and rows with conversion errors.
    """


_ALWAYS_ACCEPTED = 10
_DIGEST_DIGITS = 12
_SUFFIX = ".jsonl.gz"
_ENDING = re.compile(rf"-[0-9a-f]{{{_DIGEST_DIGITS}}}{re.escape(_SUFFIX)}\Z")
_REFUSED = "-refused"
SAMPLE = 100
"""A sample has at most this many bad records of a refused batch."""


def exceeds(bad: int, records: int, most: float) -> bool:
    """Whether more than ``most`` (a share from 0 to 1) of a batch is bad.

    Ten bad records are always accepted, since in a small batch one record is a large share.
    """
    return bad > _ALWAYS_ACCEPTED and bad > most * records


def refusal(table: str, bad: int, records: int, most: float, sample: str) -> TooManyBadRecords:
    """The error for a batch with too many bad records. ``sample`` is the address of the object with some of them."""
    return TooManyBadRecords(
        f"{table}: {bad} of {records} records cannot be decoded, at most {most:.1%} are accepted. Nothing of this "
        f"batch was committed. Read the reasons in {sample} (headwater quarantine show {table} --env ENV), correct the "
        "contract or the source, and start again."
    )


@dataclass(frozen=True)
class BadEntry:
    """A record in quarantine."""

    reason: str
    """Why it cannot be decoded."""
    record: Any
    """The landed or streamed record, a JSON document."""
    epoch: int | None = None
    """The epoch in which it was read, which a replay needs. Releases before 0.2.0 did not keep it."""
    order_version: int | None = None
    """The layout of ``_order`` in that epoch. Releases before 0.2.0 did not keep it."""

    def to_json(self) -> str:
        """This entry as a line of a quarantine object."""
        return json.dumps({name: value for name, value in asdict(self).items() if value is not None})


@dataclass(frozen=True)
class QuarantineObject:
    """An object of bad records."""

    name: str
    """The object's key below the folder of its table."""
    size: int
    """The object's size in bytes."""
    stored: dt.datetime
    """When the object was written."""

    @property
    def is_sample(self) -> bool:
        """Whether the object is a sample of a refused batch. The writer reads all of such a batch again."""
        return batch_of(self.name).endswith(_REFUSED)


class Quarantine:
    """The quarantine of a table, in a folder below ``uri`` (``s3://bucket/prefix``)."""

    def __init__(self, s3: Any, uri: str, table: str) -> None:
        self._s3 = s3
        self._bucket, prefix = split_uri(uri)
        self._folder = key_below(prefix, f"{table}/")

    def store(self, batch: str, entries: Iterable[BadEntry], *, refused: bool = False) -> str:
        """Write records as one object and return its name. ``refused``: the records are a sample of a refused batch.

        The name begins with ``batch`` and ends with a digest of the records. So a repeated batch writes the same object
        again, and another batch that begins with the same record does not overwrite it.
        """
        content = "".join(line + "\n" for line in sorted(entry.to_json() for entry in entries)).encode("utf-8")
        digest = hashlib.sha256(content).hexdigest()[:_DIGEST_DIGITS]
        name = f"{batch}{_REFUSED if refused else ''}-{digest}{_SUFFIX}"
        body = gzip.compress(content, mtime=0)
        self._s3.put_object(Bucket=self._bucket, Key=self._folder + name, Body=body)
        return name

    def address(self, name: str) -> str:
        """The address of an object."""
        return object_uri(self._bucket, self._folder + name)

    def listed(self) -> list[QuarantineObject]:
        """All objects, the oldest first."""
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=self._folder)
        objects = [
            QuarantineObject(entry["Key"][len(self._folder) :], entry["Size"], entry["LastModified"])
            for page in pages
            for entry in page.get("Contents", ())
            if entry["Key"].endswith(_SUFFIX)
        ]
        return sorted(objects, key=lambda object_: (object_.stored, object_.name))

    def read(self, name: str) -> list[BadEntry] | None:
        """The records of an object; None if it is gone. Raises UserError if the object has no records of ``store``."""
        try:
            body = self._s3.get_object(Bucket=self._bucket, Key=self._folder + name)["Body"].read()
        except self._s3.exceptions.NoSuchKey:
            return None
        try:
            return [BadEntry(**json.loads(line)) for line in gzip.decompress(body).splitlines()]
        except (ValueError, TypeError, EOFError, OSError) as error:
            raise UserError(
                f"{self.address(name)}: found {error}, expected records that a writer put into quarantine. Move the "
                "object away."
            ) from None

    def has(self, name: str) -> bool:
        """Whether an object is there."""
        key = self._folder + name
        listed = self._s3.list_objects_v2(Bucket=self._bucket, Prefix=key, MaxKeys=1).get("Contents", ())
        return any(entry["Key"] == key for entry in listed)

    def delete(self, name: str) -> None:
        """Delete an object, if it is still there."""
        self._s3.delete_object(Bucket=self._bucket, Key=self._folder + name)


def tables(s3: Any, uri: str) -> list[str]:
    """The names of the tables that have a quarantine folder below ``uri``."""
    bucket, prefix = split_uri(uri)
    folder = key_below(prefix, "")
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=folder, Delimiter="/")
    found = (entry["Prefix"] for page in pages for entry in page.get("CommonPrefixes", ()))
    return sorted(name[len(folder) :].rstrip("/") for name in found)


def batch_of(name: str) -> str:
    """The name of the batch whose bad records an object holds."""
    return _ENDING.sub("", name)


def is_chosen(entry: BadEntry, reason: str) -> bool:
    """Whether the record's reason contains ``reason``."""
    return reason in entry.reason or reason in kind_of(entry.reason)


def kind_of(reason: str) -> str:
    """Return a reason without the value that was found. So records with the same defect have the same text."""
    return re.sub(r"found .*?, expected", "found …, expected", reason, flags=re.DOTALL)
