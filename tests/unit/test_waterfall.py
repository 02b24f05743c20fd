"""Where changes wait on their way, read from landing objects and commits made by hand."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import replace
from typing import Any

import pytest

from headwater.contract.reading import parse_contract
from headwater.definitions.connectors import CaptureSettings
from headwater.demo.freshness import PublishedInstants
from headwater.demo.waterfall import (
    STAGE_OF_LAKE,
    STAGES_OF_WRITER,
    STAGES_TO_S3,
    AtWriter,
    Passed,
    arrivals,
    passed,
    profile,
)
from tests.unit.conftest import BUCKET

THINGS = parse_contract(
    """
table: things
description: Things.
source: {database: postgresql, table: shop.goods}
key: [id]
partition_by: []
buckets: 1
columns:
  - {name: id, type: int, source_type: integer}
""",
    "things.yaml",
)
SETTINGS = CaptureSettings("dev", "eu-west-1", "db", "5432", "shop", "secret", {}, BUCKET)
TOPIC = "headwater.shop.goods"


def land(s3: Any, partition: int, first: int, *events: dict[str, Any] | None, prefix: str) -> float:
    """Land an object of these events, and give the second in which it landed."""
    lines = []
    for offset, event in enumerate(events, first):
        value = None if event is None else base64.b64encode(json.dumps(event).encode()).decode()
        lines.append(json.dumps({"offset": offset, "timestamp": 1_000_500 + offset, "key": "e30=", "value": value}))
    key = f"{prefix}/{TOPIC}/{partition}/{first:020d}.jsonl.gz"
    s3.put_object(Bucket=BUCKET, Key=key, Body=gzip.compress("\n".join(lines).encode()))
    return float(s3.head_object(Bucket=BUCKET, Key=key)["LastModified"].timestamp())


def change(op: str, second: float) -> dict[str, Any]:
    return {
        "op": op,
        "ts_us": int((second + 0.25) * 1e6),
        "source": {"ts_us": int(second * 1e6), "lsn": 5},
        "after": {},
    }


def test_every_change_is_told_with_the_first_commit_that_holds_it(s3: Any) -> None:
    settings = replace(SETTINGS, landing_prefix="every")
    landed = land(s3, 0, 0, change("c", 999), change("u", 1000), None, change("t", 1000), prefix="every")
    later = land(s3, 0, 4, change("d", 1001), change("u", 1002), prefix="every")
    land(s3, 2, 0, {"op": "t", "source": {"lsn": 5, "snapshot": "last"}}, {"op": "m"}, prefix="every")
    other = land(s3, 1, 0, change("r", 1000), change("c", 1000), prefix="every")
    instants = PublishedInstants(None, "s3://lake/tables", [THINGS])
    instants.seen = {"things": {"1": 2e9, "2": 3e9, "3": 3.5e9}}
    # The third is a compaction's, which carries no cursor; the last change is in no commit that has been seen.
    instants.cursors = {"things": {"2": {f"{TOPIC}/0": 5, f"{TOPIC}/1": 9, f"{TOPIC}/2": 9}, "1": {f"{TOPIC}/0": 4}}}
    found = passed(s3, settings, [THINGS], instants, since=1000)
    assert found == {
        "things": [
            Passed(1000, 1000.25, 1000.501, landed, 2e9),
            Passed(1001, 1001.25, 1000.504, later, 3e9),
            Passed(1000, 1000.25, 1000.501, other, 3e9),
        ]
    }
    assert arrivals(found["things"], since=999.96) == {0.0: 2, 1.0: 1}


def test_a_change_is_told_with_what_the_writer_of_its_commit_tells(s3: Any) -> None:
    settings = replace(SETTINGS, landing_prefix="told")
    land(s3, 0, 0, change("c", 1000), change("u", 1000), prefix="told")
    instants = PublishedInstants(None, "s3://lake/tables", [THINGS])
    instants.seen = {"things": {"1": 2e9, "2": 3e9}}
    instants.cursors = {"things": {"1": {f"{TOPIC}/0": 1}, "2": {f"{TOPIC}/0": 2}}}
    event = {"table": "things", "instant": "2", "taken_at": 10.0, "completed_at": 13.0, "seconds": 2.0}
    of_another = event | {"table": "others", "instant": "1"}
    first, second = passed(s3, settings, [THINGS], instants, 0, [event, of_another])["things"]
    assert first.writer is None
    assert second.writer == AtWriter(taken=10, decoded=11, committed=13)


def test_a_clock_that_tells_less_makes_no_stage_negative() -> None:
    change = Passed(source=10.4, debezium=10.6, kafka=10.5, landed=10.0, readable=12.6)
    assert change.seconds == pytest.approx(2.2)
    assert list(change.stages) == [*STAGES_TO_S3, STAGE_OF_LAKE]
    assert list(change.stages.values()) == pytest.approx([0.2, 0, 0, 2.0])
    told = change._replace(writer=AtWriter(taken=11.0, decoded=11.5, committed=12.5))
    assert list(told.stages) == [*STAGES_TO_S3, *STAGES_OF_WRITER]
    assert list(told.stages.values()) == pytest.approx([0.2, 0, 0, 0.4, 0.5, 1.0, 0.1])
    for each in (change, told):
        assert sum(each.stages.values()) == pytest.approx(each.seconds)


def test_a_profile_tells_of_the_median_and_of_the_slowest() -> None:
    changes = [Passed(0, 1, 2, 3, 3 + second) for second in range(100)]
    told = profile(changes)
    assert [list(stages) for stages in told.values()] == [[*STAGES_TO_S3, STAGE_OF_LAKE]] * 2
    assert told["about the median"][STAGE_OF_LAKE] == pytest.approx(49.5)
    assert told["the slowest 5 %"][STAGE_OF_LAKE] == pytest.approx(97)
    assert told["the slowest 5 %"]["source to Debezium"] == 1
    assert profile(changes[:1]) == {name: dict.fromkeys(STAGES_TO_S3, 1.0) | {STAGE_OF_LAKE: 0.0} for name in told}
    assert profile([]) == {}
