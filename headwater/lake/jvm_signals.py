"""Signals that reach Spark's JVM and not the job.

The process of ``spark-submit`` is the JVM, and Python is its child. Whoever asks that process to end (SIGTERM) would
end Spark in the middle of a commit, and the job with it.
"""

from __future__ import annotations

import threading
from typing import Any

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession


def forward_to(stop: threading.Event, spark: SparkSession) -> None:
    """Let SIGTERM and SIGINT to the JVM of this session set ``stop`` instead of ending it: it ends after Python has.

    A hook of the JVM's end would come too late: Hudi writes no log file any more once that has begun.
    """
    gateway: Any = spark.sparkContext._gateway
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    signal = gateway.jvm.sun.misc.Signal
    for name in ("TERM", "INT"):
        signal.handle(signal(name), _Forward(stop))


class _Forward:
    """A ``sun.misc.SignalHandler``."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop

    def handle(self, _signal: Any) -> None:
        self._stop.set()

    class Java:
        implements = ("sun.misc.SignalHandler",)
