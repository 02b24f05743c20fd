"""Emr: the cluster and the step that writes the lake."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_emr as emr
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3_assets as s3_assets
from constructs import Construct

from headwater.contract.model import POSTGRESQL, Contract, of_database
from headwater.definitions import spark_settings
from headwater.deployment.environment import Environment
from headwater.lake.metrics import NAMESPACE
from stacks.assets import Assets, grant_fetch
from stacks.base import HeadwaterStack, grant_pass_role
from stacks.lake import LakeStack
from stacks.nag import Reason, acknowledge, acknowledge_wildcard
from stacks.network import EMR_TAG, NetworkStack
from stacks.polled import PolledProvider
from stacks.restarts import Restarts

# Trino is Presto's successor on EMR 7.
APPLICATIONS = ("Hadoop", "Hive", "Spark", "Trino", "Hue", "Livy")
# What the bastion may open on the primary node.
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
# The states in which a step has ended, for whatever reason.
STEP_ENDED = ("CANCELLED", "COMPLETED", "FAILED", "INTERRUPTED")
_RESTART_MINUTES = 10
# Says to which environment a cluster belongs, even after another cluster has taken its place.
_ENVIRONMENT_TAG = "headwater-environment"


class EmrStack(HeadwaterStack):
    """A cluster with one running step."""

    def __init__(
        self,
        scope: Construct,
        *,
        environment: Environment,
        network: NetworkStack,
        lake: LakeStack,
        contracts: Sequence[Contract],
        assets: Assets,
    ) -> None:
        super().__init__(
            scope, environment=environment, part="emr", description="Headwater: EMR cluster and writer step"
        )
        # The writer looks for its tables and buckets when it starts.
        self.add_stack_dependency(lake)
        self._network = network
        self._lake = lake
        written = of_database(contracts, POSTGRESQL)
        self.step_name = f"{self.prefix}-writer"
        settings = environment.emr
        self._key = self.encryption_key("EMR volumes; nothing on them outlives the cluster", cdk.RemovalPolicy.DESTROY)
        self._service_role = self._make_service_role()
        self._node_role = iam.Role(
            self,
            "NodeRole",
            description="Headwater's EMR nodes: writer and query engines",
            assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"),
        )
        grant_pass_role(self._service_role, self._node_role, "ec2.amazonaws.com")
        profile = iam.InstanceProfile(self, "NodeProfile", role=self._node_role)
        self._key.grant(self._node_role, *_USE_KEY)
        lake.grant_read_landing(self._node_role)
        lake.grant_write_tables(self._node_role, written)
        lake.grant_read_tables(self._node_role)
        lake.grant_read_catalog(self._node_role)
        self.grant_put_metrics(self._node_role, NAMESPACE)
        lake.grant_write_logs(self._node_role, _LOGS_PREFIX)

        primary, core, service = self._security_groups()
        self.cluster = emr.CfnCluster(
            self,
            "Cluster",
            name=self.prefix,
            release_label=settings.release,
            applications=[emr.CfnCluster.ApplicationProperty(name=name) for name in APPLICATIONS],
            configurations=self._configurations(),
            instances=emr.CfnCluster.JobFlowInstancesConfigProperty(
                ec2_subnet_id=network.work_subnet_ids[0],
                emr_managed_master_security_group=primary.security_group_id,
                emr_managed_slave_security_group=core.security_group_id,
                service_access_security_group=service.security_group_id,
                keep_job_flow_alive_when_no_steps=True,
                # The cluster holds no data, and a protected one would run on beside the cluster that replaces it.
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
                cdk.CfnTag(key=_ENVIRONMENT_TAG, value=environment.name),
            ],
        )
        for rule, reason in (
            ("EMR4", Reason.RULE_LOOKS_ELSEWHERE),
            ("EMR5", Reason.NITRO_ENCRYPTS),
            ("EMR6", Reason.NO_SSH),
        ):
            acknowledge(self.cluster, rule, reason)
        # Rights and rules are resources of their own, which the cluster needs before it starts.
        self.cluster.node.add_dependency(self._service_role, self._node_role, primary, core, service)
        self._keep_running(self._submit(written, assets), assets)
        cdk.CfnOutput(self, "ClusterId", value=self.cluster.ref)

    def _make_service_role(self) -> iam.Role:
        role = iam.Role(
            self,
            "ServiceRole",
            description="EMR itself: instances, volumes, interfaces",
            assumed_by=self.service_principal("elasticmapreduce.amazonaws.com"),
            managed_policies=[iam.ManagedPolicy.from_aws_managed_policy_name("service-role/AmazonEMRServicePolicy_v2")],
        )
        policy = "arn:<AWS::Partition>:iam::aws:policy/service-role/AmazonEMRServicePolicy_v2"
        acknowledge(role, f"IAM4[Policy::{policy}]", Reason.EMR_OWN_POLICY)
        # EC2 uses the key on the service's behalf for as long as a volume is attached.
        self._key.grant(role, *_USE_KEY, "kms:CreateGrant", "kms:DescribeKey", "kms:GenerateDataKeyWithoutPlaintext")
        return role

    def _security_groups(self) -> tuple[ec2.SecurityGroup, ec2.SecurityGroup, ec2.SecurityGroup]:
        """The groups of primary node, core nodes and service access. The stack has the rules that EMR would otherwise
        add by itself, so that they go when the stack goes."""
        vpc = self._network.vpc
        primary = ec2.SecurityGroup(self, "PrimarySecurityGroup", vpc=vpc, description="EMR primary node")
        core = ec2.SecurityGroup(self, "CoreSecurityGroup", vpc=vpc, description="EMR core nodes")
        service = ec2.SecurityGroup(
            self, "ServiceSecurityGroup", vpc=vpc, description="EMR service access", allow_all_outbound=False
        )
        within = (ec2.Port.all_tcp(), ec2.Port.all_udp(), ec2.Port.all_icmp())
        for group in (primary, core):
            cdk.Tags.of(group).add(EMR_TAG, "true")
            for port in within:
                group.add_ingress_rule(group, port, "within the cluster")
            service.connections.allow_to(group, ec2.Port.tcp(8443), "EMR service to its agents")
        for port in within:
            core.add_ingress_rule(primary, port, "within the cluster")
            primary.add_ingress_rule(core, port, "within the cluster")
        cdk.Tags.of(service).add(EMR_TAG, "true")
        service.add_ingress_rule(primary, ec2.Port.tcp(9443), "EMR agents to their service")
        for name, port_number in WEB_INTERFACES.items():
            primary.connections.allow_from(self._network.bastion, ec2.Port.tcp(port_number), f"{name} from the bastion")
        return primary, core, service

    def _security_configuration(self) -> emr.CfnSecurityConfiguration:
        """Everything is encrypted at rest. In transit EMR wants certificates in S3: see docs/reference/stacks.md."""
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
        return [
            _configuration("hive-site", {"hive.metastore.client.factory.class": _GLUE_METASTORE}),
            _configuration("spark-hive-site", {"hive.metastore.client.factory.class": _GLUE_METASTORE}),
            _configuration("trino-connector-hive", {"hive.metastore": "glue"}),
            emr.CfnCluster.ConfigurationProperty(
                classification="spark-env",
                # boto3 finds credentials on a node by itself, but no region.
                configurations=[_configuration("export", {"AWS_DEFAULT_REGION": self.region})],
            ),
        ]

    def _nodes(self, name: str, instance_type: str, count: int) -> emr.CfnCluster.InstanceGroupConfigProperty:
        volume = emr.CfnCluster.VolumeSpecificationProperty(
            size_in_gb=self.environment_settings.emr.volume_gib, volume_type="gp3"
        )
        return emr.CfnCluster.InstanceGroupConfigProperty(
            name=name,
            instance_type=instance_type,
            instance_count=count,
            # Without a bid, Spot costs the on-demand price at most.
            market="SPOT" if self.environment_settings.emr.market == "spot" else "ON_DEMAND",
            ebs_configuration=emr.CfnCluster.EbsConfigurationProperty(
                ebs_block_device_configs=[
                    emr.CfnCluster.EbsBlockDeviceConfigProperty(volume_specification=volume, volumes_per_instance=1)
                ]
            ),
        )

    def _submit(self, contracts: Sequence[Contract], assets: Assets) -> list[str]:
        """The writer's command. It names files by their content, so it changes with each of them."""
        script = s3_assets.Asset(self, "WriterScript", path=str(assets.writer_script()))
        package = s3_assets.Asset(self, "Package", path=str(assets.package()))
        hudi = s3_assets.Asset(self, "HudiJar", path=str(assets.hudi_jar()))
        shipped = {
            contract.table: s3_assets.Asset(
                self, f"Contract-{contract.table}", path=str(assets.contract(contract.table))
            )
            for contract in contracts
        }
        grant_fetch(self._node_role, [script, package, hudi, *shipped.values()])
        # The driver runs on the primary node, so the step is its process, and cancelling the step ends it.
        submit = ["spark-submit", "--deploy-mode", "client", "--jars", hudi.s3_object_url]
        for key, value in sorted(self._spark_settings().items()):
            submit += ["--conf", f"{key}={value}"]
        submit += ["--py-files", package.s3_object_url, script.s3_object_url]
        for asset in shipped.values():
            submit += ["--contract", asset.s3_object_url]
        submit += ["--landing", self._lake.landing_uri, "--lake", self._lake.lake_uri]
        settings = self.environment_settings.emr
        submit += ["--database", self._lake.database, "--epoch", str(settings.epoch)]
        submit += ["--idle-seconds-max", str(settings.idle_seconds_max)]
        return submit

    def _keep_running(self, command: Sequence[str], assets: Assets) -> None:
        """Run the writer as a step, replace the step when its command changes, and add it again when it has ended."""
        provider = PolledProvider(self, "Steps", module="emr_step", assets=assets)
        self._grant_keep_step(provider.role)
        restart = provider.function("Restart", "restart", cdk.Duration.minutes(1))
        restart.add_environment("CLUSTER_ID", self.cluster.ref)
        restart.add_environment("STEP_NAME", self.step_name)
        writer = provider.resource(
            "Step", "Writer", self.step_name, {"ClusterId": self.cluster.ref, "Args": list(command)}
        )
        # A step that ends while the cluster is replaced must not be added to the old cluster.
        writer.node.add_dependency(restart)
        restarts = Restarts(writer, restart)
        restarts.on_events(
            "WriterEnded",
            f"Adds {self.step_name} again after it has ended",
            events.EventPattern(
                source=["aws.emr"],
                detail_type=["EMR Step Status Change", "EMR Cluster State Change"],
                detail={"clusterId": [self.cluster.ref], "state": [*STEP_ENDED, "WAITING"]},
            ),
        )
        restarts.every(_RESTART_MINUTES, "WriterRegularly", f"Adds {self.step_name} where it does not run")

    def _grant_keep_step(self, role: iam.Role) -> None:
        """Let the custom resource list, add and cancel steps, and cancel the steps of a cluster that was replaced."""
        actions = ("AddJobFlowSteps", "CancelSteps", "DescribeCluster", "ListSteps")
        iam.Grant.add_to_principal(
            grantee=role,
            actions=[f"elasticmapreduce:{action}" for action in actions],
            resource_arns=[self._cluster_arn(self.cluster.ref)],
        )
        former = self._cluster_arn("*")
        iam.Grant.add_to_principal(
            grantee=role,
            actions=[f"elasticmapreduce:{action}" for action in ("CancelSteps", "DescribeCluster", "ListSteps")],
            resource_arns=[former],
            conditions={
                "StringEquals": {f"elasticmapreduce:ResourceTag/{_ENVIRONMENT_TAG}": self.environment_settings.name}
            },
        )
        acknowledge_wildcard(role, [former], Reason.NAMES_BELOW_A_PREFIX)

    def _cluster_arn(self, cluster: str) -> str:
        return self.format_arn(service="elasticmapreduce", resource="cluster", resource_name=cluster)

    def _spark_settings(self) -> Mapping[str, str]:
        return {**spark_settings.shared(), "spark.executorEnv.AWS_DEFAULT_REGION": self.region}


def _configuration(classification: str, properties: Mapping[str, str]) -> emr.CfnCluster.ConfigurationProperty:
    return emr.CfnCluster.ConfigurationProperty(
        classification=classification, configuration_properties=dict(properties)
    )
