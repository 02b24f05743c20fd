"""A table of payments and its changes, in the form and the objects of the S3 sink.

A row's content follows from its key and its version. So one number per key describes the content that the table must
have in the end.
"""

from __future__ import annotations

import base64
import datetime as dt
import gzip
import json
import random
import string
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from headwater.contract.model import Contract
from headwater.contract.reading import parse_contract
from headwater.queries import isolated_duckdb

TABLE = "payments"
TOPIC = f"headwater.shop.{TABLE}"
REGIONS = 60
_INSERTS, _DELETES = 0.10, 0.02  # shares of the changes; the rest are updates
_RECENT = 0.1  # half of the updates go to this share of the keys, the newest
_NOTES = 1_000
_START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
_STATES = ("new", "held", "paid", "settled", "refunded")

_CONTRACT = """
table: {table}
description: The payments of the benchmark.
source: {{database: postgresql, table: shop.{table}}}
key: [id]
partition_by: {partition_by}
buckets: {buckets}
columns:
  - {{name: id, type: bigint, source_type: bigint}}
  - {{name: account_id, type: bigint, source_type: bigint}}
  - {{name: region, type: string, source_type: text}}
  - {{name: status, type: string, source_type: text}}
  - {{name: amount, type: "decimal(12,2)", source_type: "numeric(12,2)"}}
  - {{name: placed_at, type: timestamp, source_type: timestamptz}}
  - {{name: updated_at, type: timestamp, source_type: timestamptz}}
  - {{name: version, type: bigint, source_type: bigint}}
  - {{name: note, type: string, source_type: text}}
"""


def contract(buckets: int, *, partitioned: bool = False, table: str = TABLE) -> Contract:
    """The table's contract; if ``partitioned``, by one of ``REGIONS`` regions."""
    return parse_contract(contract_text(buckets, partitioned=partitioned, table=table), f"{table}.yaml")


def contract_text(buckets: int, *, partitioned: bool = False, table: str = TABLE) -> str:
    """The YAML of ``contract``."""
    return _CONTRACT.format(table=table, buckets=buckets, partition_by="[region]" if partitioned else "[]")


@dataclass(frozen=True)
class LandingBody:
    """A landing object of the change log."""

    first: int
    """The offset of its first record."""
    next: int
    """The offset after its last record."""
    body: bytes
    """The object's content."""

    @property
    def key(self) -> str:
        """The object's key below the topic's prefix."""
        return f"0/{self.first:020d}.jsonl.gz"


class ChangeLog:
    """A table of ``rows`` rows and its changes. The same ``seed`` gives the same log."""

    def __init__(self, rows: int, seed: int = 1996, table: str = TABLE) -> None:
        self._table = table
        self._rng = random.Random(seed)  # noqa: S311 - can be repeated, not secret
        self._notes = ["".join(self._rng.choices(string.ascii_lowercase + " ", k=180)) for _ in range(_NOTES)]
        self._rows = rows
        # The version of each key's row; 0 for a deleted row.
        self._versions = array("q")
        self._changes = 0

    def snapshot(self, per_object: int = 50_000) -> Iterator[LandingBody]:
        """All rows in their first versions."""
        for start in range(0, self._rows, per_object):
            keys = range(start, min(start + per_object, self._rows))
            yield self._object(self._changed("c", key) for key in keys)

    def batch(self, changes: int) -> LandingBody:
        """The next changes: updates, one tenth inserts, some deletes."""
        return self._object(self._drawn() for _ in range(changes))

    def expected(self) -> pa.Table:
        """The rows that the table must have after all changes drawn so far: ``id`` and ``version``."""
        alive = [(key, version) for key, version in enumerate(self._versions) if version]
        ids, versions = zip(*alive, strict=True)
        return pa.table({"id": pa.array(ids, pa.int64()), "version": pa.array(versions, pa.int64())})

    def _drawn(self) -> str:
        kind, place, keys = self._rng.random(), self._rng.random(), len(self._versions)
        key = int(keys * (1 - place * _RECENT if self._rng.random() < 0.5 else place))
        if kind < _INSERTS or key == keys or self._versions[key] == 0:
            return self._changed("c", keys)
        return self._changed("d" if kind > 1 - _DELETES else "u", key)

    def _object(self, lines: Iterable[str]) -> LandingBody:
        first = self._changes
        text = "".join(lines)
        return LandingBody(first, self._changes, gzip.compress(text.encode(), compresslevel=1))

    def _changed(self, op: str, key: int) -> str:
        """Change a key's row, and return the change's line."""
        offset = self._changes
        self._changes += 1
        before = "null" if op == "c" else self._row(key, int(self._versions[key]))
        after = "null" if op == "d" else self._row(key, self._changes)
        if key == len(self._versions):
            self._versions.append(0)
        self._versions[key] = 0 if op == "d" else self._changes
        lsn, micros = 10**9 + 1_000 * self._changes, 1_767_225_600_000_000 + self._changes
        source = (
            f'{{"version":"3.6.1.Final","connector":"postgresql","name":"headwater","ts_ms":{micros // 1000},'
            f'"snapshot":"false","db":"orders","sequence":"[\\"{lsn - 500}\\",\\"{lsn}\\"]","ts_us":{micros},'
            f'"ts_ns":{micros * 1000},"schema":"shop","table":"{self._table}","txId":{self._changes},"lsn":{lsn},'
            '"xmin":null}'
        )
        event = (
            f'{{"before":{before},"after":{after},"source":{source},"transaction":null,"op":"{op}",'
            f'"ts_ms":{micros // 1000},"ts_us":{micros},"ts_ns":{micros * 1000}}}'
        )
        key_, value = _base64(f'{{"id":{key}}}'), _base64(event)
        return f'{{"offset":{offset},"timestamp":{micros // 1000},"key":"{key_}","value":"{value}","headers":[]}}\n'

    def _row(self, key: int, version: int) -> str:
        cents = (key * 7_919 + version * 104_729) % 10**8
        return json.dumps(
            {
                "id": key,
                "account_id": key * 31 % 100_003,
                "region": f"region-{key % REGIONS:02d}",
                "status": _STATES[version % len(_STATES)],
                "amount": f"{cents // 100}.{cents % 100:02d}",
                "placed_at": _instant(key),
                "updated_at": _instant(version),
                "version": version,
                "note": self._notes[(key + version) % _NOTES],
            },
            separators=(",", ":"),
        )


def differences(expected: pa.Table, found: pa.Table) -> int:
    """How many rows of ``id`` and ``version`` a table lacks, has twice, or has in another version."""
    with isolated_duckdb() as connection:
        connection.register("expected", expected)
        connection.register("found", found)
        names = ("expected", "found"), ("found", "expected")
        queries = [f"SELECT count(*) FROM (FROM {one} EXCEPT ALL FROM {other})" for one, other in names]
        return max(int(connection.sql(query).fetchall()[0][0]) for query in queries)


def _instant(seconds: int) -> str:
    return f"{(_START + dt.timedelta(seconds=seconds)).isoformat()[:19]}.000000Z"


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
