"""Database: Aurora PostgreSQL with logical replication, a secret for each role, and all that the database holds."""

from __future__ import annotations

import json
from collections.abc import Sequence

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_rds as rds
from aws_cdk import aws_s3_assets as s3_assets
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from headwater.definitions.order_database import (
    APP_ROLE,
    CDC_ROLE,
    ORDERS_SPAN,
    READER_ROLE,
    REPAIR,
    content_statements,
)
from headwater.deployment.environment import Environment
from stacks.assets import Assets, grant_fetch
from stacks.base import HeadwaterStack
from stacks.nag import Reason, acknowledge
from stacks.network import NetworkStack
from stacks.polled import PolledProvider

DATABASE_NAME = "northwind"
PORT = 5432
# The last part of each secret's name, after headwater/<environment>/, and its role.
ROLES = {"cdc": CDC_ROLE, "app": APP_ROLE, "reader": READER_ROLE}
# Characters that a connection URI, a shell or a Kafka property would have to escape.
_AWKWARD = " %+~`#$&*()|[]{}:;<>?!'/@\"\\^=,"


class DatabaseStack(HeadwaterStack):
    """The source of the relational pipeline."""

    def __init__(self, scope: Construct, *, environment: Environment, network: NetworkStack, assets: Assets) -> None:
        super().__init__(scope, environment=environment, part="database", description="Headwater: Aurora PostgreSQL")
        settings = environment.database
        self._key = self.encryption_key("Aurora storage and database secrets")
        engine = rds.DatabaseClusterEngine.aurora_postgres(
            version=rds.AuroraPostgresEngineVersion.of(settings.engine_version, settings.engine_version.split(".")[0])
        )
        # Aurora would make its log group itself and leave it behind, so the stack makes it first, under its name.
        cluster_logs = self.service_log_group(self, "ClusterLogs", f"/aws/rds/cluster/{self.prefix}/postgresql")
        group = ec2.SecurityGroup(
            self, "SecurityGroup", vpc=network.vpc, description="Aurora", allow_all_outbound=False
        )
        self.cluster = rds.DatabaseCluster(
            self,
            "Cluster",
            cluster_identifier=self.prefix,
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
            security_groups=[group],
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
            # The bootstrap runs its SQL through the Data API.
            enable_data_api=True,
            iam_authentication=True,
            deletion_protection=environment.data.retain,
            # A snapshot would outlive the stack and cost money: taken only where data is to be kept.
            removal_policy=cdk.RemovalPolicy.DESTROY if environment.deletes_data else cdk.RemovalPolicy.SNAPSHOT,
        )
        if not environment.data.retain:
            acknowledge(self.cluster, "RDS10", Reason.DATA_MAY_GO)
        self.cluster.node.add_dependency(cluster_logs)
        # CDK's own group would let everything out; Secrets Manager has an endpoint.
        rotates = ec2.SecurityGroup(
            self, "RotationSecurityGroup", vpc=network.vpc, description="Secret rotation", allow_all_outbound=False
        )
        rotates.add_egress_rule(ec2.Peer.ipv4(environment.network.cidr), ec2.Port.tcp(443), "Secrets Manager")
        rotation = self.cluster.add_rotation_single_user(
            automatically_after=cdk.Duration.days(30),
            vpc_subnets=network.work,
            security_group=rotates,
            exclude_characters=_AWKWARD,
        )
        # The first rotation follows at once: it needs the rules of both security groups, and an instance that answers.
        rotation.node.add_dependency(rotates, group, self.cluster.node.find_child("Writer"))
        # The function that rotates would make its log group itself too. It is named after its construct.
        function = cdk.Names.unique_id(rotation)[-64:]
        rotation.node.add_dependency(self.service_log_group(self, "RotationLogs", f"/aws/lambda/{function}"))
        self._secrets = {part: self._role_secret(part, role) for part, role in ROLES.items()}
        self._bootstrap(assets)
        self.cluster.connections.allow_from(network.bastion, ec2.Port.tcp(PORT), "bastion")
        cdk.CfnOutput(self, "Host", value=self.host)

    @property
    def host(self) -> str:
        """The writer's address."""
        return self.cluster.cluster_endpoint.hostname

    def secret_name(self, part: str) -> str:
        """The name of a role's secret; ``part`` is a key of ``ROLES``."""
        return f"headwater/{self.environment_settings.name}/{part}"

    @property
    def data_api(self) -> dict[str, str]:
        """The properties with which a custom resource of this or a later stack names the database to the Data API."""
        return {
            "ClusterArn": self.cluster.cluster_arn,
            "SecretArn": self._owner_secret.secret_arn,
            "Database": DATABASE_NAME,
        }

    @property
    def _owner_secret(self) -> secretsmanager.ISecret:
        secret = self.cluster.secret
        if secret is None:
            raise AssertionError("the cluster's credentials are generated into a secret")
        return secret

    def grant_connect(self, client: ec2.IConnectable) -> None:
        """Let a client of a later stack reach PostgreSQL's port."""
        client.connections.allow_to(self.cluster, ec2.Port.tcp(PORT), "PostgreSQL")

    def grant_log_in(self, grantee: iam.IGrantable, part: str) -> None:
        """Let a principal read one role's user name and password."""
        self._grant_read(grantee, [self._secrets[part]])

    def grant_run_sql(self, grantee: iam.IGrantable) -> None:
        """Let a principal run SQL through the Data API, as the database's owner."""
        iam.Grant.add_to_principal(
            grantee=grantee,
            actions=[
                f"rds-data:{action}"
                for action in ("BeginTransaction", "CommitTransaction", "ExecuteStatement", "RollbackTransaction")
            ],
            resource_arns=[self.cluster.cluster_arn],
        )
        self._grant_read(grantee, [self._owner_secret])

    def _grant_read(self, grantee: iam.IGrantable, secrets: Sequence[secretsmanager.ISecret]) -> None:
        # Secret.grant_read would name the principal in the key's policy, and so make this stack need a later one.
        iam.Grant.add_to_principal(
            grantee=grantee,
            actions=["secretsmanager:GetSecretValue", "secretsmanager:DescribeSecret"],
            resource_arns=[secret.secret_arn for secret in secrets],
        )
        self.grant_decrypt(grantee, self._key, "secretsmanager")

    def _role_secret(self, part: str, role: str) -> secretsmanager.Secret:
        secret = secretsmanager.Secret(
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
        acknowledge(secret, "SMG4", Reason.ROTATES_WITH_ITS_ROLE)
        return secret

    def _bootstrap(self, assets: Assets) -> None:
        """Create schema, outbox and roles, and run their statements again whenever these change."""
        document = {"statements": content_statements(), "span": ORDERS_SPAN, "repair": REPAIR}
        statements = s3_assets.Asset(self, "Statements", path=str(assets.statements("content", document)))
        provider = PolledProvider(self, "Bootstrap", module="database_bootstrap", assets=assets)
        grant_fetch(provider.role, [statements])
        self.grant_run_sql(provider.role)
        self._grant_read(provider.role, list(self._secrets.values()))
        content = provider.resource(
            "Database",
            "Content",
            self.prefix,
            {
                **self.data_api,
                "Statements": statements.s3_object_url,
                "RoleSecrets": {role: self._secrets[part].secret_arn for part, role in ROLES.items()},
            },
        )
        # The dependency covers the cluster's instances, without which nobody answers.
        content.node.add_dependency(self.cluster)
