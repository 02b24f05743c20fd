"""Writers that are caught in the middle of a commit, or of a compaction."""

from __future__ import annotations

import os
import signal
import time

from headwater.waiting import wait_until
from rig.local.key_value import KeyValuePipeline
from rig.local.pipeline import LAKE_BUCKET, Pipeline

COMMIT = "deltacommit"
COMPACTION = "compaction"
# What the instant of an action is called once it is complete.
_COMPLETE = {COMMIT: "deltacommit", COMPACTION: "commit"}


def open_instants(pipeline: Pipeline | KeyValuePipeline, table: str, action: str = COMMIT) -> set[str]:
    """Instants of a table's timeline at which that action is in flight."""
    names = _timeline(pipeline, table)
    return {name.partition(".")[0] for name in names if name.endswith(f".{action}.inflight")} - _complete(names, action)


def complete_instants(pipeline: Pipeline | KeyValuePipeline, table: str, action: str = COMMIT) -> set[str]:
    """Instants of a table's timeline at which that action is complete."""
    return _complete(_timeline(pipeline, table), action)


def _timeline(pipeline: Pipeline | KeyValuePipeline, table: str) -> list[str]:
    listed = pipeline.aws.client("s3").list_objects_v2(Bucket=LAKE_BUCKET, Prefix=f"lake/{table}/.hoodie/")
    return [entry["Key"].rpartition("/")[2] for entry in listed.get("Contents", ())]


def _complete(names: list[str], action: str) -> set[str]:
    return {name.partition(".")[0].partition("_")[0] for name in names if name.endswith(f".{_COMPLETE[action]}")}


def stop_within(pipeline: Pipeline | KeyValuePipeline, table: str, action: str = COMMIT) -> None:
    """Have the writer stand still while that action of it is in flight, however short that is."""

    def stands() -> bool:
        if not open_instants(pipeline, table, action):
            return False
        os.killpg(pipeline.writer.pid, signal.SIGSTOP)
        # What was sent before it stood still is stored first.
        time.sleep(0.2)
        if open_instants(pipeline, table, action):
            return True
        os.killpg(pipeline.writer.pid, signal.SIGCONT)
        return False

    wait_until(f"a {action} in flight", stands, lambda: len(pipeline.commits()), poll=0.01)


def kill_within(pipeline: Pipeline | KeyValuePipeline, table: str, action: str = COMMIT) -> set[str]:
    """Kill the writer while that action of it is in flight, start another one, and return the instants."""
    while True:
        stop_within(pipeline, table, action)
        pipeline.writer.kill()
        instants = open_instants(pipeline, table, action)
        pipeline.start_writer()
        # On a busy machine, what it had sent before it stood still may be stored only now, and completes the action.
        if instants:
            return instants
