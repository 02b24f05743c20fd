"""The Aurora database of the deployment, as the stacks of the connector and the alarms see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3_assets as s3_assets
from constructs import IDependable

from headwater.contract.model import Contract
from headwater.definitions import open_transactions
from headwater.definitions.connectors import PUBLICATION, SLOT
from headwater.definitions.source_database import publication_statements, published_tables
from stacks.assets import Assets, grant_fetch
from stacks.base import HeadwaterStack
from stacks.database import DatabaseStack
from stacks.database_content import DatabaseContentStack
from stacks.polled import PolledProvider
from stacks.relational_source import LogMetrics, RelationalSource


@dataclass(frozen=True, kw_only=True)
class AuroraSource(RelationalSource):
    """Aurora's stack together with the stack of its content."""

    database: DatabaseStack

    @classmethod
    def of(cls, database: DatabaseStack, content: DatabaseContentStack) -> AuroraSource:
        """Return the source of the two stacks. The connector logs in as a role that the content stack creates."""
        return cls(
            address=database.address,
            stacks=[database, content],
            slot_properties={"Name": SLOT, **database.data_api},
            log_metrics=LogMetrics(
                "Aurora", {"DBClusterIdentifier": database.cluster.cluster_identifier, "Role": "WRITER"}
            ),
            role_rotation=content.role_rotation,
            database=database,
        )

    def grant_capture(self, role: iam.Role, group: ec2.SecurityGroup) -> None:
        """Let the source connector reach the database and read its role's secret. Both security groups get a rule."""
        self.database.grant_connect(group)
        self.database.grant_log_in(role, "cdc")

    def grant_wait_for_slot(self, grantee: iam.IGrantable) -> None:
        """Let a custom resource query the slot through the Data API."""
        self.database.grant_run_sql(grantee)

    def publish(self, stack: HeadwaterStack, contracts: Sequence[Contract], assets: Assets) -> Sequence[IDependable]:
        """Make the publication by a custom resource. Its deletion also drops the connector's slot."""
        document = {
            "transactions": open_transactions.FIND,
            "tables": published_tables(contracts),
            "statements": publication_statements(contracts),
        }
        statements = s3_assets.Asset(stack, "Statements", path=str(assets.statements("publication", document)))
        provider = PolledProvider(stack, "Publications", module="database_bootstrap", assets=assets)
        grant_fetch(provider.role, [statements])
        self.database.grant_run_sql(provider.role)
        publication = provider.resource(
            "Publication",
            "Publication",
            PUBLICATION,
            {
                **self.database.data_api,
                "Statements": statements.s3_object_url,
                "Slot": SLOT,
                "Publication": PUBLICATION,
            },
        )
        return [publication]
