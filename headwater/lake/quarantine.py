"""Records that cannot be decoded: kept whole with their position and the reason, and counted; the table goes on."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from typing import Any

from headwater.lake.s3_uri import key_below, object_uri, split_uri


class TooManyBadRecords(RuntimeError):
    """So many records of a batch cannot be decoded, or so many of its rows have values that do not fit, that the
    contract or the source must be wrong."""


_ALWAYS_ACCEPTED = 10
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
    """Write ``(reason, landed line)`` pairs as one object below ``uri`` and return its address. ``batch`` is named
    after the batch's beginning, so a repeated batch writes the same object again instead of a second one."""
    bucket, prefix = split_uri(uri)
    key = key_below(prefix, f"{table}/{batch}.jsonl.gz")
    lines = [json.dumps({"reason": reason, "record": json.loads(line)}) for reason, line in records]
    body = gzip.compress("".join(line + "\n" for line in lines).encode("utf-8"), mtime=0)
    s3.put_object(Bucket=bucket, Key=key, Body=body)
    return object_uri(bucket, key)
