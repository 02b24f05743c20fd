"""The route from the connectors' subnets to a database in another VPC."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from headwater.environment.model import Environment, Peering
from stacks.base import HeadwaterStack
from stacks.network import NetworkStack


class DatabasePeeringStack(HeadwaterStack):
    """A peering with the VPC whose network is ``cidr``, and routes both ways.

    Within one account and region, CloudFormation accepts a peering by itself.
    """

    def __init__(
        self, scope: Construct, *, environment: Environment, settings: Peering, cidr: str, network: NetworkStack
    ) -> None:
        super().__init__(
            scope,
            environment=environment,
            part="database-peering",
            description="Headwater: peering with the VPC of an existing database",
        )
        peering = ec2.CfnVPCPeeringConnection(
            self,
            "Peering",
            vpc_id=network.vpc.vpc_id,
            peer_vpc_id=settings.vpc,
            tags=[cdk.CfnTag(key="Name", value=f"{self.prefix}-database")],
        )
        routes = {f"Route{at}": (table, cidr) for at, table in enumerate(network.work_route_table_ids, start=1)}
        # The id of a route contains its table's id. With numbers, a removed table would shift the ids of all
        # later routes.
        routes |= {
            f"RouteBack-{table}": (table, environment.postgresql.network.cidr) for table in settings.route_tables
        }
        for name, (table, destination) in routes.items():
            ec2.CfnRoute(
                self,
                name,
                route_table_id=table,
                destination_cidr_block=destination,
                vpc_peering_connection_id=peering.attr_id,
            )
