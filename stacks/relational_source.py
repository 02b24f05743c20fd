"""The PostgreSQL database that the source connector reads, Aurora or an existing one, as the other stacks see it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import IDependable

from headwater.contract.model import Contract
from stacks.assets import Assets
from stacks.base import HeadwaterStack


@dataclass(frozen=True)
class Address:
    """The database's address."""

    host: str
    port: str
    name: str
    secret: str
    """The name of the secret with the connector's user name and password."""


@dataclass(frozen=True)
class LogMetrics:
    """RDS's metrics of the replication slot and of the WAL that it retains."""

    sender: str
    """The name by which alarms call the sender of the metrics."""
    dimensions: Mapping[str, str]
    """The metrics' dimensions in the namespace AWS/RDS."""


@dataclass(frozen=True, kw_only=True)
class RelationalSource(ABC):
    """A PostgreSQL database and its resources, as other stacks use them."""

    address: Address
    stacks: Sequence[cdk.Stack]
    """Resources that have to exist before a connector starts."""
    slot_properties: Mapping[str, str] | None = None
    """The properties by which the connector's custom resource waits for the replication slot; None if it may not query
    it."""
    released_slot: str | None = None
    """The slot that the source connector itself drops before its deletion with the environment's data; None if
    ``publish`` does."""
    log_metrics: LogMetrics | None = None
    """RDS's metrics; None if the server sends none."""
    role_rotation: lambda_.Function | None = None
    """The function that sets new passwords of the connector's role; None if Headwater has none."""

    @abstractmethod
    def grant_capture(self, role: iam.Role, group: ec2.SecurityGroup) -> None:
        """Let the source connector, which has the role and the group, reach the database and log in."""

    @abstractmethod
    def grant_wait_for_slot(self, grantee: iam.IGrantable) -> None:
        """Let a custom resource of a later stack query the slot, if there are ``slot_properties``."""

    @abstractmethod
    def publish(self, stack: HeadwaterStack, contracts: Sequence[Contract], assets: Assets) -> Sequence[IDependable]:
        """Make the publication of the contracts' tables, unless the database's owner makes it.

        Returns the resources of ``stack`` that the source connector needs.
        """
