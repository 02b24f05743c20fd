"""The PostgreSQL database that the source connector reads: what the other stacks ask of it, whoever has made it."""

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
    """Where the database is, and ``secret``, the name of the secret with the connector's user name and password."""

    host: str
    port: str
    name: str
    secret: str


@dataclass(frozen=True)
class LogMetrics:
    """Where RDS tells of the replication slot and of the log that is kept: ``sender`` is what people call it, and
    ``dimensions`` are those of its metrics in the namespace AWS/RDS."""

    sender: str
    dimensions: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class RelationalSource(ABC):
    """A database, and what there is around it.

    ``stacks`` have to stand before a connector starts. ``slot_properties`` are those by which the source connector's
    custom resource waits for the replication slot, None where it may not ask. ``released_slot`` is the slot that the
    source connector drops itself before it is deleted with the environment's data, None where ``publish`` sees to that.
    ``log_metrics`` is None where the server sends none, and ``role_rotation``, which gives the connector's role new
    passwords, where nothing of ours does.
    """

    address: Address
    stacks: Sequence[cdk.Stack]
    slot_properties: Mapping[str, str] | None = None
    released_slot: str | None = None
    log_metrics: LogMetrics | None = None
    role_rotation: lambda_.Function | None = None

    @abstractmethod
    def grant_capture(self, role: iam.Role, group: ec2.SecurityGroup) -> None:
        """Let the source connector, which has the role and the group, reach the database and log in."""

    @abstractmethod
    def grant_wait_for_slot(self, grantee: iam.IGrantable) -> None:
        """Let a custom resource of a later stack look at the slot, where there are ``slot_properties``."""

    @abstractmethod
    def publish(self, stack: HeadwaterStack, contracts: Sequence[Contract], assets: Assets) -> Sequence[IDependable]:
        """Make the publication of the contracts' tables, where its owner does not. Returns the resources of ``stack``
        that the source connector needs."""
