"""The state of the MSK cluster between the two connectors."""

from __future__ import annotations

from headwater.operations.deployed import Deployed
from headwater.operations.state import Part, Problem

NAME = "Kafka"
_ACTIVE = "ACTIVE"
# Kafka takes and gives records in these states, too.
_IN_CHANGE = ("CREATING", "MAINTENANCE", "UPDATING")


def observe(deployed: Deployed) -> Part:
    """The state of the cluster, by MSK's description. Raises the exceptions of boto3."""
    pages = deployed.client("kafka").get_paginator("list_clusters_v2").paginate(ClusterNameFilter=deployed.prefix)
    listed = [cluster for page in pages for cluster in page["ClusterInfoList"]]
    # The filter matches the beginning of a name.
    state = next((each["State"] for each in listed if each["ClusterName"] == deployed.prefix), None)
    environment = deployed.environment.name
    facts = {"cluster": deployed.prefix, "state": state}
    if state is None:
        advice = f"headwater deploy --env {environment}"
        return Part(NAME, "not there", facts, [Problem(f"there is no cluster {deployed.prefix}", advice, "connector")])
    if state == _ACTIVE or state in _IN_CHANGE:
        return Part(NAME, state, facts)
    advice = (
        "MSK repairs its brokers by itself, and the connectors then go on: "
        f"headwater logs brokers --env {environment} says more"
    )
    return Part(NAME, state, facts, [Problem(f"the cluster {deployed.prefix} is {state}", advice, "connector")])
