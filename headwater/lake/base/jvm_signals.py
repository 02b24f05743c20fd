"""Signals that reach Spark's JVM and not the job.

The process of ``spark-submit`` is the JVM, and Python is its child. A SIGTERM to that process would end Spark, and the
job with it, in the middle of a commit.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from headwater.lake.base.jvm_classes import java_class

_POLL_SECONDS = 0.2


def forward_to(stop: threading.Event, spark: SparkSession) -> None:
    """Set ``stop`` when this session's JVM gets SIGTERM or SIGINT, so that the JVM ends only after Python has ended.

    A shutdown hook of the JVM would come too late: Hudi writes no log file once shutdown has begun. So Python polls the
    JVM for signals. A call from the JVM to Python would need an open port. PySpark's gateway requires no token there:
    anyone who reaches it could stop the job.
    """
    signals = java_class(spark, "io.headwater.lake.StopSignals")()
    threading.Thread(target=_watch, args=(signals, stop), name="signals", daemon=True).start()


def _watch(signals: Any, stop: threading.Event) -> None:
    # Without a JVM there is no job to stop.
    with suppress(Py4JError, OSError):
        while not stop.wait(_POLL_SECONDS):
            if signals.came():
                stop.set()
