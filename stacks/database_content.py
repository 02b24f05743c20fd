"""Database content: schema, outbox and roles, and afterwards the rotation of the owner's secret.

Both run code in the cluster, and either may fail. They stand in a stack of their own, so that a failure rolls back no
cluster.
"""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_s3_assets as s3_assets
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct, IDependable

from headwater.definitions.order_database import ORDERS_SPAN, REPAIR, content_statements
from headwater.deployment.environment import Environment
from stacks.assets import Assets, grant_fetch
from stacks.base import HeadwaterStack
from stacks.database import AWKWARD_CHARACTERS, DatabaseStack
from stacks.network import NetworkStack
from stacks.polled import PolledProvider


class DatabaseContentStack(HeadwaterStack):
    """What stands in the database before a connector reads it."""

    def __init__(
        self,
        scope: Construct,
        *,
        environment: Environment,
        network: NetworkStack,
        database: DatabaseStack,
        assets: Assets,
    ) -> None:
        super().__init__(
            scope,
            environment=environment,
            part="database-content",
            description="Headwater: schema, outbox and roles of the database, rotation",
        )
        # The dependency covers the cluster's instances, without which nobody answers.
        self.add_stack_dependency(database)
        content = self._content(database, assets)
        self._rotation(network, database, content)

    def _content(self, database: DatabaseStack, assets: Assets) -> cdk.CustomResource:
        """Create schema, outbox and roles, and run their statements again whenever these change."""
        document = {"statements": content_statements(), "span": ORDERS_SPAN, "repair": REPAIR}
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
        """Rotate the owner's password every month. The first rotation follows at once, so it begins when the content
        stands: the bootstrap runs as the owner."""
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
        # The function that rotates would make its log group itself. It is named after its construct.
        function = cdk.Names.unique_id(rotation)[-64:]
        logs = self.service_log_group(self, "RotationLogs", f"/aws/lambda/{function}")
        rotation.node.add_dependency(content, logs)
