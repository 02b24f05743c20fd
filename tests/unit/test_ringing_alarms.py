"""The alarms that ring, as ``headwater status`` tells of them."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from headwater.contract.reading import read_contracts
from headwater.environment.rules import read_environment
from headwater.lake_folder import EXAMPLE
from headwater.operations import alarms
from headwater.operations.deployed import Deployed
from headwater.operations.state import Alarm


class CloudWatch:
    """Has one alarm, with this text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def get_paginator(self, operation: str) -> CloudWatch:
        assert operation == "describe_alarms"
        return self

    def paginate(self, **wanted: str) -> list[dict[str, Any]]:
        assert wanted == {"AlarmNamePrefix": "headwater-dev-", "StateValue": "ALARM"}
        alarm = {
            "AlarmName": "headwater-dev-wal",
            "AlarmDescription": self._text,
            "AlarmActions": ["arn:aws:sns:eu-central-1:123456789012:headwater-dev-urgent"],
            "StateUpdatedTimestamp": dt.datetime.fromtimestamp(7, dt.UTC),
        }
        return [{"MetricAlarms": [alarm]}]


@pytest.mark.parametrize("address", ["", "https://git.example.com/headwater/blob/main/"])
def test_an_alarms_page_is_known_wherever_its_text_says_it_is_shown(address: str) -> None:
    text = f"WAL grows. Runbook: {address}docs/runbooks/slot-lag.md"
    deployed = Deployed(
        read_environment("dev", EXAMPLE.config), read_contracts(EXAMPLE.contracts), lambda service: CloudWatch(text)
    )
    assert alarms.observe(deployed) == [Alarm("wal", 7.0, "WAL grows.", True, "slot-lag")]
