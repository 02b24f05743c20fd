"""Delivery of a program's log file to a log group while the program runs."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path
from typing import Any, Self

_EVERY_SECONDS = 0.5
# CloudWatch takes 10,000 events and 1 MiB per call, and counts 26 bytes of overhead for each event.
_EVENTS = 1000
_BYTES = 1 << 20
_BYTES_OF_AN_EVENT = 26


class LogDelivery:
    """A thread that delivers new lines of ``path`` to a stream of a log group.

    ``logs`` is a boto3 client. Delivery begins at the present end of the file and includes all lines written before the
    delivery is closed. Each line gets ``prefix``.
    """

    def __init__(self, logs: Any, path: Path, group: str, stream: str, prefix: str = "") -> None:
        self._logs = logs
        self._path = path
        self._group = group
        self._stream = stream
        self._prefix = prefix
        self._read = path.stat().st_size if path.exists() else 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"log of {stream}", daemon=True)

    def __enter__(self) -> Self:
        with contextlib.suppress(self._logs.exceptions.ResourceAlreadyExistsException):
            self._logs.create_log_stream(logGroupName=self._group, logStreamName=self._stream)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        last = False
        while not last:
            last = self._stop.wait(_EVERY_SECONDS)
            # The account may be ending: lines that it no longer takes stay in the file.
            with contextlib.suppress(Exception):
                self._deliver()

    def _deliver(self) -> None:
        if not self._path.exists():
            return
        # Deliver only whole lines; the rest of the file waits for the next turn.
        with self._path.open("rb") as log:
            log.seek(self._read)
            whole, _, _ = log.read().rpartition(b"\n")
        if not whole:
            return
        events: list[dict[str, Any]] = []
        size = 0
        # Put a batch whenever the next event would exceed a limit of PutLogEvents.
        for line in whole.decode(errors="replace").split("\n"):
            text = self._prefix + line[: _BYTES // 8]
            length = len(text.encode()) + _BYTES_OF_AN_EVENT
            if len(events) == _EVENTS or size + length > _BYTES:
                self._put(events)
                events, size = [], 0
            if line.strip():
                events.append({"timestamp": int(time.time() * 1000), "message": text})
                size += length
        self._put(events)
        self._read += len(whole) + 1

    def _put(self, events: list[dict[str, Any]]) -> None:
        if events:
            self._logs.put_log_events(logGroupName=self._group, logStreamName=self._stream, logEvents=events)
