"""An existing PostgreSQL database, as the stacks of its connector and its alarms see it.

Its owner makes role, publication, heartbeat and signals by ``headwater db capture``. The deployment may read the
password of that role, and no other password.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import IDependable

from headwater.contract.model import Contract
from headwater.definitions.connectors import SLOT
from headwater.environment.model import ExistingDatabase, Monitored
from stacks.assets import Assets
from stacks.base import HeadwaterStack
from stacks.database_peering import DatabasePeeringStack
from stacks.relational_source import Address, LogMetrics, RelationalSource


@dataclass(frozen=True, kw_only=True)
class ExistingSource(RelationalSource):
    """The database that the environment's file describes."""

    settings: ExistingDatabase

    @classmethod
    def of(cls, settings: ExistingDatabase, peering: DatabasePeeringStack | None) -> ExistingSource:
        """Return the source. ``peering`` is the route to it; None if its owner provides the route."""
        return cls(
            address=Address(settings.host, str(settings.port), settings.name, settings.secret),
            stacks=[peering] if peering is not None else [],
            released_slot=SLOT,
            log_metrics=_log_metrics(settings.monitored) if settings.monitored is not None else None,
            settings=settings,
        )

    def grant_capture(self, role: iam.Role, group: ec2.SecurityGroup) -> None:
        """Let the source connector reach the database's port and read the secret.

        With a peering, the rule names the database's security group.
        """
        self._grant_reach(group)
        HeadwaterStack.of_construct(role).grant_read_secret(role, self.settings.secret, self.settings.secret_key)

    def grant_wait_for_slot(self, grantee: iam.IGrantable) -> None:
        """Grant nothing: no custom resource can reach the database."""

    def publish(self, stack: HeadwaterStack, contracts: Sequence[Contract], assets: Assets) -> Sequence[IDependable]:
        """Make nothing: ``headwater db capture`` has made the publication."""
        return []

    def _grant_reach(self, group: ec2.SecurityGroup) -> None:
        number, peering = self.settings.port, self.settings.peering
        port = ec2.Port.tcp(number)
        if peering is None:
            group.add_egress_rule(ec2.Peer.ipv4(self.settings.cidr), port, "PostgreSQL")
            return
        group.add_egress_rule(ec2.Peer.security_group_id(peering.security_group), port, "PostgreSQL")
        ec2.CfnSecurityGroupIngress(
            group,
            "IntoDatabase",
            description="Source connector of Headwater",
            group_id=peering.security_group,
            source_security_group_id=group.security_group_id,
            ip_protocol="tcp",
            from_port=number,
            to_port=number,
        )


def _log_metrics(monitored: Monitored) -> LogMetrics:
    if monitored.kind == "cluster":
        return LogMetrics("RDS", {"DBClusterIdentifier": monitored.identifier, "Role": "WRITER"})
    return LogMetrics("RDS", {"DBInstanceIdentifier": monitored.identifier})
