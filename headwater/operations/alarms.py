"""The alarms of an environment that are ringing."""

from __future__ import annotations

import re

from headwater.operations.deployed import Deployed
from headwater.operations.state import Alarm

_RUNBOOK = re.compile(r"Runbook: \S*docs/runbooks/([\w-]+)\.md")
_URGENT = "-urgent"


def observe(deployed: Deployed) -> list[Alarm]:
    """Return the ringing alarms, the urgent ones and the oldest first. Raises the exceptions of boto3."""
    prefix = f"{deployed.prefix}-"
    pages = deployed.client("cloudwatch").get_paginator("describe_alarms")
    ringing = [
        alarm for page in pages.paginate(AlarmNamePrefix=prefix, StateValue="ALARM") for alarm in page["MetricAlarms"]
    ]
    found = []
    for alarm in ringing:
        text = alarm.get("AlarmDescription", "")
        page = _RUNBOOK.search(text)
        found.append(
            Alarm(
                alarm["AlarmName"].removeprefix(prefix),
                alarm.get("StateTransitionedTimestamp", alarm["StateUpdatedTimestamp"]).timestamp(),
                _RUNBOOK.sub("", text).strip(),
                any(action.endswith(_URGENT) for action in alarm["AlarmActions"]),
                page[1] if page else "",
            )
        )
    return sorted(found, key=lambda alarm: (not alarm.urgent, alarm.since))
