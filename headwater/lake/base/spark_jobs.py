"""Spark jobs that leave no running task behind when they fail."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

_GROUP = "spark.jobGroup.id"
_POLL_SECONDS = 0.1


@contextmanager
def no_task_left_behind(spark: SparkSession) -> Iterator[None]:
    """Within this context, an error of this thread's jobs is raised only after all their tasks have ended.

    Spark raises the error of one task while other tasks may still write to S3.
    """
    context = spark.sparkContext
    # The thread of a streaming query has a job group already, by which Spark stops the query.
    former = context.getLocalProperty(_GROUP)
    group = former or str(uuid.uuid4())
    if former is None:
        context.setLocalProperty(_GROUP, group)
    try:
        yield
    except BaseException:
        # If Spark itself has ended, so have its tasks.
        with suppress(Py4JError):
            context.cancelJobGroup(group)
            while _tasks_at_work(context, group):
                time.sleep(_POLL_SECONDS)
        raise
    finally:
        with suppress(Py4JError):
            context.setLocalProperty(_GROUP, former)  # type: ignore[arg-type]  # null removes it


def _tasks_at_work(context: SparkContext, group: str) -> bool:
    status = context.statusTracker()
    jobs = (status.getJobInfo(job) for job in status.getJobIdsForGroup(group))
    stages = (status.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds)
    return any(stage is not None and stage.numActiveTasks > 0 for stage in stages)
