"""Network: the VPC, its ways out, and the bastion."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from headwater.environment import Environment
from stacks.base import HeadwaterStack

# AmazonEMRServicePolicy_v2 lets EMR act only on what carries this tag with the value "true".
EMR_TAG = "for-use-with-amazon-emr-managed-policies"
_ENDPOINTS = {
    "ec2messages": ec2.InterfaceVpcEndpointAwsService.EC2_MESSAGES,
    "glue": ec2.InterfaceVpcEndpointAwsService.GLUE,
    "kms": ec2.InterfaceVpcEndpointAwsService.KMS,
    "logs": ec2.InterfaceVpcEndpointAwsService.CLOUDWATCH_LOGS,
    "monitoring": ec2.InterfaceVpcEndpointAwsService.CLOUDWATCH_MONITORING,
    "secretsmanager": ec2.InterfaceVpcEndpointAwsService.SECRETS_MANAGER,
    "ssm": ec2.InterfaceVpcEndpointAwsService.SSM,
    "ssmmessages": ec2.InterfaceVpcEndpointAwsService.SSM_MESSAGES,
    "sts": ec2.InterfaceVpcEndpointAwsService.STS,
}


class NetworkStack(HeadwaterStack):
    """Three tiers of subnets: ``public`` holds the NAT only, ``work`` reaches out through it, ``data`` reaches
    nothing outside."""

    def __init__(self, scope: Construct, environment: Environment) -> None:
        super().__init__(scope, environment, "network", "Headwater: VPC, endpoints, bastion")
        settings = environment.network
        nat = None
        if settings.nat_instance_type is not None:
            nat = ec2.NatProvider.instance_v2(
                instance_type=ec2.InstanceType(settings.nat_instance_type),
                associate_public_ip_address=True,
                # The default lets the world in; the VPC's own traffic is let in below.
                default_allowed_traffic=ec2.NatTrafficDirection.OUTBOUND_ONLY,
            )
        self.vpc = ec2.Vpc(
            self,
            "Vpc",
            ip_addresses=ec2.IpAddresses.cidr(settings.cidr),
            availability_zones=list(environment.availability_zones),
            nat_gateways=1 if nat is not None else len(environment.availability_zones),
            nat_gateway_provider=nat,
            subnet_configuration=[
                ec2.SubnetConfiguration(
                    name="public", subnet_type=ec2.SubnetType.PUBLIC, cidr_mask=24, map_public_ip_on_launch=False
                ),
                ec2.SubnetConfiguration(name="work", subnet_type=ec2.SubnetType.PRIVATE_WITH_EGRESS, cidr_mask=21),
                ec2.SubnetConfiguration(name="data", subnet_type=ec2.SubnetType.PRIVATE_ISOLATED, cidr_mask=24),
            ],
            gateway_endpoints={
                "S3Endpoint": ec2.GatewayVpcEndpointOptions(service=ec2.GatewayVpcEndpointAwsService.S3),
                "DynamoDbEndpoint": ec2.GatewayVpcEndpointOptions(service=ec2.GatewayVpcEndpointAwsService.DYNAMODB),
            },
        )
        if nat is not None:
            nat.connections.allow_from(
                ec2.Peer.ipv4(self.vpc.vpc_cidr_block), ec2.Port.all_traffic(), "from within the VPC"
            )
        self.vpc.add_flow_log(
            "FlowLog",
            destination=ec2.FlowLogDestination.to_cloud_watch_logs(self.log_group(self, "FlowLogGroup", "flow")),
        )
        for name in settings.interface_endpoints:
            self.vpc.add_interface_endpoint(
                f"{name.capitalize()}Endpoint",
                service=_ENDPOINTS[name],
                subnets=ec2.SubnetSelection(subnet_group_name="work"),
            )
        for subnet in self.vpc.select_subnets(subnet_group_name="work").subnets:
            cdk.Tags.of(subnet).add(EMR_TAG, "true")
        self.bastion = self._bastion()
        cdk.CfnOutput(self, "BastionInstance", value=self.bastion.instance_id)

    @property
    def work(self) -> ec2.SubnetSelection:
        """The subnets of Connect, EMR and the bastion."""
        return ec2.SubnetSelection(subnet_group_name="work")

    @property
    def data(self) -> ec2.SubnetSelection:
        """The subnets of Aurora and MSK."""
        return ec2.SubnetSelection(subnet_group_name="data")

    def _bastion(self) -> ec2.BastionHostLinux:
        """A host that Session Manager reaches, with no inbound port; what it may reach is said by each target."""
        group = ec2.SecurityGroup(
            self, "BastionSecurityGroup", vpc=self.vpc, description="Bastion", allow_all_outbound=False
        )
        group.add_egress_rule(ec2.Peer.any_ipv4(), ec2.Port.tcp(443), "Session Manager and package repositories")
        return ec2.BastionHostLinux(
            self,
            "Bastion",
            vpc=self.vpc,
            subnet_selection=self.work,
            security_group=group,
            instance_type=ec2.InstanceType("t4g.nano"),
            machine_image=ec2.MachineImage.latest_amazon_linux2023(cpu_type=ec2.AmazonLinuxCpuType.ARM_64),
            require_imdsv2=True,
            block_devices=[
                ec2.BlockDevice(device_name="/dev/xvda", volume=ec2.BlockDeviceVolume.ebs(8, encrypted=True))
            ],
        )
