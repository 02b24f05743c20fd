"""What the templates of every environment promise."""

import base64
import json
import re
import zipfile
from collections.abc import Callable
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aws_cdk as cdk
import msgspec
import pytest
from aws_cdk import aws_logs as logs
from moto.ec2.models.instance_types import INSTANCE_TYPES

from headwater.contract.model import POSTGRESQL, Contract, lake_tables, of_database
from headwater.contract.types import parse_type
from headwater.definitions import connectors
from headwater.definitions.connectors import OFFSET_TOPIC
from headwater.definitions.glue_table import HUDI_COLUMNS
from headwater.definitions.history_queries import history_statements, history_views
from headwater.definitions.named_queries import named_queries
from headwater.definitions.published_view import published_view
from headwater.definitions.source_database import ROLES
from headwater.environment import model as environment
from headwater.environment import node_memory
from headwater.environment.rules import read_environment
from headwater.errors import UserError
from headwater.lake_folder import EXAMPLE
from headwater.paths import ROOT
from stacks import application
from stacks.assets import Assets
from stacks.base import log_retention
from stacks.network import NetworkStack
from tests.synth.deployed import made
from tests.synth.example import example_content

if TYPE_CHECKING:
    from tests.synth.conftest import Synthesized

DATA_TYPES = (
    "AWS::DynamoDB::GlobalTable",
    "AWS::KMS::Key",
    "AWS::Kinesis::Stream",
    "AWS::MSK::Cluster",
    "AWS::MSK::Topic",
    "AWS::RDS::DBCluster",
    "AWS::S3::Bucket",
)


def test_every_environment_synthesizes_all_stacks(every: "Synthesized") -> None:
    assert every.parts() == [
        "network", "lake", "database", "database_content", "stream", "stream_topics", "connect", "emr", "emr_writer",
        "key_value", "glue_job", "monitoring",
    ]  # fmt: skip
    for part in every.parts():
        assert every.template(part)["Resources"]


def test_no_security_group_lets_in_what_is_outside_the_vpc(every: "Synthesized") -> None:
    rules = [rule["Properties"] for rule in every.resources("AWS::EC2::SecurityGroupIngress").values()]
    for group in every.resources("AWS::EC2::SecurityGroup").values():
        rules += group["Properties"].get("SecurityGroupIngress", [])
    assert rules
    inside = IPv4Network(every.environment.postgresql.network.cidr)
    for rule in rules:
        assert "CidrIpv6" not in rule
        assert "CidrIp" not in rule or IPv4Network(rule["CidrIp"]).subnet_of(inside), rule


def test_the_bastion_has_no_inbound_rule(every: "Synthesized") -> None:
    groups = every.resources("AWS::EC2::SecurityGroup", "network")
    (bastion,) = [name for name in groups if name.startswith("network/Bastion")]
    assert "SecurityGroupIngress" not in groups[bastion]["Properties"]
    for rule in every.resources("AWS::EC2::SecurityGroupIngress").values():
        assert bastion.partition("/")[2] not in json.dumps(rule["Properties"]["GroupId"])


def test_zones_are_those_of_the_environments_file(every: "Synthesized") -> None:
    zones = {subnet["Properties"]["AvailabilityZone"] for subnet in every.resources("AWS::EC2::Subnet").values()}
    assert zones == set(every.environment.availability_zones)


def test_no_deploy_replaces_a_host_unasked(every: "Synthesized") -> None:
    """CloudFormation resolves a parameter of the type SSM at each deploy, and a new image replaces its instance."""
    for part in every.parts():
        kinds = {parameter["Type"] for parameter in every.template(part).get("Parameters", {}).values()}
        assert not [kind for kind in kinds if "Image" in kind], part
    resources = every.template("network")["Resources"]
    instances = every.resources("AWS::EC2::Instance")
    assert instances
    for instance in instances.values():
        look_up, field = instance["Properties"]["ImageId"]["Fn::GetAtt"]
        assert (resources[look_up]["Type"], field) == ("Custom::AWS", "Parameter.Value")


@pytest.mark.parametrize(("nat", "parameters"), [("t4g.nano", {"arm64"}), ("t3.nano", {"arm64", "x86_64"})])
def test_each_host_gets_the_image_of_its_processor(
    new_app: Callable[[], cdk.App], nat: str, parameters: set[str]
) -> None:
    settings = read_environment("dev", EXAMPLE.config)
    network = msgspec.structs.replace(settings.postgresql.network, nat_instance_type=nat)
    stack = NetworkStack(new_app(), environment=msgspec.structs.replace(settings, network=network))
    resources = cdk.assertions.Template.from_stack(stack).to_json()["Resources"]
    calls = [resource["Properties"] for resource in resources.values() if resource["Type"] == "Custom::AWS"]
    assert {json.loads(call["Create"])["parameters"]["Name"] for call in calls} == {
        f"/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-{architecture}" for architecture in parameters
    }
    rights = json.dumps([resource for resource in resources.values() if resource["Type"] == "AWS::IAM::Policy"])
    for architecture in parameters:
        assert f":parameter/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-{architecture}" in rights


def test_a_raised_generation_looks_the_images_up_anew(new_app: Callable[[], cdk.App]) -> None:
    dev = read_environment("dev", EXAMPLE.config)
    raised = msgspec.structs.replace(dev, network=msgspec.structs.replace(dev.postgresql.network, image_generation=2))
    calls = []
    for settings in (dev, dev, raised):
        network = NetworkStack(new_app(), environment=settings)
        resources = cdk.assertions.Template.from_stack(network).to_json()["Resources"].values()
        (properties,) = [resource["Properties"] for resource in resources if resource["Type"] == "Custom::AWS"]
        assert properties["Create"] == properties["Update"]
        calls.append(properties["Create"])
    assert calls[0] == calls[1] != calls[2]


def test_nat_follows_the_environment(every: "Synthesized") -> None:
    gateways = every.resources("AWS::EC2::NatGateway")
    if every.environment.postgresql.network.nat == "instance":
        assert not gateways
        (instance,) = [name for name in every.resources("AWS::EC2::Instance") if "NatInstance" in name]
        assert every.resources("AWS::EC2::Instance")[instance]["Properties"]["NetworkInterfaces"][0][
            "AssociatePublicIpAddress"
        ]
    else:
        assert len(gateways) == len(every.environment.availability_zones)


@pytest.mark.parametrize("part", ["Source", "Sink"])
def test_connectors_are_configured_as_in_the_local_run(every: "Synthesized", part: str) -> None:
    render = {"Source": connectors.source_connector, "Sink": connectors.sink_connector}[part]
    # In the template, references stand for the addresses that CloudFormation fills in.
    settings = replace(every.capture, database_host="HOST", database_port="PORT", landing_bucket="BUCKET")
    name, config = render(every.contracts, settings)
    properties = every.template("connect")["Resources"][f"{part}Connector"]["Properties"]
    assert properties["Name"] == properties["Connector"]["connectorName"] == name
    rendered = dict(properties["Connector"]["connectorConfiguration"])
    for key, placeholder in (("database.hostname", "HOST"), ("database.port", "PORT"), ("s3.bucket", "BUCKET")):
        if key in rendered:
            assert "Fn::ImportValue" in rendered[key]
            rendered[key] = placeholder
    assert rendered == config


@pytest.mark.parametrize(
    ("file", "found"),
    [("config/absent.pem", "which is missing"), ("contracts/accounts.yaml", "which has no certificate")],
)
def test_a_certificate_that_is_none_is_refused(
    file: str, found: str, contracts: list[Contract], assets: Assets, new_app: Callable[[], cdk.App]
) -> None:
    dev = read_environment("dev", EXAMPLE.config)
    other = msgspec.structs.replace(
        dev, database=msgspec.structs.replace(dev.postgresql.database, root_certificate=file)
    )
    with pytest.raises(UserError, match=f"database.root_certificate: found {file}, {found}"):
        application.build(new_app(), other, contracts, example_content(contracts), assets)


def test_the_worker_is_configured_as_in_the_local_run(every: "Synthesized") -> None:
    worker = every.only("AWS::KafkaConnect::WorkerConfiguration")
    content = base64.b64decode(worker["PropertiesFileContent"]).decode()
    properties = dict(line.split("=", 1) for line in content.splitlines())
    assert properties == connectors.worker_properties(every.capture)


def test_plugin_and_worker_are_named_by_content_and_connectors_are_not(every: "Synthesized") -> None:
    for type_ in ("AWS::KafkaConnect::CustomPlugin", "AWS::KafkaConnect::WorkerConfiguration"):
        resource = every.only(type_)
        assert re.fullmatch(rf"headwater-{every.environment.name}-[0-9a-f]{{12}}", resource["Name"])
    names = {connector["Properties"]["Name"] for connector in every.resources("Custom::HeadwaterConnector").values()}
    assert names == {f"headwater-{every.environment.name}-{part}" for part in ("postgres", "landing")}


def test_a_changed_worker_gets_another_name(
    contracts: list[Contract], assets: Assets, new_app: Callable[[], cdk.App]
) -> None:
    names = set()
    for region in ("eu-central-1", "eu-west-1"):
        settings = read_environment("dev", EXAMPLE.config)
        moved = msgspec.structs.replace(settings, region=region, availability_zones=(f"{region}a", f"{region}b"))
        stack = application.build(new_app(), moved, contracts, example_content(contracts), assets).connect
        names.add(
            cdk.assertions.Template.from_stack(made(stack)).to_json()["Resources"]["Worker"]["Properties"]["Name"]
        )
    assert len(names) == 2


def test_no_template_holds_a_password(every: "Synthesized") -> None:
    for part in every.parts():
        for path, value in _leaves(every.template(part)["Resources"]):
            if re.search(r"password(?!_?length)", path.rpartition("/")[2], re.IGNORECASE) and isinstance(value, str):
                # A reference: Connect's config provider resolves it, or CloudFormation does.
                assert value.startswith("${secretsmanager:") or "{{resolve:secretsmanager:" in value, path


def test_each_topic_is_a_resource(every: "Synthesized") -> None:
    topics = {
        topic["Properties"]["TopicName"]: topic["Properties"]["PartitionCount"]
        for topic in every.resources("AWS::MSK::Topic", "stream_topics").values()
    }
    assert topics == {**connectors.topics(every.contracts, every.capture), OFFSET_TOPIC: 25}


def test_the_offset_topic_is_compacted(dev: "Synthesized") -> None:
    (topic,) = [
        resource["Properties"]
        for resource in dev.resources("AWS::MSK::Topic").values()
        if resource["Properties"]["TopicName"] == OFFSET_TOPIC
    ]
    assert json.loads(base64.b64decode(topic["Configs"])) == {"cleanup.policy": "compact"}


def test_kafka_takes_iam_over_tls_only(every: "Synthesized") -> None:
    cluster = every.only("AWS::MSK::Cluster")
    assert cluster["ClientAuthentication"] == {
        "Sasl": {"Iam": {"Enabled": True}},
        "Unauthenticated": {"Enabled": False},
    }
    assert cluster["EncryptionInfo"]["EncryptionInTransit"] == {"ClientBroker": "TLS", "InCluster": True}


def test_glue_columns_are_the_contracts(every: "Synthesized") -> None:
    tables = _glue_tables(every)
    for contract in lake_tables(every.contracts):
        table = tables[contract.table]
        columns = [(column["Name"], column["Type"]) for column in table["StorageDescriptor"]["Columns"]]
        partitions = [(column["Name"], column["Type"]) for column in table["PartitionKeys"]]
        expected = {name: type_.ddl() for name, type_ in contract.lake_columns()}
        assert [name for name, _ in columns[: len(HUDI_COLUMNS)]] == list(HUDI_COLUMNS)
        assert dict(columns[len(HUDI_COLUMNS) :] + partitions) == expected
        assert tuple(name for name, _ in partitions) == contract.partitions


def test_the_catalog_says_what_columns_mean(dev: "Synthesized") -> None:
    said = {
        (name, column["Name"]): column.get("Comment")
        for name, table in _glue_tables(dev).items()
        for column in table["StorageDescriptor"]["Columns"] + table["PartitionKeys"]
    }
    (discontinued,) = (contract.column("discontinued") for contract in dev.contracts if contract.has("discontinued"))
    assert said["products", "discontinued"] == said["products_current", "discontinued"] == discontinued.description
    assert said["products", "units_in_stock"] is None
    assert said["orders", "order_month"] == "The month of order_date, as 1996-07"
    assert said["orders", "_order"] == "What orders the row's changes: the greatest is the last"
    assert said["customers_changes", "_op"] != said["customers", "_op"] != said["customers_versions", "_op"]
    assert all(len(comment.encode()) <= 255 for comment in said.values() if comment is not None)


def test_spark_finds_the_same_schema_in_the_tables_properties(dev: "Synthesized") -> None:
    for contract in dev.contracts:
        table = _glue_tables(dev)[contract.table]
        properties = table["Parameters"]
        count = int(properties["spark.sql.sources.schema.numParts"])
        text = "".join(properties[f"spark.sql.sources.schema.part.{index}"] for index in range(count))
        schema = {field["name"]: _ddl(field["type"]) for field in json.loads(text)["fields"]}
        glue = table["StorageDescriptor"]["Columns"] + table["PartitionKeys"]
        assert schema == {column["Name"]: parse_type(column["Type"]).ddl() for column in glue}
        assert list(schema) == [column["Name"] for column in glue]


def test_views_hold_the_published_sql(dev: "Synthesized") -> None:
    tables = _glue_tables(dev)
    database = "headwater_dev"
    histories = [view for contract in dev.contracts for view in history_views(contract, database)]
    assert [view.name for view in histories] == ["customers_versions", "customers_history"]
    for expected in [*(published_view(contract, database) for contract in dev.contracts), *histories]:
        view = tables[expected.name]
        encoded = re.fullmatch(r"/\* Presto View: (\S+) \*/", view["ViewOriginalText"])
        assert encoded is not None
        definition = json.loads(base64.b64decode(encoded.group(1)))
        assert definition["originalSql"] == expected.sql
        assert [column["name"] for column in definition["columns"]] == [
            column["Name"] for column in view["StorageDescriptor"]["Columns"]
        ]
        assert view["ViewExpandedText"] == expected.in_spark()


def test_the_workgroup_has_the_statements_of_histories(every: "Synthesized") -> None:
    made = [made["Properties"] for made in every.resources("AWS::Athena::PreparedStatement", "lake").values()]
    statements = [
        statement
        for contract in every.contracts
        for statement in history_statements(contract, f"headwater_{every.environment.name}")
    ]
    assert {each["StatementName"]: each["QueryStatement"] for each in made} == {
        statement.name: statement.sql for statement in statements
    }
    assert {each["WorkGroup"] for each in made} == {every.only("AWS::Athena::WorkGroup")["Name"]}


def test_the_workgroup_has_the_named_queries(every: "Synthesized") -> None:
    database = f"headwater_{every.environment.name}"
    queries = [query["Properties"] for query in every.resources("AWS::Athena::NamedQuery", "lake").values()]
    saved = [query.named(every.contracts, database) for query in example_content(every.contracts).queries]
    assert saved
    expected = [*named_queries(every.contracts, database), *saved]
    assert [query["QueryString"] for query in queries] == [query.sql for query in expected]
    for query in queries:
        assert (query["Database"], query["WorkGroup"]) == (database, every.only("AWS::Athena::WorkGroup")["Name"])


def test_the_step_writes_every_contract_of_postgresql_with_the_deployed_files(every: "Synthesized") -> None:
    step = every.only("Custom::HeadwaterStep")
    arguments = step["Args"]
    assert arguments[:3] == ["spark-submit", "--deploy-mode", "client"]
    assert arguments.count("--contract") == len(of_database(every.contracts, POSTGRESQL)) < len(every.contracts)
    assert arguments[arguments.index("--database") + 1] == f"headwater_{every.environment.name}"
    jars = every.assets(arguments[arguments.index("--jars") + 1])
    assert [path.suffix for path in jars] == [".jar", ".jar"]


def test_every_node_unpacks_the_python_of_its_processor_and_the_step_runs_it(every: "Synthesized") -> None:
    cluster = every.only("AWS::EMR::Cluster")
    groups = [group for name, group in cluster["Instances"].items() if name.endswith("InstanceGroup")]
    architectures = {
        architecture
        for group in groups
        for architecture in INSTANCE_TYPES[group["InstanceType"]]["ProcessorInfo"]["SupportedArchitectures"]
    }
    (platform,) = {{"arm64": "aarch64", "x86_64": "x86_64"}[architecture] for architecture in architectures}
    (action,) = cluster["BootstrapActions"]
    script, (archive, region, folder) = action["ScriptBootstrapAction"]["Path"], action["ScriptBootstrapAction"]["Args"]
    assert every.asset(script).read_bytes() == (ROOT / "emr_bootstrap" / "unpack_python.sh").read_bytes()
    assert every.asset(archive).read_text() == f"python/python-{platform}.tar.gz"
    assert region == every.environment.region
    exported = [
        nested["ConfigurationProperties"]
        for configuration in cluster["Configurations"]
        if configuration["Classification"] == "spark-env"
        for nested in configuration["Configurations"]
    ]
    python = f"{folder}/bin/python"
    assert [(env["PYSPARK_PYTHON"], env["PYSPARK_DRIVER_PYTHON"]) for env in exported] == [(python, python)]
    arguments = every.only("Custom::HeadwaterStep")["Args"]
    for setting in ("spark.pyspark.python", "spark.pyspark.driver.python"):
        assert f"{setting}={python}" in arguments


def test_emr_may_make_the_role_of_spot_where_it_buys_spot(every_stack: "Synthesized") -> None:
    """Without it the first request for Spot in an account fails; EMR's own policy does not have the right."""
    markets = {
        nodes["Market"]
        for group, nodes in every_stack.only("AWS::EMR::Cluster")["Instances"].items()
        if group.endswith("InstanceGroup")
    }
    statements = json.dumps(list(every_stack.resources("AWS::IAM::Policy", "emr").values()))
    assert ("iam:CreateServiceLinkedRole" in statements) is ("SPOT" in markets)
    assert ("SPOT" in markets) is (every_stack.environment.postgresql.emr.market == "spot")


def test_what_runs_on_a_node_of_emr_fits_into_its_memory(every: "Synthesized") -> None:
    cluster, arguments = every.only("AWS::EMR::Cluster"), every.only("Custom::HeadwaterStep")["Args"]
    settings = {
        key: value
        for configuration in cluster["Configurations"]
        for key, value in configuration.get("ConfigurationProperties", {}).items()
    }
    settings |= dict(text.split("=", 1) for text in arguments if isinstance(text, str) and text.startswith("spark."))
    mib = {key: int(digits[1]) for key, value in settings.items() if (digits := re.fullmatch(r"(\d+)(m|MB)?", value))}
    memory = {
        group: INSTANCE_TYPES[nodes["InstanceType"]]["MemoryInfo"]["SizeInMiB"]
        for group, nodes in cluster["Instances"].items()
        if group.endswith("InstanceGroup")
    }
    trino = mib["query.max-memory-per-node"] + mib["memory.heap-headroom-per-node"] + node_memory.TRINO_PROCESS
    driver = mib["spark.driver.memory"] + node_memory.DRIVER_PROCESS
    yarn = mib["yarn.nodemanager.resource.memory-mb"]
    executor = mib["spark.executor.memory"] + mib["spark.executor.memoryOverhead"]
    on_primary = node_memory.PRIMARY_SYSTEM + driver + trino
    if "CoreInstanceGroup" in memory:
        assert node_memory.CORE_SYSTEM + yarn + trino <= memory["CoreInstanceGroup"]
    else:
        on_primary += node_memory.CORE_DAEMONS + yarn
    assert on_primary <= memory["MasterInstanceGroup"]
    # The application master: Spark's default of 512 MiB and the least overhead of 384, in YARN's steps.
    assert executor + 1024 <= yarn == mib["yarn.scheduler.maximum-allocation-mb"]


def test_the_writer_writes_no_event_log_and_runs_s3a_as_the_local_step_does(every: "Synthesized") -> None:
    arguments = every.only("Custom::HeadwaterStep")["Args"]
    assert "spark.eventLog.enabled=false" in arguments
    assert "spark.hadoop.fs.s3a.directory.marker.retention=keep" in arguments
    for job in every.resources("AWS::Glue::Job").values():
        conf = job["Properties"]["DefaultArguments"]["--conf"]
        assert "spark.hadoop.fs.s3a.directory.marker.retention=keep" in conf


def test_no_right_is_for_the_marks_of_emrfs(every: "Synthesized") -> None:
    for policy in every.resources("AWS::IAM::Policy").values():
        assert "_$folder$" not in json.dumps(policy)


def test_connectors_start_after_topics_database_rights_and_rules(every: "Synthesized") -> None:
    for needed_stack in (every.stacks.stream_topics, every.stacks.database):
        assert needed_stack in made(every.stacks.connect).dependencies
    needed = every.template("connect")["Resources"]["SourceConnector"]["DependsOn"]
    assert [name for name in needed if name.startswith("SourceRoleDefaultPolicy")]
    assert len([name for name in needed if name.startswith("SourceSecurityGroup")]) == 5


def test_the_connector_roles_have_no_right_of_the_other(dev: "Synthesized") -> None:
    policies = dev.resources("AWS::IAM::Policy", "connect")
    (source,) = [json.dumps(policy) for name, policy in policies.items() if "SourceRole" in name]
    (sink,) = [json.dumps(policy) for name, policy in policies.items() if "SinkRole" in name]
    assert "secretsmanager:GetSecretValue" in source
    assert "secretsmanager" not in sink
    assert "s3:PutObject" in sink
    assert "s3:" not in source


def test_data_is_encrypted_with_keys_of_the_environment(every: "Synthesized") -> None:
    database = every.only("AWS::RDS::DBCluster")
    assert database["StorageEncrypted"] is True
    assert "KmsKeyId" in database
    for name, bucket in every.resources("AWS::S3::Bucket").items():
        (rule,) = bucket["Properties"]["BucketEncryption"]["ServerSideEncryptionConfiguration"]
        algorithm = "AES256" if "Logs" in name else "aws:kms"
        assert rule["ServerSideEncryptionByDefault"]["SSEAlgorithm"] == algorithm
        assert all(bucket["Properties"]["PublicAccessBlockConfiguration"].values())


def test_the_first_rotation_finds_its_rules_and_an_instance_and_follows_the_content(every: "Synthesized") -> None:
    """The rotation begins at once, and the bootstrap logs in with the password that it would change."""
    ((name, function),) = every.resources("AWS::Serverless::Application", "database_content").items()
    assert "Content" in function["DependsOn"]
    schedules = [
        resource["Properties"] for resource in every.resources("AWS::SecretsManager::RotationSchedule").values()
    ]
    functions = [schedule["RotationLambdaARN"]["Fn::GetAtt"][0] for schedule in schedules]
    assert functions.count(name.partition("/")[2]) == 1
    # The whole stack of the cluster, with its instances and rules, is deployed before.
    assert every.stacks.database_content is not None
    assert every.stacks.database in every.stacks.database_content.dependencies
    (group,) = [name for name in every.resources("AWS::EC2::SecurityGroup", "database") if "Rotation" in name]
    for type_ in ("AWS::EC2::SecurityGroupEgress", "AWS::EC2::SecurityGroupIngress"):
        rules = json.dumps(list(every.resources(type_, "database").values()))
        assert group.partition("/")[2] in rules


def test_the_roles_passwords_rotate_a_month_after_the_content(every: "Synthesized") -> None:
    """At once would be while the connectors start, which read the secrets."""
    schedules = [
        resource
        for resource in every.resources("AWS::SecretsManager::RotationSchedule", "database_content").values()
        if "RoleRotation" in json.dumps(resource["Properties"]["RotationLambdaARN"])
    ]
    secrets = {json.dumps(schedule["Properties"]["SecretId"]) for schedule in schedules}
    assert len(secrets) == len(schedules) == len(ROLES)
    for schedule in schedules:
        assert schedule["Properties"]["RotationRules"] == {"AutomaticallyAfterDays": 30}
        assert schedule["Properties"]["RotateImmediatelyOnUpdate"] is False
        assert "Content" in schedule["DependsOn"]


def test_each_reader_is_an_instance_that_scales_like_the_writer(
    contracts: list[Contract], assets: Assets, new_app: Callable[[], cdk.App]
) -> None:
    settings = read_environment("dev", EXAMPLE.config)
    two = msgspec.structs.replace(settings, database=msgspec.structs.replace(settings.postgresql.database, readers=2))
    database = application.build(new_app(), two, contracts, example_content(contracts), assets).database
    assert database is not None
    resources = cdk.assertions.Template.from_stack(database).to_json()["Resources"].values()
    instances = [resource["Properties"] for resource in resources if resource["Type"] == "AWS::RDS::DBInstance"]
    assert [instance["DBInstanceClass"] for instance in instances] == ["db.serverless"] * 3
    assert (
        len([instance for instance in instances if instance["PromotionTier"] <= 1]) >= 2
    )  # the instance that may become the writer has its size


def test_every_retention_has_its_name_in_cdk(new_app: Callable[[], cdk.App]) -> None:
    stack = cdk.Stack(new_app(), "logs")
    for days in environment.LOG_DAYS:
        logs.LogGroup(stack, f"For{days}Days", retention=log_retention(days))
    groups = cdk.assertions.Template.from_stack(stack).to_json()["Resources"].values()
    assert [group["Properties"]["RetentionInDays"] for group in groups] == list(environment.LOG_DAYS)


def test_aurora_replicates_logically_and_takes_tls_only(every: "Synthesized") -> None:
    group = every.only("AWS::RDS::DBClusterParameterGroup")
    assert group["Family"] == "aurora-postgresql16"
    assert group["Parameters"] == {"rds.logical_replication": "1", "rds.force_ssl": "1"}


def test_each_role_has_a_secret_with_its_name(every: "Synthesized") -> None:
    prefix = f"headwater/{every.environment.name}"
    secrets = {
        secret["Properties"]["Name"]: json.loads(secret["Properties"]["GenerateSecretString"]["SecretStringTemplate"])
        for secret in every.resources("AWS::SecretsManager::Secret").values()
    }
    assert secrets == {
        f"{prefix}/owner": {"username": "headwater_owner"},
        f"{prefix}/cdc": {"username": "headwater_cdc"},
        f"{prefix}/app": {"username": "headwater_app"},
        f"{prefix}/reader": {"username": "headwater_reader"},
        # The key of forgotten keys' hashes, a field of its own.
        f"{prefix}/forget": {},
    }


def test_data_outlives_its_stack_unless_both_settings_say_otherwise(every: "Synthesized") -> None:
    policies = {
        resource["DeletionPolicy"]
        for type_ in DATA_TYPES
        for name, resource in every.resources(type_).items()
        if name.partition("/")[0] not in ("emr", "emr_writer", "monitoring")
    }
    assert policies == ({"Delete"} if every.environment.deletes_data else {"RetainExceptOnCreate", "Snapshot"})


def test_one_setting_alone_deletes_nothing(
    contracts: list[Contract], assets: Assets, new_app: Callable[[], cdk.App]
) -> None:
    settings = read_environment("dev", EXAMPLE.config)
    half = msgspec.structs.replace(settings, data=msgspec.structs.replace(settings.data, delete_with_stacks_of=None))
    lake = application.build(new_app(), half, contracts, example_content(contracts), assets).lake
    resources = cdk.assertions.Template.from_stack(lake).to_json()["Resources"].values()
    assert {resource["DeletionPolicy"] for resource in resources if resource["Type"] == "AWS::S3::Bucket"} == {
        "RetainExceptOnCreate"
    }


@pytest.mark.parametrize("missing", ["headwater.zip", "plugins/headwater-connect.zip"])
def test_an_absent_asset_is_named(
    contracts: list[Contract], assets: Assets, new_app: Callable[[], cdk.App], tmp_path: Path, missing: str
) -> None:
    build = tmp_path / "build"
    for path in assets.build.rglob("*"):
        relative = path.relative_to(assets.build)
        if path.is_file() and str(relative) != missing:
            (build / relative).parent.mkdir(parents=True, exist_ok=True)
            (build / relative).write_bytes(path.read_bytes())
    settings = read_environment("dev", EXAMPLE.config)
    with pytest.raises(UserError, match=rf"{re.escape(missing)}: found no file.*headwater dev assets"):
        application.build(new_app(), settings, contracts, example_content(contracts), Assets(ROOT, build, assets.lake))


def test_the_plugin_of_msk_connect_has_both_plugins_unchanged(assets: Assets) -> None:
    whole = assets.connect_plugin()
    first = whole.read_bytes()
    with zipfile.ZipFile(whole) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == {
            f"{name}/{name}.jar": f"jar of {name}".encode() for name in ("debezium-postgres", "headwater-connect")
        }
    assert assets.connect_plugin().read_bytes() == first


def _glue_tables(synthesized: "Synthesized") -> dict[str, dict[str, Any]]:
    inputs = [
        resource["Properties"]["TableInput"] for resource in synthesized.resources("AWS::Glue::Table", "lake").values()
    ]
    return {table["Name"]: table for table in inputs}


def _ddl(spark: Any) -> str:
    """A type of Spark's JSON schemas as DDL."""
    if isinstance(spark, str):
        return {"integer": "int", "long": "bigint"}.get(spark, spark)
    if spark["type"] == "array":
        return f"array<{_ddl(spark['elementType'])}>"
    return "struct<" + ",".join(f"{field['name']}:{_ddl(field['type'])}" for field in spark["fields"]) + ">"


def _leaves(node: Any, path: str = "") -> list[tuple[str, Any]]:
    if isinstance(node, dict):
        return [leaf for key, value in node.items() for leaf in _leaves(value, f"{path}/{key}")]
    if isinstance(node, list):
        return [leaf for value in node for leaf in _leaves(value, path)]
    return [(path, node)]
