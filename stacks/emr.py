"""The EMR cluster that runs the writer and the query engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_emr as emr
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3_assets as s3_assets
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from headwater.contract.model import POSTGRESQL, Contract, of_database
from headwater.definitions.connectors import CaptureSettings, table_topics
from headwater.environment import allow_lists, node_memory
from headwater.environment.model import WEB_APPLICATIONS, Environment
from headwater.lake.base.announcements import event_source
from headwater.lake.base.metrics import NAMESPACE
from headwater.packaging import python_archives
from stacks.assets import Assets, grant_fetch
from stacks.base import HeadwaterStack, grant_pass_role
from stacks.lake import LakeStack
from stacks.nag import Reason, acknowledge
from stacks.network import EMR_TAG, NetworkStack

# Trino is Presto's successor on EMR 7.
APPLICATIONS = ("Hadoop", "Hive", "Spark", "Trino")
# The ports of the primary node that the bastion reaches if `emr.web_interfaces` is true.
WEB_INTERFACES = {
    "YARN": 8088,
    "HDFS": 9870,
    "Spark history": 18080,
    "Hue": 8888,
    "Livy": 8998,
    "Trino": 8889,
}
_GLUE_METASTORE = "com.amazonaws.glue.catalog.metastore.AWSGlueDataCatalogHiveClientFactory"
_LOGS_PREFIX = "emr"
_USE_KEY = ("kms:Decrypt", "kms:Encrypt", "kms:GenerateDataKey", "kms:ReEncryptFrom", "kms:ReEncryptTo")
# The folder of the writer's Python packages on each node.
_PYTHON_FOLDER = "/opt/headwater/python"
PYTHON = f"{_PYTHON_FOLDER}/{python_archives.LAUNCHER}"
# The tag that names a cluster's environment, even after another cluster has replaced it.
ENVIRONMENT_TAG = "headwater-environment"


class EmrStack(HeadwaterStack):
    """An EMR cluster. ``EmrWriterStack`` adds the writer's step.

    That stack reads the cluster's id from a parameter in Systems Manager. An export would pin the cluster, because
    CloudFormation refuses to change the value of an export that another stack imports.
    """

    def __init__(
        self,
        scope: Construct,
        *,
        environment: Environment,
        network: NetworkStack,
        lake: LakeStack,
        contracts: Sequence[Contract],
        capture: CaptureSettings,
        assets: Assets,
    ) -> None:
        super().__init__(scope, environment=environment, part="emr", description="Headwater: EMR cluster")
        self._network = network
        self._lake = lake
        written = of_database(contracts, POSTGRESQL)
        settings = environment.postgresql.emr
        self._key = self.encryption_key("EMR volumes; their data ends with the cluster", cdk.RemovalPolicy.DESTROY)
        self._service_role = self._make_service_role()
        self.node_role = iam.Role(
            self,
            "NodeRole",
            description="Headwater's EMR nodes: writer and query engines",
            assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"),
        )
        grant_pass_role(self._service_role, self.node_role, "ec2.amazonaws.com")
        profile = iam.InstanceProfile(self, "NodeProfile", role=self.node_role)
        self._key.grant(self.node_role, *_USE_KEY)
        topics = table_topics(contracts, capture)
        lake.grant_consume_landing(self.node_role, topics)
        lake.grant_write_tables(self.node_role, written)
        lake.grant_forget(self.node_role, written, topics)
        lake.grant_read_copies(self.node_role)
        lake.grant_read_tables(self.node_role)
        lake.grant_read_catalog(self.node_role)
        lake.grant_create_default_database(self.node_role)
        self.grant_put_metrics(self.node_role, NAMESPACE)
        self.grant_put_events(self.node_role, event_source(lake.database))
        lake.grant_write_logs(self.node_role, _LOGS_PREFIX)

        primary, core, service = self._security_groups()
        self.cluster = emr.CfnCluster(
            self,
            "Cluster",
            # CloudFormation does not notice when a cluster has ended. A changed name makes CloudFormation create
            # another one.
            name=f"{self.prefix}-{settings.generation}",
            release_label=settings.release,
            applications=[
                emr.CfnCluster.ApplicationProperty(name=name)
                for name in (*APPLICATIONS, *(WEB_APPLICATIONS if settings.web_interfaces else ()))
            ],
            configurations=self._configurations(),
            bootstrap_actions=[self._unpack_python(assets)],
            instances=emr.CfnCluster.JobFlowInstancesConfigProperty(
                ec2_subnet_id=network.work_subnet_ids[0],
                emr_managed_master_security_group=primary.security_group_id,
                emr_managed_slave_security_group=core.security_group_id,
                service_access_security_group=service.security_group_id,
                keep_job_flow_alive_when_no_steps=True,
                # The cluster holds no data. If it were protected, it would run on beside the cluster that replaces it.
                termination_protected=False,
                master_instance_group=self._nodes("primary", settings.primary_type, 1),
                core_instance_group=(
                    self._nodes("core", settings.core_type, settings.core_nodes) if settings.core_nodes else None
                ),
            ),
            job_flow_role=profile.instance_profile_name,
            service_role=self._service_role.role_arn,
            security_configuration=self._security_configuration().ref,
            log_uri=f"s3://{lake.logs.bucket_name}/{_LOGS_PREFIX}/",
            scale_down_behavior="TERMINATE_AT_TASK_COMPLETION",
            step_concurrency_level=1,
            visible_to_all_users=True,
            tags=[
                cdk.CfnTag(key=EMR_TAG, value="true"),
                cdk.CfnTag(key=ENVIRONMENT_TAG, value=environment.name),
            ],
        )
        for rule, reason in (
            ("EMR4", Reason.RULE_LOOKS_ELSEWHERE),
            ("EMR5", Reason.NITRO_ENCRYPTS),
            ("EMR6", Reason.NO_SSH),
        ):
            acknowledge(self.cluster, rule, reason)
        # Rights and rules are separate resources, so CloudFormation has to create them before the cluster starts.
        self.cluster.node.add_dependency(self._service_role, self.node_role, primary, core, service)
        self.cluster_id_parameter = f"/headwater/{environment.name}/emr/cluster-id"
        ssm.StringParameter(
            self,
            "ClusterIdParameter",
            description="The EMR cluster that runs the writer",
            parameter_name=self.cluster_id_parameter,
            string_value=self.cluster.ref,
        )
        cdk.CfnOutput(self, "ClusterId", value=self.cluster.ref)

    def _make_service_role(self) -> iam.Role:
        role = iam.Role(
            self,
            "ServiceRole",
            description="EMR itself: instances, volumes, interfaces",
            assumed_by=self.service_principal(
                "elasticmapreduce.amazonaws.com", self.format_arn(service="elasticmapreduce", resource="*")
            ),
            managed_policies=[iam.ManagedPolicy.from_aws_managed_policy_name("service-role/AmazonEMRServicePolicy_v2")],
        )
        policy = "arn:<AWS::Partition>:iam::aws:policy/service-role/AmazonEMRServicePolicy_v2"
        acknowledge(role, f"IAM4[Policy::{policy}]", Reason.EMR_OWN_POLICY)
        # EC2 uses the key for EMR as long as a volume is attached.
        self._key.grant(role, *_USE_KEY, "kms:CreateGrant", "kms:DescribeKey", "kms:GenerateDataKeyWithoutPlaintext")
        if self.environment_settings.postgresql.emr.market == "spot":
            self._grant_first_spot_request(role)
        return role

    def _grant_first_spot_request(self, role: iam.Role) -> None:
        """Let EMR create EC2's service-linked role for Spot.

        An account lacks that role until its first Spot request, and EMR's managed policy does not allow its creation.
        """
        spot = "spot.amazonaws.com"
        role.add_to_policy(
            iam.PolicyStatement(
                actions=["iam:CreateServiceLinkedRole"],
                resources=[
                    self.format_arn(
                        service="iam",
                        region="",
                        resource="role",
                        resource_name=f"aws-service-role/{spot}/AWSServiceRoleForEC2Spot",
                    )
                ],
                conditions={"StringEquals": {"iam:AWSServiceName": spot}},
            )
        )

    def _security_groups(self) -> tuple[ec2.SecurityGroup, ec2.SecurityGroup, ec2.SecurityGroup]:
        """The security groups of the primary node, the core nodes and EMR's service access.

        The stack has every inbound rule that EMR would otherwise add by itself, so the rules go when the stack goes.
        EMR adds no outbound rule to groups that it is given. The rules are the minimum for EMR 7 in private subnets:
        https://docs.aws.amazon.com/emr/latest/ManagementGuide/emr-man-sec-groups.html

        Security groups filter neither DNS by the VPC's resolver, nor Amazon's time service, nor instance metadata:
        https://docs.aws.amazon.com/vpc/latest/userguide/vpc-security-groups.html
        """
        primary = self._emr_group("PrimarySecurityGroup", "EMR primary node")
        core = self._emr_group("CoreSecurityGroup", "EMR core nodes")
        service = self._emr_group("ServiceSecurityGroup", "EMR service access")
        for port in (ec2.Port.all_tcp(), ec2.Port.all_udp(), ec2.Port.all_icmp()):
            for group in (primary, core):
                group.connections.allow_internally(port, "within the cluster")
            primary.connections.allow_to(core, port, "within the cluster")
            core.connections.allow_to(primary, port, "within the cluster")
        for group in (primary, core):
            group.add_egress_rule(ec2.Peer.any_ipv4(), ec2.Port.tcp(443), "AWS services and their package repositories")
            service.connections.allow_to(group, ec2.Port.tcp(8443), "EMR service to its agents")
        primary.connections.allow_to(service, ec2.Port.tcp(9443), "EMR agents to their service")
        # EMR's page requires this outbound rule of core nodes, and no matching inbound rule.
        core.add_egress_rule(service, ec2.Port.tcp(9443), "EMR agents to their service")
        if self.environment_settings.postgresql.emr.web_interfaces:
            for name, number in WEB_INTERFACES.items():
                primary.connections.allow_from(self._network.bastion, ec2.Port.tcp(number), f"{name} from the bastion")
        return primary, core, service

    def _emr_group(self, id_: str, description: str) -> ec2.SecurityGroup:
        """A security group that EMR may use, without outbound rules."""
        group = ec2.SecurityGroup(self, id_, vpc=self._network.vpc, description=description, allow_all_outbound=False)
        cdk.Tags.of(group).add(EMR_TAG, "true")
        return group

    def _security_configuration(self) -> emr.CfnSecurityConfiguration:
        """Encryption at rest everywhere. In transit EMR would need certificates in S3: see docs/reference/stacks.md."""
        return emr.CfnSecurityConfiguration(
            self,
            "SecurityConfiguration",
            security_configuration={
                "EncryptionConfiguration": {
                    "EnableInTransitEncryption": False,
                    "EnableAtRestEncryption": True,
                    "AtRestEncryptionConfiguration": {
                        "S3EncryptionConfiguration": {
                            "EncryptionMode": "SSE-KMS",
                            "AwsKmsKey": self._lake.key.key_arn,
                        },
                        "LocalDiskEncryptionConfiguration": {
                            "EncryptionKeyProviderType": "AwsKms",
                            "AwsKmsKey": self._key.key_arn,
                            "EnableEbsEncryption": True,
                        },
                    },
                },
                "InstanceMetadataServiceConfiguration": {
                    "MinimumInstanceMetadataServiceVersion": 2,
                    "HttpPutResponseHopLimit": 1,
                },
            },
        )

    def _configurations(self) -> list[emr.CfnCluster.ConfigurationProperty]:
        shares = node_memory.shares(self.environment_settings)
        return [
            _configuration("hive-site", {"hive.metastore.client.factory.class": _GLUE_METASTORE}),
            _configuration("spark-hive-site", {"hive.metastore.client.factory.class": _GLUE_METASTORE}),
            _configuration("trino-connector-hive", {"hive.metastore": "glue"}),
            _configuration(
                "trino-config",
                {
                    "query.max-memory-per-node": f"{shares.trino_query}MB",
                    "memory.heap-headroom-per-node": f"{shares.trino_headroom}MB",
                },
            ),
            _configuration(
                "yarn-site",
                {
                    "yarn.nodemanager.resource.memory-mb": str(shares.yarn),
                    "yarn.scheduler.maximum-allocation-mb": str(shares.yarn),
                },
            ),
            # An application that is submitted without a size fits too.
            _configuration("spark-defaults", self.spark_sizes()),
            emr.CfnCluster.ConfigurationProperty(
                classification="spark-env",
                configurations=[
                    _configuration(
                        "export",
                        {
                            # On a node boto3 finds credentials by itself, but no region.
                            "AWS_DEFAULT_REGION": self.region,
                            "PYSPARK_DRIVER_PYTHON": PYTHON,
                            "PYSPARK_PYTHON": PYTHON,
                        },
                    )
                ],
            ),
        ]

    def _unpack_python(self, assets: Assets) -> emr.CfnCluster.BootstrapActionConfigProperty:
        """The bootstrap action that gives each node the writer's Python packages.

        All nodes have the same kind of processor.
        """
        platform = allow_lists.platform(self.environment_settings.postgresql.emr.primary_type)
        script = s3_assets.Asset(self, "UnpackPython", path=str(assets.bootstrap_script()))
        archive = s3_assets.Asset(self, "Python", path=str(assets.python(platform)))
        grant_fetch(self.node_role, [script, archive])
        return emr.CfnCluster.BootstrapActionConfigProperty(
            name="Unpack the writer's Python packages",
            script_bootstrap_action=emr.CfnCluster.ScriptBootstrapActionConfigProperty(
                path=script.s3_object_url, args=[archive.s3_object_url, self.region, _PYTHON_FOLDER]
            ),
        )

    def _nodes(self, name: str, instance_type: str, count: int) -> emr.CfnCluster.InstanceGroupConfigProperty:
        volume = emr.CfnCluster.VolumeSpecificationProperty(
            size_in_gb=self.environment_settings.postgresql.emr.volume_gib, volume_type="gp3"
        )
        return emr.CfnCluster.InstanceGroupConfigProperty(
            name=name,
            instance_type=instance_type,
            instance_count=count,
            # Without a bid, a Spot instance costs at most the on-demand price.
            market="SPOT" if self.environment_settings.postgresql.emr.market == "spot" else "ON_DEMAND",
            ebs_configuration=emr.CfnCluster.EbsConfigurationProperty(
                ebs_block_device_configs=[
                    emr.CfnCluster.EbsBlockDeviceConfigProperty(volume_specification=volume, volumes_per_instance=1)
                ]
            ),
        )

    def spark_sizes(self) -> Mapping[str, str]:
        """The memory of a driver and its executors on these nodes, as Spark's settings."""
        shares = node_memory.shares(self.environment_settings)
        return {
            "spark.driver.memory": f"{shares.driver_heap}m",
            "spark.executor.memory": f"{shares.executor_heap}m",
            "spark.executor.memoryOverhead": f"{shares.executor_overhead}m",
        }


def _configuration(classification: str, properties: Mapping[str, str]) -> emr.CfnCluster.ConfigurationProperty:
    return emr.CfnCluster.ConfigurationProperty(
        classification=classification, configuration_properties=dict(properties)
    )
