"""Aurora PostgreSQL with logical replication, and a secret for each role."""

from __future__ import annotations

import json
from collections.abc import Sequence

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_rds as rds
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from headwater.definitions import source_database
from headwater.definitions.source_database import OWNER_ROLE, SECRETS
from headwater.environment import rds_authority
from headwater.environment.model import Aurora, Environment
from stacks.base import HeadwaterStack, grant
from stacks.nag import Reason, acknowledge
from stacks.network import NetworkStack
from stacks.relational_source import Address

PORT = 5432
# The last part of each secret's name (after headwater/<environment>/), and the secret's role.
ROLES = {SECRETS[role]: role for role in source_database.ROLES}
# Characters that no password has, because a connection URI, a shell or a Kafka property would have to escape them.
AWKWARD_CHARACTERS = " %+~`#$&*()|[]{}:;<>?!'/@\"\\^=,"


class DatabaseStack(HeadwaterStack):
    """The source of the relational pipeline."""

    def __init__(self, scope: Construct, *, environment: Environment, settings: Aurora, network: NetworkStack) -> None:
        super().__init__(scope, environment=environment, part="database", description="Headwater: Aurora PostgreSQL")
        self._name = settings.name
        self._key = self.encryption_key("Aurora storage and database secrets")
        engine = rds.DatabaseClusterEngine.aurora_postgres(
            version=rds.AuroraPostgresEngineVersion.of(settings.engine_version, settings.engine_version.split(".")[0])
        )
        # Aurora would create its log group itself and leave it behind. So the stack creates the group first, with that
        # name.
        cluster_logs = self.service_log_group(self, "ClusterLogs", f"/aws/rds/cluster/{self.prefix}/postgresql")
        group = ec2.SecurityGroup(
            self, "SecurityGroup", vpc=network.vpc, description="Aurora", allow_all_outbound=False
        )
        # The source connector trusts only this authority. Without the setting, the account's default authority would
        # apply.
        authority = rds.CaCertificate.of(rds_authority.identifier())
        self.cluster = rds.DatabaseCluster(
            self,
            "Cluster",
            cluster_identifier=self.prefix,
            engine=engine,
            default_database_name=settings.name,
            port=PORT,
            credentials=rds.Credentials.from_generated_secret(
                OWNER_ROLE,
                secret_name=self.secret_name(SECRETS[OWNER_ROLE]),
                encryption_key=self._key,
                exclude_characters=AWKWARD_CHARACTERS,
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
            writer=rds.ClusterInstance.serverless_v2(
                "Writer", enable_performance_insights=False, ca_certificate=authority
            ),
            readers=[
                rds.ClusterInstance.serverless_v2(
                    f"Reader{index + 1}", scale_with_writer=index == 0, ca_certificate=authority
                )
                for index in range(settings.readers)
            ],
            storage_encrypted=True,
            storage_encryption_key=self._key,
            backup=rds.BackupProps(retention=cdk.Duration.days(settings.backup_days)),
            copy_tags_to_snapshot=True,
            cloudwatch_logs_exports=["postgresql"],
            # The bootstrap runs its SQL through the Data API.
            enable_data_api=True,
            deletion_protection=self.protected,
            # A last snapshot would outlive the stack and cost money, so it is taken only if the data is to be kept.
            removal_policy=cdk.RemovalPolicy.DESTROY if environment.deletes_data else cdk.RemovalPolicy.SNAPSHOT,
        )
        acknowledge(self.cluster, "RDS6", Reason.NOBODY_LOGS_IN_BY_IAM)
        if not self.protected:
            kept = environment.data.retain
            acknowledge(self.cluster, "RDS10", Reason.PROTECTED_ONCE_COMPLETE if kept else Reason.DATA_MAY_GO)
        self.cluster.node.add_dependency(cluster_logs)
        # The rotating function's group is here, because CDK adds the group's rule to the stack of the cluster.
        # CDK's default group would let everything out; Secrets Manager has an endpoint in the VPC.
        self.rotation_group = ec2.SecurityGroup(
            self, "RotationSecurityGroup", vpc=network.vpc, description="Secret rotation", allow_all_outbound=False
        )
        self.rotation_group.add_egress_rule(
            ec2.Peer.ipv4(environment.postgresql.network.cidr), ec2.Port.tcp(443), "Secrets Manager"
        )
        # CDK adds this denial to a secret with a rotation schedule; here another stack has the schedule.
        self._owner_secret.deny_account_root_delete()
        acknowledge(self.cluster, "SMG4", Reason.ROTATES_FROM_ANOTHER_STACK)
        self._secrets = {part: self._role_secret(part, role) for part, role in ROLES.items()}
        self.cluster.connections.allow_from(network.bastion, ec2.Port.tcp(PORT), "bastion")
        cdk.CfnOutput(self, "Host", value=self.host)
        cdk.CfnOutput(self, "Port", value=self.port)

    @property
    def host(self) -> str:
        """The address of the writer instance."""
        return self.cluster.cluster_endpoint.hostname

    @property
    def port(self) -> str:
        """The port of the writer instance."""
        return cdk.Token.as_string(self.cluster.cluster_endpoint.port)

    @property
    def address(self) -> Address:
        """The database's address for the source connector."""
        return Address(self.host, self.port, self._name, self.secret_name("cdc"))

    def secret_name(self, part: str) -> str:
        """The name of a role's secret; ``part`` is a key of ``ROLES``."""
        return f"headwater/{self.environment_settings.name}/{part}"

    @property
    def data_api(self) -> dict[str, str]:
        """The properties by which a custom resource of this or a later stack names the database to the Data API."""
        return {
            "ClusterArn": self.cluster.cluster_arn,
            "SecretArn": self._owner_secret.secret_arn,
            "Database": self._name,
        }

    @property
    def _owner_secret(self) -> secretsmanager.ISecret:
        secret = self.cluster.secret
        if secret is None:
            raise AssertionError("the cluster has no secret, though its credentials are generated into one")
        return secret

    def grant_connect(self, client: ec2.IConnectable) -> None:
        """Let a client of a later stack reach PostgreSQL's port."""
        client.connections.allow_to(self.cluster, ec2.Port.tcp(PORT), "PostgreSQL")

    def grant_log_in(self, grantee: iam.IGrantable, part: str) -> None:
        """Let a principal read one role's user name and password."""
        self._grant_read(grantee, [self._secrets[part]])

    def grant_run_sql(self, grantee: iam.IGrantable) -> None:
        """Let a principal run SQL through the Data API as the database's owner."""
        grant(
            grantee,
            [
                f"rds-data:{action}"
                for action in ("BeginTransaction", "CommitTransaction", "ExecuteStatement", "RollbackTransaction")
            ],
            [self.cluster.cluster_arn],
        )
        self._grant_read(grantee, [self._owner_secret])

    def grant_fill(self, grantee: iam.IGrantable) -> None:
        """Let a principal run SQL as the database's owner, and read the passwords of all roles."""
        self.grant_run_sql(grantee)
        self._grant_read(grantee, list(self._secrets.values()))

    def grant_rotate(self, grantee: iam.IGrantable) -> None:
        """Let a principal set new passwords of the roles, in the database and in their secrets."""
        self.grant_fill(grantee)
        grant(
            grantee,
            ["secretsmanager:PutSecretValue", "secretsmanager:UpdateSecretVersionStage"],
            [secret.secret_arn for secret in self._secrets.values()],
        )
        grant(grantee, ["secretsmanager:GetRandomPassword"], ["*"], wildcard=Reason.ACTION_TAKES_NO_RESOURCE)
        grant(
            grantee,
            ["kms:GenerateDataKey"],
            [self._key.key_arn],
            conditions={"StringEquals": {"kms:ViaService": f"secretsmanager.{self.region}.amazonaws.com"}},
        )

    @property
    def role_secrets(self) -> dict[str, str]:
        """The ARN of each role's secret, by the role's name."""
        return {role: self._secrets[part].secret_arn for part, role in ROLES.items()}

    def owner_secret_seen_from(self, scope: Construct) -> secretsmanager.ISecret:
        """The owner's secret as a construct of a later stack, so that the secret's attachments belong to that stack."""
        return secretsmanager.Secret.from_secret_attributes(
            scope, "OwnerSecret", secret_complete_arn=self._owner_secret.secret_arn, encryption_key=self._key
        )

    def _grant_read(self, grantee: iam.IGrantable, secrets: Sequence[secretsmanager.ISecret]) -> None:
        # Secret.grant_read would name the principal in the key's policy. This stack would then depend on a later one.
        grant(
            grantee,
            ["secretsmanager:GetSecretValue", "secretsmanager:DescribeSecret"],
            [secret.secret_arn for secret in secrets],
        )
        self.grant_decrypt(grantee, self._key.key_arn, "secretsmanager")

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
                exclude_characters=AWKWARD_CHARACTERS,
            ),
            removal_policy=self.data_removal,
        )
        acknowledge(secret, "SMG4", Reason.ROTATES_FROM_ANOTHER_STACK)
        return secret
