"""Spark jobs that leave no task behind where they fail."""

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
    """Run the jobs of this thread so that none of their tasks is at work any more when an error of theirs is raised.
    Spark raises the error of one task while others may still write, for as long as S3 keeps them."""
    context = spark.sparkContext
    # A streaming query's thread has one, by which it is stopped.
    former = context.getLocalProperty(_GROUP)
    group = former or str(uuid.uuid4())
    if former is None:
        context.setLocalProperty(_GROUP, group)
    try:
        yield
    except BaseException:
        # Where Spark itself has ended, so have its tasks.
        with suppress(Py4JError):
            context.cancelJobGroup(group)
            while _tasks_at_work(context, group):
                time.sleep(_POLL_SECONDS)
        raise
    finally:
        with suppress(Py4JError):
            context.setLocalProperty(_GROUP, former)  # type: ignore[arg-type]  # null removes it


def _tasks_at_work(context: SparkContext, group: str) -> bool:
    told = context.statusTracker()
    jobs = (told.getJobInfo(job) for job in told.getJobIdsForGroup(group))
    stages = (told.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds)
    return any(stage is not None and stage.numActiveTasks > 0 for stage in stages)
