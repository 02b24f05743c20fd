"""What an environment costs per month, from small templates."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from headwater import cli
from headwater.commands import synthesis
from headwater.commands.cost import read_estimate
from headwater.definitions.connectors import OFFSET_TOPIC
from headwater.errors import UserError
from headwater.lake.base.metrics import COMPARISONS, FRESHNESS
from headwater.paths import ROOT
from headwater.review import cost
from headwater.review.prices import read_prices
from headwater.review.templates import Deployment
from tests.lake_folders import lake_folder

REGION = "eu-central-1"


def deployment(**resources: tuple[str, dict[str, Any]]) -> Deployment:
    template = {name: {"Type": type_, "Properties": properties} for name, (type_, properties) in resources.items()}
    return Deployment({"headwater-dev-lake": {"Resources": template}}, REGION)


def quantities(**resources: tuple[str, dict[str, Any]]) -> dict[str, float]:
    """The quantity of every item. Each item has a price."""
    estimated = cost.estimate(deployment(**resources), "dev")
    assert estimated.unknown == {}
    return {line.item: line.quantity for line in estimated.lines}


def price(name: str) -> float:
    return read_prices().prices[name].price


def test_a_resource_costs_its_quantity_times_the_price_of_the_region() -> None:
    (line,) = cost.estimate(deployment(Secret=("AWS::SecretsManager::Secret", {})), "dev").lines
    assert (line.resource, line.item, line.quantity, line.cost) == ("lake:Secret", "secret", 1, price("secret_month"))


def test_kafka_pays_for_each_broker_its_volume_and_its_metrics() -> None:
    nodes = {"InstanceType": "kafka.m7g.large", "StorageInfo": {"EBSStorageInfo": {"VolumeSize": 100}}}
    properties = {"NumberOfBrokerNodes": 3, "BrokerNodeGroupInfo": nodes, "EnhancedMonitoring": "PER_TOPIC_PER_BROKER"}
    assert quantities(Cluster=("AWS::MSK::Cluster", properties), Topic=("AWS::MSK::Topic", {})) == {
        "brokers": 3 * 730,
        "volumes": 300,
        "metrics": 3 * cost.assumed("metrics_per_topic"),
    }


def test_aurora_pays_for_the_capacity_of_each_instance() -> None:
    scaling = {"MinCapacity": 0.5, "MaxCapacity": 4}
    items = quantities(
        Cluster=("AWS::RDS::DBCluster", {"ServerlessV2ScalingConfiguration": scaling}),
        Writer=("AWS::RDS::DBInstance", {"DBInstanceClass": "db.serverless"}),
        Reader=("AWS::RDS::DBInstance", {"DBInstanceClass": "db.serverless"}),
    )
    busy = cost.assumed("aurora_busy_hours")
    assert items["capacity"] == 2 * (0.5 * (730 - busy) + 4 * busy)


def test_a_connector_costs_the_same_as_a_resource_of_ours() -> None:
    capacity = {"mcuCount": "2", "workerCount": "3"}
    ours = {"Connector": {"capacity": {"provisionedCapacity": capacity}}}
    theirs = {"Capacity": {"ProvisionedCapacity": {"McuCount": 2, "WorkerCount": 3}}}
    assert quantities(One=("Custom::HeadwaterConnector", ours)) == {"capacity units": 6 * 730}
    assert quantities(One=("AWS::KafkaConnect::Connector", theirs)) == {"capacity units": 6 * 730}


def test_emr_pays_for_nodes_their_surcharge_and_their_volumes() -> None:
    volume = {"VolumeSpecification": {"SizeInGB": 64}, "VolumesPerInstance": 1}
    nodes = {"InstanceType": "m7g.xlarge", "EbsConfiguration": {"EbsBlockDeviceConfigs": [volume]}}
    instances = {
        "MasterInstanceGroup": {**nodes, "InstanceCount": 1},
        "CoreInstanceGroup": {**nodes, "InstanceCount": 2},
    }
    items = quantities(Cluster=("AWS::EMR::Cluster", {"Instances": instances}))
    assert items["core nodes"] == items["core nodes, EMR"] == 2 * 730
    assert items["core volumes"] == 2 * (64 + cost.assumed("ebs_root_gb"))


def test_the_writer_pays_for_its_looks_by_the_longest_pause_that_the_environment_allows() -> None:
    def listings(pause: str, partitions: int, what: str = "looks for landing objects") -> float:
        step = {"Args": ["--contract", "a", "--contract", "b", "--idle-seconds-max", pause]}
        topics = {
            "Topic": ("AWS::MSK::Topic", {"TopicName": "headwater.shop.a", "PartitionCount": partitions}),
            "Offsets": ("AWS::MSK::Topic", {"TopicName": OFFSET_TOPIC, "PartitionCount": 25}),
        }
        capacity = {"provisionedCapacity": {"mcuCount": 1, "workerCount": 1}}
        settings = {"topics": "headwater.shop.a"}
        sink = {"Connector": {"connectorConfiguration": settings, "capacity": capacity}}
        connector = ("Custom::HeadwaterConnector", sink)
        items = quantities(Step=("Custom::HeadwaterStep", step), Sink=connector, **topics)
        return items[what] * 1e6

    commits = 60 * 3600 / 10
    idle_seconds = 730 * 3600 - commits * 10
    # In the ten seconds between two commits: at 0, 0.5, 1.5, 3.5 and 7.5 seconds, or every half second.
    assert listings("30", 1) == pytest.approx(2 * (commits * 5 + idle_seconds / 30))
    assert listings("0.5", 1) == pytest.approx(2 * 730 * 3600 * 2)
    assert listings("30", 3) == pytest.approx(listings("30", 1) * 4)
    assert listings("30", 3, "looks for requests") == pytest.approx(2 * 730 * 3600 / 30)
    assert listings("30", 3, "leases") == pytest.approx(2 * 730 * 3600 / 30)


def test_spot_is_a_discount_that_is_named_as_an_assumption() -> None:
    nodes = {"InstanceType": "m7g.xlarge", "InstanceCount": 1, "Market": "SPOT"}
    cluster = ("AWS::EMR::Cluster", {"Instances": {"MasterInstanceGroup": nodes}})
    items = quantities(Cluster=cluster)
    assert items["primary nodes"] == items["primary nodes, EMR"] == 730
    assert items["primary nodes, Spot discount"] == -730 * cost.assumed("spot_discount")
    assert "guess" in cost.assumptions()["assumptions"]["spot_discount"]["reason"]


def test_an_environment_may_have_assumptions_of_its_own() -> None:
    bucket = deployment(Lake=("AWS::S3::Bucket", {}))
    (dev,) = cost.estimate(bucket, "dev").lines
    (prod,) = cost.estimate(bucket, "prod").lines
    assert (dev.quantity, prod.quantity) == (20, 200)


@pytest.mark.parametrize(
    ("properties", "items"),
    [
        ({"ShardCount": 2}, {"shards": 1460, "records": 2}),
        ({"ShardCount": 2, "RetentionPeriodHours": 48}, {"shards": 1460, "records": 2, "retention": 1460}),
        ({"StreamModeDetails": {"StreamMode": "ON_DEMAND"}}, {"stream": 730, "written": 2, "read": 2}),
    ],
)
def test_a_stream_pays_by_shard_or_by_use(properties: dict[str, Any], items: dict[str, float]) -> None:
    assert quantities(Stream=("AWS::Kinesis::Stream", properties)) == items


def test_a_glue_job_pays_for_its_workers_around_the_clock() -> None:
    arguments = {"--source-table": "a=x,b=y", "--window-seconds": "30"}
    job = {"WorkerType": "G.025X", "NumberOfWorkers": 2, "DefaultArguments": arguments}
    items = quantities(Job=("AWS::Glue::Job", job))
    assert items["workers"] == 0.25 * 2 * 730
    assert items["metrics"] == 2 * cost.assumed("metrics_per_table")
    commits = 2 * 60 * 3600 / 30
    assert items["commits, writing"] == pytest.approx(commits * cost.assumed("commit_writes") / 1e6)
    assert items["polls for requests"] == pytest.approx(2 * 730 * 3600 / 30 / 1e6)


def test_where_a_table_has_to_be_compared_its_comparison_sends_metrics() -> None:
    asked = quantities(Compared=("AWS::CloudWatch::Alarm", {"MetricName": COMPARISONS}))
    assert asked == {"metrics": 1, "metrics of the comparison": cost.assumed("metrics_per_comparison")}
    assert quantities(Late=("AWS::CloudWatch::Alarm", {"MetricName": FRESHNESS})) == {"metrics": 1}


def test_an_endpoint_pays_by_zone_and_a_gateway_not_at_all() -> None:
    gateway = ("AWS::EC2::VPCEndpoint", {"VpcEndpointType": "Gateway"})
    interface = ("AWS::EC2::VPCEndpoint", {"VpcEndpointType": "Interface", "SubnetIds": ["a", "b", "c"]})
    assert quantities(Gateway=gateway) == {}
    assert quantities(Interface=interface)["hours"] == 3 * 730


def test_types_without_a_price_are_all_named() -> None:
    with pytest.raises(UserError, match="found AWS::ES::Domain, Custom::Other, expected types with a price"):
        cost.estimate(deployment(One=("AWS::ES::Domain", {}), Two=("Custom::Other", {})), "dev")


def test_what_has_no_price_is_named_and_left_out_of_the_total() -> None:
    resources = {
        "Large": ("AWS::EC2::Instance", {"InstanceType": "p4d.24xlarge"}),
        "Secret": ("AWS::SecretsManager::Secret", {}),
    }
    here = cost.estimate(deployment(**resources), "dev")
    (hours,) = (line for line in here.lines if line.item == "hours")
    assert here.unknown == {"p4d.24xlarge": hours}
    assert (hours.resource, hours.unit, hours.price, hours.cost) == ("lake:Large", "hour", None, 0)
    assert here.total == pytest.approx(price("secret_month") + cost.assumed("ebs_root_gb") * price("ebs_gb_month"))
    assert here.document()["unknown"] == ["p4d.24xlarge"]


def test_another_region_costs_what_the_files_region_does() -> None:
    templates = {"headwater-dev-lake": {"Resources": {"One": {"Type": "AWS::SecretsManager::Secret"}}}}
    here, elsewhere = (cost.estimate(Deployment(templates, region), "dev") for region in (REGION, "eu-west-1"))
    assert elsewhere.total == here.total == price("secret_month")
    assert elsewhere.document() == here.document() | {"region": "eu-west-1", "prices_region": REGION}


def test_differences_are_the_greatest_first_and_name_what_came_and_went() -> None:
    before = {"same": 1.0, "grew": 1.0, "went": 5.0}
    assert cost.differences(before, {"same": 1.001, "grew": 3.0, "came": 9.0}) == [
        ("came", 0.0, 9.0),
        ("went", 5.0, 0.0),
        ("grew", 1.0, 3.0),
    ]


def test_every_assumption_says_what_it_is_of() -> None:
    data = yaml.safe_load(cost.ASSUMPTIONS.read_text())
    for name, assumption in data["assumptions"].items():
        assert assumption["reason"], name
        assert assumption["value"] >= 0, name
    code = Path(str(cost.__file__)).read_text()
    assert [name for name in data["assumptions"] if name not in code and not name.endswith("_gb")] == []


@pytest.fixture
def assembly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The synthesized stacks of the current lake folder: one secret."""
    stack = {
        "type": "aws:cloudformation:stack",
        "environment": f"aws://unknown-account/{REGION}",
        "properties": {"templateFile": "lake.json", "stackName": "headwater-dev-lake"},
    }
    monkeypatch.setattr(synthesis, "synthesize", lambda folder, name: None)
    folder = lake_folder(tmp_path / "lake")
    monkeypatch.chdir(folder.root)
    folder.synthesized.mkdir()
    (folder.synthesized / "manifest.json").write_text(json.dumps({"artifacts": {"lake": stack}}))
    template = {"Resources": {"Secret": {"Type": "AWS::SecretsManager::Secret"}}}
    (folder.synthesized / "lake.json").write_text(json.dumps(template))
    return folder.synthesized


def run(*arguments: str) -> str:
    runner = CliRunner(env={"COLUMNS": "120"})
    done = runner.invoke(cli.app, ["cost", *arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


@pytest.mark.usefixtures("assembly")
def test_the_command_prints_resources_items_and_the_total() -> None:
    out = run("--env", "dev")
    assert re.search(r"lake:Secret .* secret .* 1\.00 .* secret-month .* ~?0\.4 .* 0\.40", out)
    assert f"Prices of {REGION} as of 2026-11; ~ marks" in out
    assert "there are none" not in out
    assert "aurora_busy_hours = 20" in out


@pytest.mark.usefixtures("assembly")
def test_the_command_shows_the_difference_to_an_earlier_estimate(tmp_path: Path) -> None:
    document = json.loads(run("--env", "dev", "--json"))
    assert document["resources"] == {"lake:Secret": 0.4}
    document |= {"resources": {"lake:Old": 2.0}, "total": 2.0}
    earlier = tmp_path / "earlier.json"
    earlier.write_text(json.dumps(document))
    out = run("--env", "dev", "--against", str(earlier))
    assert re.search(r"lake:Old +│ +2\.00 +│ +0\.00 +│ +-2\.00", out)
    assert re.search(r"all +│ +2\.00 +│ +0\.40 +│ +-1\.60", out)


def test_in_another_region_the_first_line_names_the_prices_region(assembly: Path, tmp_path: Path) -> None:
    manifest = assembly / "manifest.json"
    manifest.write_text(manifest.read_text().replace(REGION, "eu-west-1"))
    synthesized = ("--env", "dev")
    document = json.loads(run(*synthesized, "--json"))
    assert (document["region"], document["prices_region"]) == ("eu-west-1", REGION)
    earlier = tmp_path / "earlier.json"
    earlier.write_text(json.dumps(document))
    for arguments in (synthesized, (*synthesized, "--against", str(earlier))):
        assert run(*arguments).splitlines()[0] == f"Prices of {REGION}, because there are none for eu-west-1."


def test_the_command_prints_the_line_that_a_missing_price_needs(assembly: Path, tmp_path: Path) -> None:
    template = {"Resources": {"Large": {"Type": "AWS::EC2::Instance", "Properties": {"InstanceType": "p4d.24xlarge"}}}}
    (assembly / "lake.json").write_text(json.dumps(template))
    out = run("--env", "dev")
    assert re.search(r"lake:Large .* hours .* 730\.00 .* hour .* unknown .* unknown", out)
    assert "Not in the total, because the price is unknown:\n  p4d.24xlarge, for lake:Large\n" in out
    printed = re.search(r"^There, add a line .* below `prices:` in (\S+), .*\n(  p4d.*\n)", out, re.MULTILINE)
    assert printed is not None
    shipped = (ROOT / printed[1]).read_text()
    filled = printed[2].replace("price: …", "price: 32.5").replace("…", "aws.amazon.com/").replace("YYYY-MM", "2026-11")
    completed = tmp_path / "prices.yaml"
    completed.write_text(shipped + filled)
    assert cost.estimate(Deployment.read(assembly, "dev"), "dev", completed).unknown == {}


@pytest.mark.usefixtures("assembly")
def test_the_command_says_what_it_leaves_out() -> None:
    out = run("--env", "dev")
    assert "Not in the estimate:" in out
    assert "AWS Support, and taxes" in out


@pytest.mark.parametrize("content", ["", "[]", '{"environment": "prod", "resources": {}}'])
def test_a_file_that_is_no_estimate_of_the_environment_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "earlier.json"
    path.write_text(content)
    with pytest.raises(UserError, match=r"earlier\.json: found .*, expected the output"):
        read_estimate(path, "dev")


@pytest.mark.parametrize(("environment", "found"), [("prod", "headwater-dev-lake"), ("dev", "")])
def test_templates_of_another_environment_are_refused(assembly: Path, environment: str, found: str) -> None:
    if not found:
        (assembly / "manifest.json").write_text('{"artifacts": {}}')
    with pytest.raises(UserError, match=rf"found {found or 'no stack'}, expected the stacks headwater-{environment}-"):
        Deployment.read(assembly, environment)
    with pytest.raises(UserError, match=r"found no file, expected synthesized stacks: run `headwater synth --env dev`"):
        Deployment.read(assembly / "none", "dev")
