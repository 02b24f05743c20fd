"""Database: Aurora PostgreSQL with logical replication, and a secret for each role."""

from __future__ import annotations

import json

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_rds as rds
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from headwater.database import APP_ROLE, CDC_ROLE, READER_ROLE
from headwater.environment import Environment
from stacks.base import HeadwaterStack, log_retention
from stacks.network import NetworkStack

DATABASE_NAME = "northwind"
PORT = 5432
# What each role's secret is called below headwater/<environment>/.
ROLES = {"cdc": CDC_ROLE, "app": APP_ROLE, "reader": READER_ROLE}
# Characters that would have to be escaped in a connection URI, a shell or a Kafka property.
_AWKWARD = " %+~`#$&*()|[]{}:;<>?!'/@\"\\^=,"


class DatabaseStack(HeadwaterStack):
    """The source of the relational pipeline."""

    def __init__(self, scope: Construct, environment: Environment, network: NetworkStack) -> None:
        super().__init__(scope, environment, "database", "Headwater: Aurora PostgreSQL")
        settings = environment.database
        self._key = kms.Key(
            self,
            "Key",
            alias=f"headwater/{environment.name}/database",
            description="Aurora storage and database secrets",
            enable_key_rotation=True,
            removal_policy=self.data_removal,
        )
        engine = rds.DatabaseClusterEngine.aurora_postgres(
            version=rds.AuroraPostgresEngineVersion.of(settings.engine_version, settings.engine_version.split(".")[0])
        )
        self.cluster = rds.DatabaseCluster(
            self,
            "Cluster",
            engine=engine,
            default_database_name=DATABASE_NAME,
            port=PORT,
            credentials=rds.Credentials.from_generated_secret(
                "headwater_owner",
                secret_name=f"headwater/{environment.name}/owner",
                encryption_key=self._key,
                exclude_characters=_AWKWARD,
            ),
            parameter_group=rds.ParameterGroup(
                self,
                "Parameters",
                engine=engine,
                description="Headwater: logical replication, TLS only",
                parameters={"rds.logical_replication": "1", "rds.force_ssl": "1"},
            ),
            vpc=network.vpc,
            vpc_subnets=network.data,
            security_groups=[
                ec2.SecurityGroup(
                    self, "SecurityGroup", vpc=network.vpc, description="Aurora", allow_all_outbound=False
                )
            ],
            serverless_v2_min_capacity=settings.capacity_min,
            serverless_v2_max_capacity=settings.capacity_max,
            writer=rds.ClusterInstance.serverless_v2("Writer", enable_performance_insights=False),
            readers=[
                rds.ClusterInstance.serverless_v2(f"Reader{index + 1}", scale_with_writer=index == 0)
                for index in range(settings.readers)
            ],
            storage_encrypted=True,
            storage_encryption_key=self._key,
            backup=rds.BackupProps(retention=cdk.Duration.days(settings.backup_days)),
            copy_tags_to_snapshot=True,
            cloudwatch_logs_exports=["postgresql"],
            cloudwatch_logs_retention=log_retention(environment.log_days),
            # The bootstrap runs its SQL through the Data API.
            enable_data_api=True,
            deletion_protection=environment.data.retain,
            # A snapshot would outlive the stack and cost money: taken only where data is to be kept.
            removal_policy=cdk.RemovalPolicy.DESTROY if environment.deletes_data else cdk.RemovalPolicy.SNAPSHOT,
        )
        self.cluster.add_rotation_single_user(
            automatically_after=cdk.Duration.days(30), vpc_subnets=network.work, exclude_characters=_AWKWARD
        )
        self._secrets = {part: self._role_secret(part, role) for part, role in ROLES.items()}
        self.cluster.connections.allow_from(network.bastion, ec2.Port.tcp(PORT), "bastion")
        cdk.CfnOutput(self, "Host", value=self.host)

    @property
    def host(self) -> str:
        """The writer's address."""
        return self.cluster.cluster_endpoint.hostname

    def secret_name(self, part: str) -> str:
        """The name of a role's secret; ``part`` is a key of ``ROLES``."""
        return f"headwater/{self.environment_settings.name}/{part}"

    def grant_connect(self, client: ec2.IConnectable) -> None:
        """Let a client of a later stack reach PostgreSQL's port."""
        client.connections.allow_to(self.cluster, ec2.Port.tcp(PORT), "PostgreSQL")

    def grant_log_in(self, grantee: iam.IGrantable, part: str) -> None:
        """Let a principal of a later stack read one role's user name and password."""
        # Secret.grant_read would name the principal in the key's policy, and so make this stack need the later one.
        iam.Grant.add_to_principal(
            grantee=grantee,
            actions=["secretsmanager:GetSecretValue", "secretsmanager:DescribeSecret"],
            resource_arns=[self._secrets[part].secret_arn],
        )
        iam.Grant.add_to_principal(
            grantee=grantee,
            actions=["kms:Decrypt"],
            resource_arns=[self._key.key_arn],
            conditions={"StringEquals": {"kms:ViaService": f"secretsmanager.{self.region}.amazonaws.com"}},
        )

    def _role_secret(self, part: str, role: str) -> secretsmanager.Secret:
        return secretsmanager.Secret(
            self,
            f"{part.capitalize()}Secret",
            secret_name=self.secret_name(part),
            description=f"User name and password of the database role {role}",
            encryption_key=self._key,
            generate_secret_string=secretsmanager.SecretStringGenerator(
                secret_string_template=json.dumps({"username": role}),
                generate_string_key="password",
                password_length=40,
                exclude_characters=_AWKWARD,
            ),
            removal_policy=self.data_removal,
        )
