"""How fresh the lake is for its readers, measured from outside, without the writers' reports."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Self

from botocore.exceptions import BotoCoreError, ClientError

from headwater.contract.model import Contract
from headwater.lake.base.progress import NOTED_AS, Progress
from headwater.lake.base.s3_uri import split_uri

LOOK_SECONDS = 0.5
"""The time between two polls of the timelines."""
# The name of a timeline's file: an instant, and the instant's action and state.
_INSTANT = re.compile(r"/(\d+)\.([.\w]+)$")
_OPEN = ("requested", "inflight")
# Only these actions change the rows that readers see.
_PUBLISHING = {"commit", "deltacommit", "replacecommit"}


class PublishedInstants:
    """Polls the timelines of a lake's tables, as readers do, and records when it first saw each completed instant.

    It also keeps the cursor of each instant. ``s3`` is boto3's client. A poll lists only files that may have
    changed since the last poll, so polls do not slow down as a timeline grows.
    """

    def __init__(self, s3: Any, lake: str, contracts: Sequence[Contract]) -> None:
        self.seen: dict[str, dict[str, float]] = {contract.table: {} for contract in contracts}
        self.cursors: dict[str, dict[str, Mapping[str, int]]] = {table: {} for table in self.seen}
        self._from = dict.fromkeys(self.seen, "")
        self._s3 = s3
        self._lake = lake
        self._error: Exception | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="published instants", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if kind is None:
            # After an error, instants that nobody has polled would seem to become readable only now.
            self._raise_error()
            self.look()

    def look(self) -> None:
        """Record the instants that are published now."""
        for table, seen in self.seen.items():
            bucket, timeline = split_uri(f"{self._lake}/{table}/.hoodie")
            lister = self._s3.get_paginator("list_objects_v2")
            after = f"{timeline}/{self._from[table]}"
            pages = lister.paginate(Bucket=bucket, Prefix=f"{timeline}/", Delimiter="/", StartAfter=after)
            keys = [listed["Key"] for page in pages for listed in page.get("Contents", [])]
            now = time.time()
            found = [file.groups() for key in keys if (file := _INSTANT.search(key))]
            completed = [instant for instant, what in found if not what.endswith(_OPEN)]
            for instant, what in found:
                if what in _PUBLISHING and instant not in seen:
                    self._read_cursor(table, instant, bucket, f"{timeline}/{instant}.{what}")
                    seen[instant] = now
            # Instants older than the oldest incomplete and the newest complete one do not change.
            self._from[table] = min(
                {instant for instant, _ in found}.difference(completed) or completed[-1:], default=""
            )

    def _read_cursor(self, table: str, instant: str, bucket: str, key: str) -> None:
        commit = json.loads(self._s3.get_object(Bucket=bucket, Key=key)["Body"].read() or "{}")
        progress = (commit.get("extraMetadata") or {}).get(NOTED_AS)
        if progress is not None:
            self.cursors[table][instant] = Progress.from_json(progress).cursor

    def counts(self) -> dict[str, int]:
        """How many instants each table has published. Raises the error that has ended the polls, if there is one."""
        self._raise_error()
        return {table: len(seen) for table, seen in self.seen.items()}

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _watch(self) -> None:
        try:
            while not self._stop.wait(LOOK_SECONDS):
                # The next poll finds what this one misses.
                with suppress(BotoCoreError, ClientError):
                    self.look()
        except Exception as error:  # whatever it is, the caller has to get it
            self._error = error
