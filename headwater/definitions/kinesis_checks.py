"""Checks that the streams of existing DynamoDB tables fit the environment, by asking Kinesis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from headwater.definitions.source_checks import UNFIT, UNPREPARED, WARNING, Finding

AWS_KEY = "alias/aws/kinesis"
_DAY_HOURS = 24


@dataclass(frozen=True)
class ExpectedStream:
    """A stream as the environment needs it."""

    name: str
    """The stream's name."""
    key: str | None
    """The ARN of the stream's KMS key; None for no key or AWS's own key."""
    retention_hours: int
    """The least number of hours that the stream must keep records."""
    tombstone_days: int
    """How many days the lake keeps tombstones, which have to outlast the stream's records."""


def findings(streams: Mapping[str, ExpectedStream], client: Any) -> list[Finding]:
    """Return the findings about the streams of contracts. Raises botocore's ClientError.

    - ``streams``: the expected stream of each contract.
    - ``client``: boto3's client for Kinesis.
    """
    return [finding for contract, expected in streams.items() for finding in _check(contract, expected, client)]


def _check(contract: str, expected: ExpectedStream, client: Any) -> Iterator[Finding]:
    def finding(level: str, found: str, wanted: str, action: str) -> Finding:
        return Finding(contract, expected.name, level, found, wanted, action)

    try:
        summary = client.describe_stream_summary(StreamName=expected.name)["StreamDescriptionSummary"]
    except ClientError as error:
        if error.response["Error"]["Code"] != "ResourceNotFoundException":
            raise
        yield finding(
            UNFIT, "no such stream", "the stream of the table's changes", "create the stream, or correct its name"
        )
        return
    # Records must stay long enough for a stopped job, but not longer than tombstones.
    kept = summary["RetentionPeriodHours"]
    if kept < expected.retention_hours:
        yield finding(
            UNPREPARED,
            f"records kept for {kept} hours",
            f"{expected.retention_hours} or more, as key_value.stream_retention_hours says",
            "correct this setting, or run aws kinesis increase-stream-retention-period",
        )
    tombstone_hours = expected.tombstone_days * _DAY_HOURS
    if kept >= tombstone_hours:
        yield finding(
            UNFIT,
            f"records kept for {kept} hours",
            f"less than {tombstone_hours}: a record that comes after its row's tombstone was deleted restores the row",
            f"raise lake.tombstone_days ({expected.tombstone_days}), or keep the stream's records for less",
        )
    # Compare the stream's key with stream_key, which the job's rights name. An alias cannot be compared.
    key = summary.get("KeyId") if summary.get("EncryptionType") == "KMS" else None
    alias = key is not None and key.rpartition(":")[2].startswith("alias/")
    if alias and not str(key).endswith(AWS_KEY):
        yield finding(WARNING, f"the key {key}", "its ARN, to compare it", "see that stream_key is the ARN of this key")
    elif not _same_key(key, expected.key):
        yield finding(
            UNFIT,
            f"the key {key or 'none'}",
            f"{expected.key or f'none, or {AWS_KEY}'}, as stream_key says: without the key the job cannot read",
            "correct stream_key",
        )


def _same_key(actual: str | None, expected: str | None) -> bool:
    """Return whether a stream's key, an id or an ARN, is the expected one. None expects no key or AWS's own."""
    if expected is None or actual is None:
        return expected is None and (actual is None or actual.endswith(AWS_KEY))
    return actual == expected or expected.endswith(f"key/{actual}")
