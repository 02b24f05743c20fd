"""What cdk-nag does not check: rights, trust, encryption and ways in, over all stacks of every environment."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import aws_cdk as cdk
import msgspec
import pytest
from aws_cdk.assertions import Template
from cryptography import x509
from moto.ec2.models.instance_types import INSTANCE_TYPES

from headwater.contract.model import DYNAMODB, Contract, Source, lake_tables, of_database
from headwater.environment import model as environment
from headwater.environment.rules import read_environment
from headwater.lake_folder import EXAMPLE
from stacks import application
from stacks.assets import Assets
from stacks.lake import LakeStack
from tests.synth.conftest import ANALYST, EXISTING, WITH_BI
from tests.synth.deployed import deployment
from tests.synth.example import example_content

if TYPE_CHECKING:
    from tests.synth.conftest import Synthesized

Properties = Mapping[str, Any]

# Actions for which the Service Authorization Reference names no resource, or only one that does not exist yet.
WITHOUT_RESOURCE = {
    **dict.fromkeys(
        ("athena:ListDataCatalogs", "athena:ListEngineVersions", "athena:ListWorkGroups"),
        "Athena's console asks this of who queries",
    ),
    "cloudwatch:PutMetricData": "its condition confines it to one namespace",
    **dict.fromkeys(
        ("ec2:DescribeSecurityGroups", "ec2:DescribeSubnets", "ec2:DescribeVpcs"), "MSK Connect asks this of its caller"
    ),
    "kafka:GetBootstrapBrokers": "only the brokers' addresses, which let nobody in",
    **dict.fromkeys(
        ("kafkaconnect:CreateConnector", "kafkaconnect:ListConnectors"), "the connector has no ARN before it is there"
    ),
    **dict.fromkeys(
        (
            "logs:CreateLogDelivery",
            "logs:DeleteLogDelivery",
            "logs:DescribeLogGroups",
            "logs:DescribeResourcePolicies",
            "logs:GetLogDelivery",
            "logs:ListLogDeliveries",
            "logs:PutResourcePolicy",
            "logs:UpdateLogDelivery",
        ),
        "a service that delivers logs asks this of its caller",
    ),
    **dict.fromkeys(
        (
            "ec2messages:AcknowledgeMessage",
            "ec2messages:DeleteMessage",
            "ec2messages:FailMessage",
            "ec2messages:GetEndpoint",
            "ec2messages:GetMessages",
            "ec2messages:SendReply",
            "ssm:UpdateInstanceInformation",
            "ssmmessages:CreateControlChannel",
            "ssmmessages:CreateDataChannel",
            "ssmmessages:OpenControlChannel",
            "ssmmessages:OpenDataChannel",
        ),
        "Session Manager's agent speaks for its own instance only",
    ),
    "secretsmanager:GetRandomPassword": "it makes a text and keeps nothing",
}
# What IAM takes of the policies that are part of a role together, and of one that stands by itself.
MOST_CHARACTERS = {"AWS::IAM::Policy": 10_240, "AWS::IAM::ManagedPolicy": 6_144}


class Open(NamedTuple):
    """Why a policy admits a service without asking on whose behalf it acts, and the document of AWS's that says so."""

    why: str
    document: str


_PASSED = Open(
    "iam:PassRole hands a role to a service of the role's own account only",
    "https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles_use_passrole.html",
)
# The service principals that a policy on a resource of a type admits without aws:SourceArn and aws:SourceAccount.
WITHOUT_SOURCE = {
    ("AWS::IAM::Role", "ec2.amazonaws.com"): _PASSED,
    ("AWS::IAM::Role", "lambda.amazonaws.com"): _PASSED,
    ("AWS::IAM::Role", "quicksight.amazonaws.com"): Open(
        "QuickSight's page shows the trust without a condition, and it takes a role by iam:PassRole",
        "https://docs.aws.amazon.com/quicksight/latest/user/security-create-iam-role-use.html",
    ),
    ("AWS::KMS::Key", "events.amazonaws.com"): Open(
        "EventBridge supports neither key for encrypted topics",
        "https://docs.aws.amazon.com/sns/latest/dg/sns-key-management.html#compatibility-with-aws-services",
    ),
    ("AWS::KMS::Key", "logs.eu-central-1.amazonaws.com"): Open(
        "CloudWatch Logs is asked for the log group instead, as the context of its encryption",
        "https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/encrypt-log-data-kms.html",
    ),
    ("AWS::SNS::TopicPolicy", "events.amazonaws.com"): Open(
        "EventBridge supports no condition in a topic's policy",
        "https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-use-resource-based.html#eb-sns-permissions",
    ),
}
# Services whose documentation names no aws:SourceArn for these uses.
TELL_NO_RESOURCE = {"glue.amazonaws.com"}


def _key_of(name: str) -> Callable[[Properties], bool]:
    return lambda properties: isinstance(properties.get(name), dict)


def _bucket_is_encrypted(properties: Properties) -> bool:
    (rule,) = properties["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    default = rule["ServerSideEncryptionByDefault"]
    # S3 delivers access logs only into a bucket that its own key encrypts, and such a bucket logs nothing itself.
    logs = "LoggingConfiguration" not in properties
    return bool(default["SSEAlgorithm"] == "AES256" if logs else "KMSMasterKeyID" in default)


def _disks_are_encrypted(properties: Properties) -> bool:
    return all(device["Ebs"]["Encrypted"] for device in properties["BlockDeviceMappings"])


def _emr_is_encrypted(properties: Properties) -> bool:
    encryption = properties["SecurityConfiguration"]["EncryptionConfiguration"]
    at_rest = encryption["AtRestEncryptionConfiguration"]
    disks, objects = at_rest["LocalDiskEncryptionConfiguration"], at_rest["S3EncryptionConfiguration"]
    return bool(
        encryption["EnableAtRestEncryption"]
        and (disks["EncryptionKeyProviderType"], disks["EnableEbsEncryption"]) == ("AwsKms", True)
        and objects["EncryptionMode"] == "SSE-KMS"
        and isinstance(disks["AwsKmsKey"], dict)
        and isinstance(objects["AwsKmsKey"], dict)
    )


def _glue_is_encrypted(properties: Properties) -> bool:
    parts = properties["EncryptionConfiguration"]
    modes = {
        parts["CloudWatchEncryption"]["CloudWatchEncryptionMode"],
        parts["JobBookmarksEncryption"]["JobBookmarksEncryptionMode"],
        *(encryption["S3EncryptionMode"] for encryption in parts["S3Encryptions"]),
    }
    return modes == {"SSE-KMS", "CSE-KMS"}


def _athena_is_encrypted(properties: Properties) -> bool:
    settings = properties["WorkGroupConfiguration"]
    encryption = settings["ResultConfiguration"]["EncryptionConfiguration"]
    return bool(settings["EnforceWorkGroupConfiguration"] and encryption["EncryptionOption"] == "SSE_KMS")


# How each type of resource that holds data shows that a key of the environment encrypts it.
AT_REST: dict[str, Callable[[Properties], bool]] = {
    "AWS::Athena::WorkGroup": _athena_is_encrypted,
    "AWS::DynamoDB::GlobalTable": lambda properties: all(
        isinstance(replica["SSESpecification"]["KMSMasterKeyId"], dict) for replica in properties["Replicas"]
    ),
    "AWS::EC2::Instance": _disks_are_encrypted,
    "AWS::EMR::SecurityConfiguration": _emr_is_encrypted,
    "AWS::EMR::Cluster": _key_of("SecurityConfiguration"),
    "AWS::Glue::Job": _key_of("SecurityConfiguration"),
    "AWS::Glue::SecurityConfiguration": _glue_is_encrypted,
    "AWS::KMS::Key": lambda properties: properties["EnableKeyRotation"] is True,
    "AWS::Kinesis::Stream": lambda properties: isinstance(properties["StreamEncryption"]["KeyId"], dict),
    "AWS::MSK::Cluster": lambda properties: isinstance(
        properties["EncryptionInfo"]["EncryptionAtRest"]["DataVolumeKMSKeyId"], dict
    ),
    "AWS::RDS::DBCluster": lambda properties: properties["StorageEncrypted"] and _key_of("KmsKeyId")(properties),
    "AWS::S3::Bucket": _bucket_is_encrypted,
    "AWS::SNS::Topic": _key_of("KmsMasterKeyId"),
    "AWS::SQS::Queue": _key_of("KmsMasterKeyId"),
    "AWS::SecretsManager::Secret": _key_of("KmsKeyId"),
}
# Types that hold no data of their own, or whose data the resource that they belong to encrypts. For log groups
# CloudWatch's own key is enough, because rows are logged nowhere.
NOTHING_AT_REST = re.compile(
    r"Custom::\w+|AWS::("
    r"Budgets::Budget|CloudFormation::CustomResource|CloudWatch::(Alarm|Dashboard)|"
    r"EC2::(EIP|FlowLog|InternetGateway|LaunchTemplate|NatGateway|Route|RouteTable|SecurityGroup(In|E)gress|"
    r"SecurityGroup|Subnet|SubnetRouteTableAssociation|VPC|VPCEndpoint|VPCGatewayAttachment|VPCPeeringConnection)|"
    r"Athena::(NamedQuery|PreparedStatement)|Events::Rule|Glue::(Database|Table|Connection)|IAM::\w+|KMS::Alias|"
    r"KafkaConnect::\w+|"
    r"Lambda::\w+|Logs::(LogGroup|MetricFilter)|MSK::(Configuration|Topic)|QuickSight::\w+|"
    r"RDS::(DBClusterParameterGroup|DBInstance|DBSubnetGroup)|S3::BucketPolicy|SNS::(Subscription|TopicPolicy)|"
    r"SQS::QueuePolicy|SecretsManager::(ResourcePolicy|RotationSchedule|SecretTargetAttachment)|"
    # The parameter holds a cluster's id.
    r"SSM::Parameter|Serverless::Application|StepFunctions::StateMachine)"
)


def test_a_key_encrypts_everything_that_holds_data(every_stack: "Synthesized") -> None:
    unknown, plain = set(), []
    for name, resource in _resources(every_stack):
        check = AT_REST.get(resource["Type"])
        if check is not None and not check(resource["Properties"]):
            plain.append(name)
        elif check is None and not NOTHING_AT_REST.fullmatch(resource["Type"]):
            unknown.add(resource["Type"])
    assert plain == []
    assert unknown == set(), "say in this file how each of these shows its encryption, or that it holds no data"


@pytest.mark.parametrize(
    ("type_", "properties"),
    [
        ("AWS::DynamoDB::GlobalTable", {"Replicas": [{"SSESpecification": {"KMSMasterKeyId": "alias/aws/dynamodb"}}]}),
        ("AWS::EC2::Instance", {"BlockDeviceMappings": [{"Ebs": {"Encrypted": False}}]}),
        ("AWS::Kinesis::Stream", {"StreamEncryption": {"KeyId": "alias/aws/kinesis"}}),
        ("AWS::KMS::Key", {"EnableKeyRotation": False}),
        ("AWS::SNS::Topic", {}),
        ("AWS::RDS::DBCluster", {"StorageEncrypted": True}),
        (
            "AWS::S3::Bucket",
            {
                "LoggingConfiguration": {},
                "BucketEncryption": {
                    "ServerSideEncryptionConfiguration": [{"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}]
                },
            },
        ),
    ],
)
def test_what_no_key_of_the_environment_encrypts_is_seen(type_: str, properties: Properties) -> None:
    assert not AT_REST[type_](properties)


def test_a_right_on_everything_is_one_that_has_no_resource(every_stack: "Synthesized") -> None:
    mighty = [
        f"{name}: {action}"
        for name, statement in _allowed(every_stack)
        if "*" in _list(statement.get("Resource")) or "NotResource" in statement
        for action in _list(statement.get("Action")) or ["everything but some"]
        if action not in WITHOUT_RESOURCE
    ]
    assert mighty == []


def test_no_role_may_do_every_action_that_begins_alike(every_stack: "Synthesized") -> None:
    assert [
        (name, action)
        for name, statement in _allowed(every_stack)
        for action in _list(statement["Action"])
        if "*" in action
    ] == []


def test_a_key_is_ruled_by_its_own_account(every_stack: "Synthesized") -> None:
    """``kms:*`` is for the account itself, which keeps its key by it; anyone else gets actions by name."""
    for name, key in every_stack.resources("AWS::KMS::Key").items():
        for statement in key["Properties"]["KeyPolicy"]["Statement"]:
            principal = json.dumps(statement["Principal"])
            assert '"*"' not in principal, name
            if "kms:*" in _list(statement["Action"]):
                assert ":root" in principal, name


def test_only_those_who_may_query_take_a_role_by_themselves(every_stack: "Synthesized") -> None:
    trusted = [
        (name, kind, principal)
        for name, role in every_stack.resources("AWS::IAM::Role").items()
        for statement in role["Properties"]["AssumeRolePolicyDocument"]["Statement"]
        for kind, principals in statement["Principal"].items()
        for principal in _list(principals)
        if kind != "Service"
    ]
    assert {principal for _, _, principal in trusted} == set(every_stack.environment.lake.query_principals)
    assert all(kind == "AWS" and name.startswith("lake/QueryRole") for name, kind, _ in trusted)


def test_each_service_admitted_for_anybody_has_its_document(synthesize: Callable[[str], "Synthesized"]) -> None:
    names = [*environment.on_aws(EXAMPLE.config), WITH_BI, EXISTING]
    found = {admitted for name in names for admitted in admitted_for_anybody(synthesize(name))}
    assert found == set(WITHOUT_SOURCE), "name the document that says why, or take the entry away"


def test_every_document_is_one_of_awss() -> None:
    assert all(each.document.startswith("https://docs.aws.amazon.com/") for each in WITHOUT_SOURCE.values())


@pytest.mark.parametrize(
    ("condition", "admitted"),
    [
        ({}, True),
        ({"StringEquals": {"aws:PrincipalOrgID": "o-1"}}, True),
        # Holds too if the key is absent.
        ({"StringEqualsIfExists": {"aws:SourceAccount": "123456789012"}}, True),
        ({"ForAllValues:StringEquals": {"aws:SourceAccount": "123456789012"}}, True),
        ({"Null": {"aws:SourceAccount": "true"}}, True),
        # Holds for every other account.
        ({"StringNotEquals": {"aws:SourceAccount": "123456789012"}}, True),
        ({"StringEquals": {"AWS:SourceAccount": "123456789012"}}, False),
        ({"ArnLike": {"aws:SourceArn": "arn:aws:events:eu-central-1:123456789012:rule/*"}}, False),
    ],
)
def test_a_service_is_admitted_for_anybody_unless_asked(condition: Properties, admitted: bool) -> None:
    statement = {"Effect": "Allow", "Principal": {"Service": ["sns.amazonaws.com"]}, "Condition": condition}
    assert list(_admitted({"Policy": {"Statement": [statement]}})) == (["sns.amazonaws.com"] if admitted else [])


def test_who_queries_reads_tables_and_results_and_nothing_beside_them(every_stack: "Synthesized") -> None:
    rights = {
        (action, re.sub(r"^.*}/", "", _text(arn)))
        for name, statement in _allowed(every_stack)
        if name.startswith("lake/QueryRole")
        for action in _list(statement["Action"])
        for arn in _list(statement["Resource"])
    }
    if not every_stack.environment.lake.query_principals:
        assert rights == set()
        return
    tables = {f"lake/{contract.table}{end}" for contract in lake_tables(every_stack.contracts) for end in ("", "/*")}
    assert {key for action, key in rights if action == "s3:GetObject"} == tables | {"results/*"}
    others = {action for action, _ in rights if not re.search(r":(Get|List|BatchGet)", action)}
    assert others == {
        *("athena:StartQueryExecution", "athena:StopQueryExecution", "kms:Decrypt", "kms:GenerateDataKey"),
        *("s3:AbortMultipartUpload", "s3:PutObject"),
    }
    assert {key for action, key in rights if action == "s3:PutObject"} == {"results/*"}


def test_policies_have_room_for_many_tables(contracts: list[Contract], new_app: Callable[[], cdk.App]) -> None:
    (products,) = (contract for contract in contracts if contract.table == "products")
    many = [
        replace(products, table=f"a_table_of_many_{number}", source=Source("postgresql", f"shop.table_{number}"))
        for number in range(100)
    ]
    settings = read_environment("dev", EXAMPLE.config)
    settings = msgspec.structs.replace(
        settings, lake=msgspec.structs.replace(settings.lake, query_principals=(ANALYST,))
    )
    template = Template.from_stack(LakeStack(new_app(), environment=settings, contracts=many, queries=())).to_json()
    sizes = [
        (resource["Type"], _size(resource["Properties"]["PolicyDocument"]))
        for resource in template["Resources"].values()
        if resource["Type"] in MOST_CHARACTERS
    ]
    assert {type_ for type_, _ in sizes} == set(MOST_CHARACTERS)
    assert [(type_, size) for type_, size in sizes if size > MOST_CHARACTERS[type_]] == []


def test_roles_have_room_for_twenty_five_tables(
    contracts: list[Contract],
    assets: Assets,
    new_app: Callable[[], cdk.App],
) -> None:
    """IAM counts all inline policies of a role together, whichever stack they are of."""
    (products,) = (contract for contract in contracts if contract.table == "products")
    many = [
        replace(products, table=f"a_table_of_many_{number}", source=Source("postgresql", f"shop.table_{number}"))
        for number in range(25)
    ]

    app = new_app()
    application.build(
        app,
        read_environment("dev", EXAMPLE.config),
        [*many, *of_database(contracts, DYNAMODB)],
        example_content([*many, *of_database(contracts, DYNAMODB)]),
        assets,
    )
    inline: Counter[str] = Counter()
    managed: Counter[str] = Counter()
    for stack in app.synth().stacks:
        for resource in stack.template["Resources"].values():
            for role in resource["Properties"].get("Roles", []) if resource["Type"] in MOST_CHARACTERS else []:
                # Another stack's is imported by the name of its export, which begins with its logical id.
                found = re.search(r'(?:"Ref": "|ExportsOutputRef)(\w+?[0-9A-F]{8})', json.dumps(role))
                assert found is not None, role
                name = found[1]
                size = _size(resource["Properties"]["PolicyDocument"])
                assert size <= MOST_CHARACTERS[resource["Type"]]
                if resource["Type"] == "AWS::IAM::Policy":
                    inline[name] += size
                else:
                    managed[name] += 1
    assert max(managed.values()) <= 10
    assert max(inline.values()) <= 10_240, inline


@pytest.mark.parametrize(
    ("service", "resources"),
    [
        # https://docs.aws.amazon.com/vpc/latest/userguide/flow-logs-iam-role.html
        ("vpc-flow-logs.amazonaws.com", "arn:aws:ec2:{region}:{account}:vpc-flow-log/*"),
        # https://docs.aws.amazon.com/sns/latest/dg/sns-access-policy-use-cases.html
        ("cloudwatch.amazonaws.com", "arn:aws:cloudwatch:{region}:{account}:alarm:headwater-{environment}-*"),
        # https://docs.aws.amazon.com/cost-management/latest/userguide/budgets-sns-policy.html
        ("budgets.amazonaws.com", "arn:aws:budgets::{account}:*"),
        # https://docs.aws.amazon.com/msk/latest/developerguide/msk-connect-service-execution-role.html
        (
            "kafkaconnect.amazonaws.com",
            "arn:aws:kafkaconnect:{region}:{account}:connector/headwater-{environment}-postgres/* "
            "arn:aws:kafkaconnect:{region}:{account}:connector/headwater-{environment}-landing/*",
        ),
        # https://docs.aws.amazon.com/emr/latest/ManagementGuide/emr-iam-role.html
        ("elasticmapreduce.amazonaws.com", "arn:aws:elasticmapreduce:{region}:{account}:*"),
        # https://docs.aws.amazon.com/step-functions/latest/dg/procedure-create-iam-role.html
        ("states.amazonaws.com", "arn:aws:states:{region}:{account}:stateMachine:*"),
    ],
)
def test_a_service_that_tells_for_which_resource_it_acts_is_asked_for_it(
    every: "Synthesized", service: str, resources: str
) -> None:
    expected = resources.format(
        region=every.environment.region,
        account=every.environment.account or "{AWS::AccountId}",
        environment=every.environment.name,
    )
    named = []
    for _, resource in _resources(every):
        for field in ("AssumeRolePolicyDocument", "KeyPolicy", "PolicyDocument"):
            for statement in resource["Properties"].get(field, {}).get("Statement", ()):
                if "SourceAccount" in json.dumps(statement) and service in json.dumps(statement["Principal"]):
                    named.append(statement["Condition"].get("ArnLike", {}).get("aws:SourceArn"))
    assert named
    assert {_text(arn) for arn in named} == set(expected.split())


def test_a_service_that_is_asked_for_the_account_is_asked_for_the_resource(every: "Synthesized") -> None:
    unasked = {
        statement["Principal"]["Service"]
        for _, resource in _resources(every)
        for field in ("AssumeRolePolicyDocument", "KeyPolicy", "PolicyDocument")
        for statement in resource["Properties"].get(field, {}).get("Statement", ())
        if "SourceAccount" in json.dumps(statement) and "aws:SourceArn" not in json.dumps(statement)
    }
    assert unasked == TELL_NO_RESOURCE


def test_a_password_is_the_only_way_into_the_database(every: "Synthesized") -> None:
    """No role connects by IAM, so the way is closed."""
    assert every.only("AWS::RDS::DBCluster").get("EnableIAMDatabaseAuthentication", False) is False
    for _, statement in _allowed(every):
        assert "rds-db:connect" not in _list(statement["Action"])


def test_buckets_are_closed_to_the_public_take_tls_only_and_log_who_comes(every_stack: "Synthesized") -> None:
    policies = [resource["Properties"] for resource in every_stack.resources("AWS::S3::BucketPolicy").values()]
    buckets = every_stack.resources("AWS::S3::Bucket")
    log_buckets = [name for name, resource in buckets.items() if "LoggingConfiguration" not in resource["Properties"]]
    assert len(log_buckets) == 1
    for name, bucket in buckets.items():
        public = bucket["Properties"]["PublicAccessBlockConfiguration"]
        assert public == dict.fromkeys(public, True), name
        assert len(public) == 4, name
        assert bucket["Properties"]["OwnershipControls"] == {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}
        (policy,) = [policy for policy in policies if policy["Bucket"] == {"Ref": name.partition("/")[2]}]
        denied = [
            statement["Condition"]
            for statement in policy["PolicyDocument"]["Statement"]
            if (statement["Effect"], statement["Action"], statement["Principal"]) == ("Deny", "s3:*", {"AWS": "*"})
        ]
        assert {"Bool": {"aws:SecureTransport": "false"}} in denied, name
        assert {"NumericLessThan": {"s3:TlsVersion": 1.2}} in denied, name


def test_rules_are_described_in_the_characters_that_ec2_takes(every_stack: "Synthesized") -> None:
    rules: list[dict[str, Any]] = []
    for _, each in _resources(every_stack):
        if each["Type"] == "AWS::EC2::SecurityGroup":
            properties = each["Properties"]
            rules += [*properties.get("SecurityGroupIngress", []), *properties.get("SecurityGroupEgress", [])]
            rules.append({"Description": properties["GroupDescription"]})
        elif each["Type"] in ("AWS::EC2::SecurityGroupIngress", "AWS::EC2::SecurityGroupEgress"):
            rules.append(each["Properties"])
    texts = {rule["Description"] for rule in rules if isinstance(rule.get("Description"), str)}
    assert len(texts) > 5
    assert [text for text in texts if not re.fullmatch(r"[A-Za-z0-9 ._:/()#,@\[\]+=&;{}!$*-]{0,255}", text)] == []


def test_only_a_nat_instance_lets_every_protocol_out(every_stack: "Synthesized") -> None:
    free = [group for group, rules in _outbound(every_stack).items() if ("-1", "0.0.0.0/0") in rules]
    assert [group for group in free if ".VpcNatSecurityGroup" not in group] == []


def test_emr_lets_out_what_its_guide_asks_for(every_stack: "Synthesized") -> None:
    """https://docs.aws.amazon.com/emr/latest/ManagementGuide/emr-man-sec-groups.html, private subnets, 5.30 to 7.x."""
    found = {
        group: rules for group, rules in _outbound(every_stack).items() if re.match(r"headwater-\w+-emr[.]", group)
    }
    primary, core, service = (
        next(group for group in found if f".{part}SecurityGroup" in group) for part in ("Primary", "Core", "Service")
    )
    within = {(protocol, group) for protocol in ("icmp", "tcp", "udp") for group in (primary, core)}
    nodes = {("tcp 443", "0.0.0.0/0"), ("tcp 9443", service), *within}
    assert found == {primary: nodes, core: nodes, service: {("tcp 8443", primary), ("tcp 8443", core)}}


def test_instances_answer_to_version_2_of_the_metadata_service_only(every_stack: "Synthesized") -> None:
    templates = every_stack.resources("AWS::EC2::LaunchTemplate")
    safe = {
        template["Properties"]["LaunchTemplateName"]
        for template in templates.values()
        if template["Properties"]["LaunchTemplateData"]["MetadataOptions"]["HttpTokens"] == "required"
    }
    instances = every_stack.resources("AWS::EC2::Instance")
    assert {instance["Properties"]["LaunchTemplate"]["LaunchTemplateName"] for instance in instances.values()} == safe
    emr = every_stack.only("AWS::EMR::SecurityConfiguration")
    metadata = emr["SecurityConfiguration"]["InstanceMetadataServiceConfiguration"]
    assert metadata["MinimumInstanceMetadataServiceVersion"] == 2


def test_nothing_but_a_nat_has_a_public_address(every_stack: "Synthesized") -> None:
    for name, subnet in every_stack.resources("AWS::EC2::Subnet").items():
        assert subnet["Properties"].get("MapPublicIpOnLaunch", False) is False, name
    public = [
        name
        for name, instance in every_stack.resources("AWS::EC2::Instance").items()
        if any(
            interface.get("AssociatePublicIpAddress")
            for interface in instance["Properties"].get("NetworkInterfaces", ())
        )
    ]
    assert all("NatInstance" in name for name in public)
    for name, instance in every_stack.resources("AWS::RDS::DBInstance").items():
        assert instance["Properties"].get("PubliclyAccessible", False) is False, name
    brokers = every_stack.only("AWS::MSK::Cluster")
    assert "ConnectivityInfo" not in brokers["BrokerNodeGroupInfo"]


def test_the_source_connector_trusts_the_authority_of_every_instance(every: "Synthesized") -> None:
    instances = every.resources("AWS::RDS::DBInstance").values()
    assert {instance["Properties"].get("CACertificateIdentifier") for instance in instances} == {"rds-ca-rsa2048-g1"}
    (source,) = (
        resource["Properties"]["Connector"]["connectorConfiguration"]
        for name, resource in every.resources("Custom::HeadwaterConnector").items()
        if "Source" in name
    )
    assert source["database.sslmode"] == "verify-full"
    root = x509.load_pem_x509_certificate(source["driver.sslfactoryarg"].encode())
    [name] = root.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    assert name.value == f"Amazon RDS {every.environment.region} Root CA RSA2048 G1"


def test_traffic_between_emr_nodes_is_encrypted_by_their_network_cards(every: "Synthesized") -> None:
    """This stands in for EMR's own encryption in transit, which wants certificates with their private key in S3."""
    cluster = every.only("AWS::EMR::Cluster")
    instances = cluster["Instances"]
    types = [group["InstanceType"] for name, group in instances.items() if name.endswith("InstanceGroup")]
    assert all(
        INSTANCE_TYPES[instance_type]["NetworkInfo"]["EncryptionInTransitSupported"] for instance_type in types
    ), types


def _outbound(synthesized: "Synthesized") -> dict[str, set[tuple[str, str]]]:
    """The outbound rules of each security group: protocol, with its port if that is one, and network or group."""
    deployed = deployment(synthesized)
    everything = {"IpProtocol": "-1", "CidrIp": "0.0.0.0/0"}
    rules: dict[str, list[Properties]] = {
        group.key: list(group.properties.get("SecurityGroupEgress", ()))
        for group in deployed.resources("AWS::EC2::SecurityGroup")
    }
    for rule in deployed.resources("AWS::EC2::SecurityGroupEgress"):
        rules[_group(rule.properties["GroupId"])].append(rule.properties)
    # EC2 gives a group for which the template has no rule one that lets everything out.
    return {group: {_protocol_and_peer(rule) for rule in each or [everything]} for group, each in rules.items()}


def _protocol_and_peer(rule: Properties) -> tuple[str, str]:
    protocol, first, last = (rule.get(name) for name in ("IpProtocol", "FromPort", "ToPort"))
    named = f"{protocol} {first}" if first == last and protocol in ("tcp", "udp") else str(protocol)
    return named, rule["CidrIp"] if "CidrIp" in rule else _group(rule["DestinationSecurityGroupId"])


def _group(reference: str) -> str:
    """The key of the group that a placeholder stands for."""
    return reference.removeprefix("${").removesuffix(".GroupId}")


def _resources(synthesized: "Synthesized") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every resource with its place. Its properties are an empty mapping if the template has none."""
    for part in synthesized.parts():
        for name, resource in synthesized.template(part)["Resources"].items():
            yield f"{part}/{name}", {"Properties": {}, **resource}


def admitted_for_anybody(synthesized: "Synthesized") -> Iterator[tuple[str, str]]:
    """The type of each resource whose policy admits a service on anybody's behalf, and the service."""
    for _, resource in _resources(synthesized):
        type_, properties = resource["Type"], resource["Properties"]
        if type_ == "AWS::Lambda::Permission":
            if not {"SourceArn", "SourceAccount"} & properties.keys():
                yield type_, _text(properties["Principal"])
        else:
            yield from ((type_, service) for service in _admitted(properties))


def _admitted(value: Any) -> Iterator[str]:
    """The services that policies anywhere in a value admit without a condition on account or resource."""
    if isinstance(value, str):
        assert '"Principal"' not in value, f"found a policy as a text, expected one that can be read: {value}"
    elif isinstance(value, list):
        for each in value:
            yield from _admitted(each)
    elif isinstance(value, dict):
        principal = value.get("Principal")
        if isinstance(principal, dict) and value.get("Effect") == "Allow" and not _asks_for_source(value):
            yield from map(_text, _list(principal.get("Service")))
        for each in value.values():
            yield from _admitted(each)


def _asks_for_source(statement: Properties) -> bool:
    """Whether a statement holds only if the service says for which account or resource it acts."""
    return any(
        key.lower() in ("aws:sourcearn", "aws:sourceaccount")
        for operator, keys in statement.get("Condition", {}).items()
        for key in keys
        # Every other operator holds for other accounts too, or if the key is absent.
        if operator in ("StringEquals", "StringLike", "ArnEquals", "ArnLike")
    )


def _allowed(synthesized: "Synthesized") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every statement that allows a principal of the app something."""
    for name, resource in _resources(synthesized):
        properties = resource["Properties"]
        documents = [inline["PolicyDocument"] for inline in properties.get("Policies", ()) if isinstance(inline, dict)]
        if resource["Type"] in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"):
            documents.append(properties["PolicyDocument"])
        for document in documents:
            for statement in document["Statement"]:
                if statement["Effect"] == "Allow":
                    yield name, statement


def _text(value: Any) -> str:
    """An ARN with its references in braces."""
    if isinstance(value, str):
        return value
    ((function, argument),) = value.items()
    return "".join(map(_text, argument[1])) if function == "Fn::Join" else f"{{{argument}}}"


def _size(document: dict[str, Any]) -> int:
    """The characters of a policy's document, if each reference is a long ARN."""
    statements = [
        {**each, "Resource": [re.sub(r"{.*}", "x" * 80, _text(arn)) for arn in _list(each["Resource"])]}
        for each in document["Statement"]
    ]
    return len(json.dumps({**document, "Statement": statements}, separators=(",", ":")))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]
