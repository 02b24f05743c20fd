"""The freshness that the demo reports, from timelines and rows made by hand."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from headwater.contract.reading import parse_contract
from headwater.lake.base.progress import NOTED_AS, Progress
from headwater.waiting import wait_until
from rig.demo import freshness
from rig.demo.freshness import PublishedInstants

THINGS = parse_contract(
    """
table: things
description: Things.
source: {database: postgresql, table: northwind.things}
key: [id]
partition_by: []
buckets: 1
columns:
  - {name: id, type: int, source_type: integer}
""",
    "things.yaml",
)


class Timeline:
    """Takes the place of boto3's client: lists the names in a table's ``.hoodie``, in pages of one."""

    def __init__(self, *names: str) -> None:
        self.names = list(names)
        self.commits: dict[str, bytes] = {}
        self.fails = 0
        self.listed = 0

    def get_object(self, **asked: str) -> dict[str, Any]:
        name = asked["Key"].removeprefix("tables/things/.hoodie/")
        assert asked["Bucket"] == "lake"
        assert name in self.names
        return {"Body": io.BytesIO(self.commits.get(name, b""))}

    def get_paginator(self, operation: str) -> Timeline:
        assert operation == "list_objects_v2"
        return self

    def paginate(self, **asked: Any) -> Iterator[dict[str, Any]]:
        after = asked.pop("StartAfter")
        assert asked == {"Bucket": "lake", "Prefix": "tables/things/.hoodie/", "Delimiter": "/"}
        if self.fails:
            self.fails -= 1
            raise EndpointConnectionError(endpoint_url="http://lake")
        yield {}
        self.listed = 0
        for key in sorted(f"tables/things/.hoodie/{name}" for name in self.names):
            if key > after:
                self.listed += 1
                yield {"Contents": [{"Key": key}]}


def instants(timeline: Timeline) -> PublishedInstants:
    return PublishedInstants(timeline, "s3://lake/tables", [THINGS])


def test_what_is_completed_is_seen_once_and_what_is_not_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    timeline = Timeline("1.commit", "2.deltacommit", "3.deltacommit.requested", "4.deltacommit.inflight", "5.inflight")
    published = instants(timeline)
    monkeypatch.setattr(time, "time", lambda: 10.0)
    published.look()
    timeline.names += ["3.deltacommit", "6.replacecommit", "7.clean", "hoodie.properties"]
    monkeypatch.setattr(time, "time", lambda: 11.0)
    published.look()
    assert published.seen == {"things": {"1": 10.0, "2": 10.0, "3": 11.0, "6": 11.0}}
    assert published.counts() == {"things": 4}


def test_the_cursor_that_a_commit_carries_is_read_with_it() -> None:
    timeline = Timeline("1.commit", "2.deltacommit", "3.commit")
    progress = Progress(cursor={"headwater.northwind.things/0": 7})
    timeline.commits["2.deltacommit"] = json.dumps({"extraMetadata": {NOTED_AS: progress.to_json()}}).encode()
    timeline.commits["3.commit"] = b'{"extraMetadata": null}'
    published = instants(timeline)
    published.look()
    assert published.cursors == {"things": {"2": {"headwater.northwind.things/0": 7}}}


def test_a_look_lists_from_the_oldest_instant_that_is_open_or_else_from_the_newest() -> None:
    timeline = Timeline("1.commit", "2.deltacommit", "3.compaction.requested", "4.deltacommit", "5.deltacommit")
    published = instants(timeline)
    for listed in (5, 3):
        published.look()
        assert timeline.listed == listed
    timeline.names.append("3.commit")
    published.look()
    published.look()
    assert published.counts() == {"things": 5}
    assert timeline.listed == 1


def test_a_look_that_fails_is_made_up_for_and_the_last_one_is_made_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freshness, "LOOK_SECONDS", 0.01)
    timeline = Timeline("1.commit")
    timeline.fails = 2
    with instants(timeline) as published:
        wait_until("the first look", lambda: bool(published.counts()["things"]))
        monkeypatch.setattr(freshness, "LOOK_SECONDS", 60.0)
        time.sleep(0.05)
        timeline.names.append("2.commit")
    assert published.counts() == {"things": 2}
