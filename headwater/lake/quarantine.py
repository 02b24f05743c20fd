"""Records that cannot be decoded: kept whole with their position and the reason, and counted; the table goes on."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterable
from typing import Any

from headwater.lake.s3_uri import key_below, object_uri, split_uri


class TooManyBadRecords(RuntimeError):
    """So many records of a batch cannot be decoded, or so many of its rows have values that do not fit, that the
    contract or the source must be wrong."""


_ALWAYS_ACCEPTED = 10
_DIGEST_DIGITS = 12
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
        f"batch was committed. Read the reasons in {sample}, correct the contract or the source, and start again."
    )


def store(s3: Any, uri: str, table: str, batch: str, records: Iterable[tuple[str, str]]) -> str:
    """Write ``(reason, landed line)`` pairs as one object below ``uri`` and return its address.

    The name begins with ``batch`` and ends with a digest of the records: a repeated batch writes the same object again,
    and a batch that has the number of an earlier one (a new checkpoint counts from 0) leaves that one's object alone.
    """
    bucket, prefix = split_uri(uri)
    lines = sorted(json.dumps({"reason": reason, "record": json.loads(line)}) for reason, line in records)
    content = "".join(line + "\n" for line in lines).encode("utf-8")
    digest = hashlib.sha256(content).hexdigest()[:_DIGEST_DIGITS]
    key = key_below(prefix, f"{table}/{batch}-{digest}.jsonl.gz")
    s3.put_object(Bucket=bucket, Key=key, Body=gzip.compress(content, mtime=0))
    return object_uri(bucket, key)
