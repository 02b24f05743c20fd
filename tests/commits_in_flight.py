"""Writers that are caught in the middle of a commit."""

from __future__ import annotations

import os
import signal
import time

from headwater.local.key_value import KeyValuePipeline
from headwater.local.pipeline import LAKE_BUCKET, Pipeline
from headwater.local.processes import wait_until


def open_commits(pipeline: Pipeline | KeyValuePipeline, table: str) -> set[str]:
    """Instants of a table's timeline that are in flight."""
    listed = pipeline.aws.client("s3").list_objects_v2(Bucket=LAKE_BUCKET, Prefix=f"lake/{table}/.hoodie/")
    names = [entry["Key"].rpartition("/")[2] for entry in listed.get("Contents", ())]
    done = {name.partition(".")[0].partition("_")[0] for name in names if name.endswith(".deltacommit")}
    return {name.partition(".")[0] for name in names if name.endswith(".deltacommit.inflight")} - done


def stop_within_commit(pipeline: Pipeline | KeyValuePipeline, table: str) -> None:
    """Have the writer stand still while a commit of it is in flight, however short its commits are."""

    def stands() -> bool:
        if not open_commits(pipeline, table):
            return False
        os.killpg(pipeline.writer.pid, signal.SIGSTOP)
        # What was sent before it stood still is stored first.
        time.sleep(0.2)
        if open_commits(pipeline, table):
            return True
        os.killpg(pipeline.writer.pid, signal.SIGCONT)
        return False

    wait_until("a commit in flight", stands, timeout=120, poll=0.01)


def kill_within_commit(pipeline: Pipeline | KeyValuePipeline, table: str) -> None:
    """Kill the writer while a commit of it is in flight, and start another one."""
    stop_within_commit(pipeline, table)
    pipeline.writer.kill()
    assert open_commits(pipeline, table)
    pipeline.start_writer()
