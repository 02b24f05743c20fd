"""The content of the database: capture's objects, the lake folder's SQL and the roles; then the rotation of secrets.

Both run code in the cluster, and either may fail. They have their own stack, so that a failure does not roll back the
cluster.
"""

from __future__ import annotations

from collections.abc import Sequence

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3_assets as s3_assets
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct, IDependable

from headwater.definitions import database_files
from headwater.definitions.database_files import SqlFile
from headwater.definitions.source_database import CDC_ROLE, created_statements
from headwater.environment.model import Environment
from stacks.assets import Assets, grant_fetch
from stacks.base import HeadwaterStack, grant
from stacks.database import AWKWARD_CHARACTERS, DatabaseStack
from stacks.nag import Reason
from stacks.network import NetworkStack
from stacks.polled import LONGEST_STEP, Functions, PolledProvider


class DatabaseContentStack(HeadwaterStack):
    """The content of the database before a connector reads it.

    ``files`` are the SQL files of the lake folder. ``connector`` is the name of the connector that will read the
    database.
    """

    def __init__(
        self,
        scope: Construct,
        *,
        environment: Environment,
        network: NetworkStack,
        database: DatabaseStack,
        files: Sequence[SqlFile],
        connector: str,
        assets: Assets,
    ) -> None:
        super().__init__(
            scope,
            environment=environment,
            part="database-content",
            description="Headwater: schema, outbox and roles of the database, rotation",
        )
        # The dependency includes the cluster's instances, without which no query is answered.
        self.add_stack_dependency(database)
        content = self._content(database, files, assets)
        self._rotation(network, database, content)
        self.role_rotation = self._role_rotation(database, connector, content, assets)

    def _content(self, database: DatabaseStack, files: Sequence[SqlFile], assets: Assets) -> cdk.CustomResource:
        """Create capture's objects and the roles, and run the lake folder's files.

        Statements for capture and roles run again whenever they change; each statement of a file runs once.
        """
        document = {"statements": created_statements(), **database_files.document(files)}
        statements = s3_assets.Asset(self, "Statements", path=str(assets.statements("content", document)))
        provider = PolledProvider(self, "Bootstrap", module="database_bootstrap", assets=assets)
        grant_fetch(provider.role, [statements])
        database.grant_fill(provider.role)
        return provider.resource(
            "Database",
            "Content",
            self.prefix,
            {
                **database.data_api,
                "Statements": statements.s3_object_url,
                "RoleSecrets": database.role_secrets,
            },
        )

    def _rotation(self, network: NetworkStack, database: DatabaseStack, content: IDependable) -> None:
        """Rotate the owner's password every month.

        Secrets Manager rotates once at the start, so the rotation waits for the content: the bootstrap runs as the
        owner.
        """
        rotation = secretsmanager.SecretRotation(
            self,
            "Rotation",
            secret=database.owner_secret_seen_from(self),
            application=secretsmanager.SecretRotationApplication.POSTGRES_ROTATION_SINGLE_USER,
            target=database.cluster,
            vpc=network.vpc,
            vpc_subnets=network.work,
            security_group=database.rotation_group,
            automatically_after=cdk.Duration.days(30),
            exclude_characters=AWKWARD_CHARACTERS,
        )
        # The rotating function would create its log group itself. The function is named after its construct.
        function = cdk.Names.unique_id(rotation)[-64:]
        logs = self.service_log_group(self, "RotationLogs", f"/aws/lambda/{function}")
        rotation.node.add_dependency(content, logs)

    def _role_rotation(
        self, database: DatabaseStack, connector: str, content: IDependable, assets: Assets
    ) -> lambda_.Function:
        """Rotate the roles' passwords every month, for the first time after a month."""
        functions = Functions(self, "RoleRotation", module="rotation", assets=assets)
        database.grant_rotate(functions.role)
        self._grant_restart(functions.role, connector)
        function = functions.function("Rotate", "rotate", LONGEST_STEP)
        target = {
            "database": database.data_api,
            "roles": {arn: role for role, arn in database.role_secrets.items()},
            "connectors": {CDC_ROLE: connector},
            "excluded": AWKWARD_CHARACTERS,
        }
        function.add_environment("TARGET", self.to_json_string(target))
        function.add_permission(
            "SecretsManager",
            principal=iam.ServicePrincipal("secretsmanager.amazonaws.com"),
            source_account=self.account,
        )
        for role, arn in database.role_secrets.items():
            schedule = secretsmanager.CfnRotationSchedule(
                self,
                f"Rotation-{role}",
                secret_id=arn,
                rotation_lambda_arn=function.function_arn,
                rotation_rules=secretsmanager.CfnRotationSchedule.RotationRulesProperty(automatically_after_days=30),
                # No rotation at once: the content has just set the passwords, and connectors are about to start.
                rotate_immediately_on_update=False,
            )
            schedule.node.add_dependency(content, functions)
        return function

    def _grant_restart(self, role: iam.Role, connector: str) -> None:
        """Let the rotation restart the connector that logs in as one of the roles."""
        arn = self.format_arn(service="kafkaconnect", resource="connector", resource_name=f"{connector}/*")
        grant(role, ["kafkaconnect:RestartConnector"], [arn], wildcard=Reason.NAMES_BELOW_A_PREFIX)
        grant(role, ["kafkaconnect:ListConnectors"], ["*"], wildcard=Reason.ACTION_TAKES_NO_RESOURCE)
