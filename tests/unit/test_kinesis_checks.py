"""The stream of an existing table is held against what the environment says of it."""

from datetime import UTC, datetime
from typing import Any

import pytest

from headwater.definitions import kinesis_checks
from headwater.definitions.kinesis_checks import AWS_KEY, ExpectedStream
from tests.modelled import Modelled, refusal

KEY = "arn:aws:kms:eu-central-1:123456789012:key/1a2b"
ALIAS = "arn:aws:kms:eu-central-1:123456789012:alias/changes"


class Service:
    """Kinesis with one stream."""

    def __init__(self, key: str | None, hours: int) -> None:
        self.summary: dict[str, Any] = {
            "StreamName": "account-changes",
            "StreamARN": "arn:aws:kinesis:eu-central-1:123456789012:stream/account-changes",
            "StreamStatus": "ACTIVE",
            "RetentionPeriodHours": hours,
            "StreamCreationTimestamp": datetime(2026, 1, 1, tzinfo=UTC),
            "EnhancedMonitoring": [],
            "OpenShardCount": 1,
            "EncryptionType": "KMS" if key else "NONE",
            **({"KeyId": key} if key else {}),
        }

    def describe_stream_summary(self, **request: str) -> dict[str, Any]:
        if request["StreamName"] != "account-changes":
            raise refusal("ResourceNotFoundException")
        return {"StreamDescriptionSummary": self.summary}


def check(key: str | None, hours: int, expected: ExpectedStream) -> list[tuple[str, str]]:
    found = kinesis_checks.findings({"accounts": expected}, Modelled("kinesis", Service(key, hours)))
    assert all((each.contract, each.place) == ("accounts", expected.name) for each in found)
    return [(each.level, each.found) for each in found]


@pytest.mark.parametrize(
    ("key", "stated"), [(None, None), (AWS_KEY, None), (f"arn:aws:kms:a:b:{AWS_KEY}", None), (KEY, KEY), ("1a2b", KEY)]
)
def test_a_stream_as_the_environment_says_fits(key: str | None, stated: str | None) -> None:
    assert check(key, 24, ExpectedStream("account-changes", stated, 24, 7)) == []


def test_a_stream_may_keep_records_for_longer_than_others_but_not_than_tombstones() -> None:
    assert check(None, 167, ExpectedStream("account-changes", None, 24, 7)) == []


@pytest.mark.parametrize(
    ("key", "hours", "stated", "found"),
    [
        (None, 24, KEY, ("unfit", "the key none")),
        (KEY, 24, None, ("unfit", f"the key {KEY}")),
        (KEY.replace("1a2b", "2b3c"), 24, KEY, ("unfit", "the key arn:aws:kms:eu-central-1:123456789012:key/2b3c")),
        ("alias/changes", 24, KEY, ("warning", "the key alias/changes")),
        (ALIAS, 24, KEY, ("warning", f"the key {ALIAS}")),
        (f"arn:aws:kms:a:b:{AWS_KEY}", 24, KEY, ("unfit", f"the key arn:aws:kms:a:b:{AWS_KEY}")),
        (None, 23, None, ("unprepared", "records kept for 23 hours")),
        (None, 168, None, ("unfit", "records kept for 168 hours")),
    ],
)
def test_what_differs_is_named(key: str | None, hours: int, stated: str | None, found: tuple[str, str]) -> None:
    assert check(key, hours, ExpectedStream("account-changes", stated, 24, 7)) == [found]


def test_a_stream_that_is_missing_is_named() -> None:
    assert check(None, 24, ExpectedStream("changes", None, 24, 7)) == [("unfit", "no such stream")]
