"""The end of Spark's JVM, which waits for the job's own end.

The process of ``spark-submit`` is the JVM, and Python is its child. Cancelling a step (SIGTERM) therefore tells the JVM
alone, whose hooks would stop Spark in the middle of a commit.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

# Spark stops its contexts at 40: Hadoop runs hooks of a higher priority first, one after another.
_PRIORITY = 100
# Less than the five minutes after which a cancelled step is killed.
_MOST_SECONDS = 240


class JvmEnd:
    """Sets ``stop`` when the JVM begins to end, and holds it up until ``release``, or for four minutes."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self._released = threading.Event()
        self._jvm: Any = None
        self._hook: Any = None

    def watch(self, spark: SparkSession) -> None:
        """Be told by the JVM of this session."""
        gateway: Any = spark.sparkContext._gateway
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
        self._jvm = gateway.jvm
        # Hadoop compares hooks, which a thread answers without asking Python.
        self._hook = self._jvm.java.lang.Thread(_Hook(self._stop, self._released))
        seconds = self._jvm.java.util.concurrent.TimeUnit.SECONDS
        self._hooks().addShutdownHook(self._hook, _PRIORITY, _MOST_SECONDS, seconds)

    def release(self) -> None:
        """Let the JVM end: the job has ended, its leases included."""
        if self._hook is not None:
            # A JVM that is ending refuses it, and one that has ended does not answer.
            with suppress(Exception):
                self._hooks().removeShutdownHook(self._hook)
        self._released.set()

    def _hooks(self) -> Any:
        return self._jvm.org.apache.hadoop.util.ShutdownHookManager.get()


class _Hook:
    """A ``java.lang.Runnable``."""

    def __init__(self, stop: threading.Event, released: threading.Event) -> None:
        self._stop = stop
        self._released = released

    def run(self) -> None:
        self._stop.set()
        self._released.wait(_MOST_SECONDS)

    class Java:
        implements = ("java.lang.Runnable",)
