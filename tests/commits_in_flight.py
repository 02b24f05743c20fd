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
# The suffix of an action's instant once the action is complete.
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
    """Suspend the writer during an action of this kind, however short the action is."""

    def stands() -> bool:
        if not open_instants(pipeline, table, action):
            return False
        os.killpg(pipeline.writer.pid, signal.SIGSTOP)
        # The store first keeps the requests that the writer sent before it was suspended.
        time.sleep(0.2)
        if open_instants(pipeline, table, action):
            return True
        os.killpg(pipeline.writer.pid, signal.SIGCONT)
        return False

    wait_until(f"a {action} in flight", stands, lambda: len(pipeline.commits()), poll=0.01)


def kill_within(pipeline: Pipeline | KeyValuePipeline, table: str, action: str = COMMIT) -> set[str]:
    """Kill the writer during an action of this kind, start another writer, and return the open instants."""
    while True:
        stop_within(pipeline, table, action)
        pipeline.writer.kill()
        instants = open_instants(pipeline, table, action)
        pipeline.start_writer()
        # On a busy machine, the store may keep the writer's last requests only now, and so complete the action.
        if instants:
            return instants
