"""Every resource of every environment has a price or is known to be free."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from headwater.errors import UserError
from headwater.review import cost
from tests.synth.deployed import deployment, templates

if TYPE_CHECKING:
    from tests.synth.conftest import Synthesized


def test_every_environment_has_an_estimate(every: "Synthesized") -> None:
    estimate = cost.estimate(deployment(every), every.environment.name)
    assert estimate.unknown == {}
    costs = estimate.by_resource()
    assert estimate.total == pytest.approx(sum(costs.values()))
    assert {"emr:Cluster", "stream:Cluster", "database:Cluster", "connect:SourceConnector"} <= set(costs)
    assert [line for line in estimate.lines if line.cost <= 0 and "discount" not in line.item] == []


def test_no_environment_is_larger_than_its_budget(every: "Synthesized") -> None:
    budget = every.environment.monitoring.monthly_budget_usd
    assert cost.estimate(deployment(every), every.environment.name).total < budget


def test_dev_with_a_spot_node_costs_less_than_a_thousand_dollars(dev: "Synthesized") -> None:
    changed = templates(dev)
    emr = changed["headwater-dev-emr"]["Resources"].values()
    (cluster,) = [resource["Properties"] for resource in emr if resource["Type"] == "AWS::EMR::Cluster"]
    cluster["Instances"]["MasterInstanceGroup"]["Market"] = "SPOT"
    assert cost.estimate(deployment(dev, changed), "dev").total < 1000 < cost.estimate(deployment(dev), "dev").total


def test_production_costs_more_than_development(synthesize: Callable[[str], "Synthesized"]) -> None:
    totals = {name: cost.estimate(deployment(synthesize(name)), name).total for name in ("dev", "stage", "prod")}
    assert totals["dev"] < totals["stage"] < totals["prod"]


def test_a_new_kind_of_resource_is_not_passed_over(dev: "Synthesized") -> None:
    changed = templates(dev)
    changed["headwater-dev-lake"]["Resources"]["Search"] = {"Type": "AWS::OpenSearchService::Domain"}
    with pytest.raises(UserError, match="found AWS::OpenSearchService::Domain, expected types with a price"):
        cost.estimate(deployment(dev, changed), "dev")


def test_a_change_is_seen_where_it_is(dev: "Synthesized") -> None:
    before = cost.estimate(deployment(dev), "dev").by_resource()
    changed = templates(dev)
    (cluster,) = [
        resource
        for resource in changed["headwater-dev-emr"]["Resources"].values()
        if resource["Type"] == "AWS::EMR::Cluster"
    ]
    cluster["Properties"]["Instances"]["MasterInstanceGroup"]["InstanceCount"] = 5
    after = cost.estimate(deployment(dev, changed), "dev").by_resource()
    ((name, old, new),) = cost.differences(before, after)
    assert (name, new > old) == ("emr:Cluster", True)
