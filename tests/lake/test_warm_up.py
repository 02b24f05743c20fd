"""What a writer does before it says that it is ready leaves nothing behind."""

from __future__ import annotations

import argparse
import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from headwater.lake.job import landed_warm_up, streamed_warm_up, warm_up
from headwater.lake.job.loop import Job, parser
from headwater.lake.table.hudi_table import HudiTable
from tests.lake.pipeline import BUCKET, Pipeline

WARM_UPS = [landed_warm_up.warm_up, streamed_warm_up.warm_up]


@pytest.fixture
def job(pipeline: Pipeline) -> Job:
    return pipeline.job(options(pipeline))


def options(pipeline: Pipeline) -> argparse.Namespace:
    return parser("A job of the tests.").parse_args(["--lake", pipeline.lake, "--database", pipeline.database])


def keys(pipeline: Pipeline) -> list[str]:
    listed = pipeline.s3.list_objects_v2(Bucket=BUCKET, Prefix=f"{pipeline.prefix}/lake/")
    return [entry["Key"] for entry in listed.get("Contents", [])]


@pytest.mark.parametrize("warm", WARM_UPS)
def test_a_warm_up_commits_its_changes_and_leaves_nothing(
    pipeline: Pipeline, job: Job, warm: Callable[[Job], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []

    def close(table: HudiTable) -> None:
        written.append(table.read().count())
        written.append(table.read().where("_deleted").count())
        closed(table)

    def by_spark(*_: object) -> None:
        raise AssertionError("a commit by Spark")

    closed = HudiTable.close
    with monkeypatch.context() as patch:
        patch.setattr(HudiTable, "close", close)
        for name in ("insert", "upsert", "upsert_few"):
            patch.setattr(HudiTable, name, by_spark)
        warm(job)
    assert written[-2] == 50
    assert 0 < written[-1] < 50
    assert keys(pipeline) == []
    assert pipeline.events == []


def test_what_a_killed_warm_up_left_is_deleted_later(
    pipeline: Pipeline, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = f"{pipeline.prefix}/lake/_warm_up/of-another/warm_up/a.parquet"
    pipeline.s3.put_object(Bucket=BUCKET, Key=left, Body=b"")
    landed_warm_up.warm_up(job)
    # It may be another job's that runs.
    assert keys(pipeline) == [left]
    monkeypatch.setattr(warm_up, "_LEFT_BEHIND", dt.timedelta(seconds=-60))
    landed_warm_up.warm_up(job)
    assert keys(pipeline) == []


def test_a_job_that_is_told_to_stop_warms_up_no_further(pipeline: Pipeline, job: Job) -> None:
    landed: list[str] = []

    class Stopping:
        def __getattr__(self, name: str) -> Any:
            return getattr(job.services.s3, name)

        def put_object(self, **request: Any) -> Any:
            if request["Key"].endswith(".gz"):
                landed.append(request["Key"])
                job.stop.set()
            return job.services.s3.put_object(**request)

    landed_warm_up.warm_up(replace(job, services=replace(job.services, s3=Stopping())))
    assert len(landed) == 1
    assert keys(pipeline) == []
