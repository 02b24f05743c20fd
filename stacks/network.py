"""The VPC, its ways out, and the bastion."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import custom_resources as custom
from constructs import Construct

from headwater.environment.model import Environment
from stacks.base import HeadwaterStack, grant
from stacks.look_up import look_up
from stacks.nag import Reason, acknowledge

# AmazonEMRServicePolicy_v2 lets EMR act only on resources that carry this tag with the value "true".
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
# The actions that Session Manager's agent calls: those of AmazonSSMManagedInstanceCore that sessions need.
_SESSION_MANAGER = (
    "ec2messages:AcknowledgeMessage",
    "ec2messages:DeleteMessage",
    "ec2messages:FailMessage",
    "ec2messages:GetEndpoint",
    "ec2messages:GetMessages",
    "ec2messages:SendReply",
    "ssm:UpdateInstanceInformation",
    "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
)
# The tiers of subnets that later stacks use.
_WORK, _DATA = "work", "data"
# The names of the architectures in Amazon Linux 2023's public parameters:
# https://docs.aws.amazon.com/linux/al2023/ug/ec2.html
_ARCHITECTURES = {ec2.InstanceArchitecture.ARM_64: "arm64", ec2.InstanceArchitecture.X86_64: "x86_64"}
# The device of Amazon Linux 2023's root volume.
_ROOT_DEVICE = "/dev/xvda"


class NetworkStack(HeadwaterStack):
    """A VPC with three tiers of subnets: ``public``, ``work`` and ``data``.

    ``public`` holds the NAT only, ``work`` reaches the internet through it, and ``data`` reaches nothing outside the
    VPC.
    """

    def __init__(self, scope: Construct, *, environment: Environment) -> None:
        super().__init__(
            scope, environment=environment, part="network", description="Headwater: VPC, endpoints, bastion"
        )
        cdk.Validations.of(self).acknowledge(
            cdk.Acknowledgment(
                id="CloudFormation-Validate::W3010",
                reason="The environment's file names the zones, so that synthesis needs no credentials",
            )
        )
        self._images: dict[str, custom.AwsCustomResource] = {}
        settings = environment.postgresql.network
        nat = None
        if settings.nat_instance_type is not None:
            nat = ec2.NatProvider.instance_v2(
                instance_type=ec2.InstanceType(settings.nat_instance_type),
                machine_image=self._image(ec2.InstanceType(settings.nat_instance_type)),
                associate_public_ip_address=True,
                user_data=_translates_addresses(),
                # CDK's default lets in the whole world; ``_protect`` lets in only the VPC.
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
                ec2.SubnetConfiguration(name=_WORK, subnet_type=ec2.SubnetType.PRIVATE_WITH_EGRESS, cidr_mask=21),
                ec2.SubnetConfiguration(name=_DATA, subnet_type=ec2.SubnetType.PRIVATE_ISOLATED, cidr_mask=24),
            ],
            gateway_endpoints={
                "S3Endpoint": ec2.GatewayVpcEndpointOptions(service=ec2.GatewayVpcEndpointAwsService.S3),
                "DynamoDbEndpoint": ec2.GatewayVpcEndpointOptions(service=ec2.GatewayVpcEndpointAwsService.DYNAMODB),
            },
        )
        if nat is not None:
            self._protect(nat)
        writes_flow_logs = iam.Role(
            self,
            "FlowLogRole",
            description="Flow logs of the VPC",
            # The log's ARN is unknown before the log exists, and the log takes this role.
            assumed_by=self.service_principal(
                "vpc-flow-logs.amazonaws.com",
                self.format_arn(service="ec2", resource="vpc-flow-log", resource_name="*"),
            ),
        )
        self.vpc.add_flow_log(
            "FlowLog",
            destination=ec2.FlowLogDestination.to_cloud_watch_logs(
                self.log_group(self, "FlowLogGroup", "flow"), writes_flow_logs
            ),
        )
        endpoints = ec2.SecurityGroup(
            self, "EndpointSecurityGroup", vpc=self.vpc, description="Interface endpoints", allow_all_outbound=False
        )
        # IAM limits what a caller may do through the endpoint.
        endpoints.add_ingress_rule(ec2.Peer.ipv4(settings.cidr), ec2.Port.tcp(443), "from within the VPC")
        zones = environment.availability_zones
        zones = zones[:1] if settings.endpoint_zones == "first" else zones
        for name in settings.interface_endpoints:
            self.vpc.add_interface_endpoint(
                f"{name.capitalize()}Endpoint",
                service=_ENDPOINTS[name],
                subnets=ec2.SubnetSelection(subnet_group_name=_WORK, availability_zones=list(zones)),
                security_groups=[endpoints],
                open=False,
            )
        for subnet in self.vpc.select_subnets(subnet_group_name=_WORK).subnets:
            cdk.Tags.of(subnet).add(EMR_TAG, "true")
        # A peering with an existing database's VPC imports these values, so they are exported always. If only its
        # import exported them, the deploy that ends the peering would remove the exports while that stack still imports
        # them. CloudFormation refuses that.
        for table in self.work_route_table_ids:
            self.export_value(table)
        self.bastion = self._bastion()
        # The same holds for the bastion's group, which EMR imports for `emr.web_interfaces` and the database for
        # itself.
        for group in self.bastion.connections.security_groups:
            self.export_value(group.security_group_id)
        cdk.CfnOutput(self, "BastionInstance", value=self.bastion.instance_id)

    @property
    def work(self) -> ec2.SubnetSelection:
        """The subnets of Connect, EMR and the bastion."""
        return ec2.SubnetSelection(subnet_group_name=_WORK)

    @property
    def data(self) -> ec2.SubnetSelection:
        """The subnets of Aurora and MSK."""
        return ec2.SubnetSelection(subnet_group_name=_DATA)

    @property
    def work_subnet_ids(self) -> list[str]:
        """The ids of the subnets ``work``, in the order of the zones."""
        return list(self.vpc.select_subnets(subnet_group_name=_WORK).subnet_ids)

    @property
    def work_route_table_ids(self) -> list[str]:
        """The ids of the route tables of the subnets ``work``, in the order of the zones."""
        subnets = self.vpc.select_subnets(subnet_group_name=_WORK).subnets
        return [subnet.route_table.route_table_id for subnet in subnets]

    @property
    def data_subnet_ids(self) -> list[str]:
        """The ids of the subnets ``data``, in the order of the zones."""
        return list(self.vpc.select_subnets(subnet_group_name=_DATA).subnet_ids)

    def _protect(self, nat: ec2.NatInstanceProviderV2) -> None:
        """Close what CDK's NAT instance leaves open: let in only the VPC, encrypt its disk, require IMDSv2."""
        nat.connections.allow_from(
            ec2.Peer.ipv4(self.environment_settings.postgresql.network.cidr),
            ec2.Port.all_traffic(),
            "from within the VPC",
        )
        for instance in nat.gateway_instances:
            cdk.Aspects.of(instance).add(ec2.InstanceRequireImdsv2Aspect())
            instance.instance.block_device_mappings = [
                ec2.CfnInstance.BlockDeviceMappingProperty(
                    device_name=_ROOT_DEVICE, ebs=ec2.CfnInstance.EbsProperty(encrypted=True)
                )
            ]
            for rule in ("EC28", "EC29"):
                acknowledge(instance, rule, Reason.STATELESS_HOST)

    def _image(self, instance_type: ec2.InstanceType) -> ec2.IMachineImage:
        """The newest image of Amazon Linux 2023 at the time of the last change of ``image_generation``.

        CDK's own images are parameters that CloudFormation resolves at each deploy. After AWS releases a newer image,
        any deploy would replace the hosts.
        """
        architecture = _ARCHITECTURES[instance_type.architecture]
        name = f"Image{architecture}"
        image = self._images.get(architecture)
        if image is None:
            parameter = f"/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-{architecture}"
            call = custom.AwsSdkCall(
                service="SSM",
                action="getParameter",
                parameters={"Name": parameter},
                physical_resource_id=custom.PhysicalResourceId.of(
                    f"{architecture}-{self.environment_settings.postgresql.network.image_generation}"
                ),
                output_paths=["Parameter.Value"],
            )
            arn = self.format_arn(service="ssm", account="", resource="parameter", resource_name=parameter[1:])
            image = self._images[architecture] = look_up(self, name, call, "ssm:GetParameter", [arn])
        return ec2.MachineImage.generic_linux({self.region: image.get_response_field("Parameter.Value")})

    def _bastion(self) -> ec2.Instance:
        """A host without inbound ports, reached through Session Manager.

        Each target has its own rule for the bastion.
        """
        group = ec2.SecurityGroup(
            self, "BastionSecurityGroup", vpc=self.vpc, description="Bastion", allow_all_outbound=False
        )
        group.add_egress_rule(ec2.Peer.any_ipv4(), ec2.Port.tcp(443), "Session Manager and package repositories")
        instance_type = ec2.InstanceType("t4g.nano")
        bastion = ec2.Instance(
            self,
            "Bastion",
            instance_name=f"{self.prefix}-bastion",
            vpc=self.vpc,
            vpc_subnets=self.work,
            security_group=group,
            instance_type=instance_type,
            machine_image=self._image(instance_type),
            require_imdsv2=True,
            block_devices=[
                ec2.BlockDevice(device_name=_ROOT_DEVICE, volume=ec2.BlockDeviceVolume.ebs(8, encrypted=True))
            ],
        )
        grant(bastion, _SESSION_MANAGER, ["*"], wildcard=Reason.ACTION_TAKES_NO_RESOURCE)
        for rule in ("EC28", "EC29"):
            acknowledge(bastion, rule, Reason.STATELESS_HOST)
        return bastion


def _translates_addresses() -> ec2.UserData:
    """Make an instance of Amazon Linux 2023 a NAT.

    CDK's own commands try only once to install the packages. If the package manager is busy, or out of memory as on a
    .nano, the instance runs but forwards nothing. The deployment would go on until something cannot reach AWS.
    """
    data = ec2.UserData.for_linux()
    data.add_commands(
        "dd if=/dev/zero of=/swap bs=1M count=512",
        "chmod 600 /swap",
        "mkswap /swap",
        "swapon /swap",
        "until dnf install -y iptables-services; do sleep 5; done",
        "echo net.ipv4.ip_forward=1 >/etc/sysctl.d/nat.conf",
        "sysctl -p /etc/sysctl.d/nat.conf",
        "systemctl enable --now iptables",
        "iptables -t nat -A POSTROUTING -o \"$(ip -o route show default | awk '{print $5; exit}')\" -j MASQUERADE",
        "iptables -F FORWARD",
        "service iptables save",
    )
    return data
