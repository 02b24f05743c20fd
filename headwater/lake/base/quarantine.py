"""Records that cannot be decoded: kept whole with their position and the reason, and counted; the table goes on."""

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
    """So many records of a batch cannot be decoded, or so many of its rows have values that do not fit, that the
    contract or the source must be wrong."""


_ALWAYS_ACCEPTED = 10
_DIGEST_DIGITS = 12
_SUFFIX = ".jsonl.gz"
_ENDING = re.compile(rf"-[0-9a-f]{{{_DIGEST_DIGITS}}}{re.escape(_SUFFIX)}\Z")
_REFUSED = "-refused"
SAMPLE = 100
"""How many bad records of a refused batch are shown."""


def exceeds(bad: int, records: int, most: float) -> bool:
    """Whether more than ``most`` (a share from 0 to 1) of a batch is bad. Ten bad records are always accepted, since in
    a small batch one record is a large share."""
    return bad > _ALWAYS_ACCEPTED and bad > most * records


def refusal(table: str, bad: int, records: int, most: float, sample: str) -> TooManyBadRecords:
    """The error for a batch of which too much is bad; ``sample`` is the address of some of its bad records."""
    return TooManyBadRecords(
        f"{table}: {bad} of {records} records cannot be decoded, at most {most:.1%} are accepted. Nothing of this "
        f"batch was committed. Read the reasons in {sample} (headwater quarantine show {table} --env ENV), correct the "
        "contract or the source, and start again."
    )


@dataclass(frozen=True)
class BadEntry:
    """A record in quarantine: why it cannot be decoded, what was landed or streamed, as JSON, and the epoch in which it
    was read with its layout of ``_order``, which a replay needs. Releases before 0.2.0 did not keep the last two."""

    reason: str
    record: Any
    epoch: int | None = None
    order_version: int | None = None

    def to_json(self) -> str:
        """The line that is kept."""
        return json.dumps({name: value for name, value in asdict(self).items() if value is not None})


@dataclass(frozen=True)
class QuarantineObject:
    """An object of bad records, below the folder of its table. ``size`` is in bytes."""

    name: str
    size: int
    stored: dt.datetime

    @property
    def is_sample(self) -> bool:
        """Whether it shows some bad records of a refused batch, all of which the writer reads again."""
        return batch_of(self.name).endswith(_REFUSED)


class Quarantine:
    """The bad records of a table, below ``uri`` (``s3://bucket/prefix``)."""

    def __init__(self, s3: Any, uri: str, table: str) -> None:
        self._s3 = s3
        self._bucket, prefix = split_uri(uri)
        self._folder = key_below(prefix, f"{table}/")

    def store(self, batch: str, entries: Iterable[BadEntry], *, refused: bool = False) -> str:
        """Write records as one object and return its name; ``refused`` where they are a refused batch's sample.

        The name begins with ``batch`` and ends with a digest of the records: a repeated batch writes the same object
        again, and another batch that begins with the same record leaves that object alone.
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
        """The records of an object, None where it is gone. Raises UserError where it is not one that ``store``
        wrote."""
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
        """Remove an object; one that is gone already is no error."""
        self._s3.delete_object(Bucket=self._bucket, Key=self._folder + name)


def tables(s3: Any, uri: str) -> list[str]:
    """The tables that have had bad records."""
    bucket, prefix = split_uri(uri)
    folder = key_below(prefix, "")
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=folder, Delimiter="/")
    found = (entry["Prefix"] for page in pages for entry in page.get("CommonPrefixes", ()))
    return sorted(name[len(folder) :].rstrip("/") for name in found)


def batch_of(name: str) -> str:
    """The batch that an object's name begins with."""
    return _ENDING.sub("", name)


def is_chosen(entry: BadEntry, reason: str) -> bool:
    """Whether ``reason`` is a part of why the record is there."""
    return reason in entry.reason or reason in kind_of(entry.reason)


def kind_of(reason: str) -> str:
    """A reason without the value that was found: the same for all records with one defect."""
    return re.sub(r"found .*?, expected", "found …, expected", reason, flags=re.DOTALL)
