"""The base class of all stacks: names, keys, log groups and grants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from constructs import Construct

from headwater.environment.account import LAKE_TAG
from headwater.environment.model import Environment
from headwater.environment.protection import UNPROTECTED
from stacks.nag import Reason, acknowledge_wildcard


class HeadwaterStack(cdk.Stack):
    """A stack of one environment, named ``headwater-<environment>-<part>``."""

    def __init__(self, scope: Construct, *, environment: Environment, part: str, description: str) -> None:
        # CDK reads the zones inside the superclass's constructor, so this comes first.
        self._zones = list(environment.availability_zones)
        self.prefix = environment.prefix
        """The prefix of the environment's resource names, and the full name of some."""
        name = f"{self.prefix}-{part}"
        self.protected = environment.data.retain and name not in _unprotected(scope)
        """Whether the stack and its stores of data are protected from deletion."""
        super().__init__(
            scope,
            name,
            env=cdk.Environment(account=environment.account, region=environment.region),
            description=description,
            termination_protection=self.protected,
            tags={
                "project": "headwater",
                "environment": environment.name,
                LAKE_TAG: str(scope.node.get_context(LAKE_TAG)),
            },
        )
        self.environment_settings = environment
        self._part = part

    @staticmethod
    def of_construct(construct: Construct) -> HeadwaterStack:
        """The stack that a construct belongs to."""
        stack = cdk.Stack.of(construct)
        if not isinstance(stack, HeadwaterStack):
            raise TypeError(f"{construct.node.path}: found in {stack.node.path}, expected a stack of Headwater's")
        return stack

    @property
    def availability_zones(self) -> list[str]:
        """The availability zones from the environment's file.

        CDK's own property would need credentials to look them up.
        """
        return self._zones

    @property
    def data_removal(self) -> cdk.RemovalPolicy:
        """The removal policy of a resource that holds data.

        CloudFormation deletes even a retained resource if its creation is rolled back. Otherwise the resource's fixed
        name would make the next attempt fail.
        """
        if self.environment_settings.deletes_data:
            return cdk.RemovalPolicy.DESTROY
        return cdk.RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE

    def encryption_key(self, description: str, removal: cdk.RemovalPolicy | None = None) -> kms.Key:
        """The stack's encryption key, rotated each year.

        Without ``removal`` the key stays as long as the environment's data.
        """
        return kms.Key(
            self,
            "Key",
            alias=f"headwater/{self.environment_settings.name}/{self._part}",
            description=description,
            enable_key_rotation=True,
            removal_policy=removal or self.data_removal,
        )

    def log_group(self, scope: Construct, id_: str, path: str) -> logs.LogGroup:
        """A log group ``/headwater/<environment>/<path>`` with the environment's retention."""
        return self.service_log_group(scope, id_, f"/headwater/{self.environment_settings.name}/{path}")

    def service_log_group(
        self, scope: Construct, id_: str, log_group_name: str, key: kms.IKey | None = None
    ) -> logs.LogGroup:
        """The log group under the name that a service would use to create one that never expires."""
        return logs.LogGroup(
            scope,
            id_,
            log_group_name=log_group_name,
            encryption_key=key,
            retention=log_retention(self.environment_settings.log_days),
            removal_policy=self.data_removal,
        )

    def service_principal(self, service: str, source_arn: str | None = None) -> iam.ServicePrincipal:
        """An AWS service, such as ``glue.amazonaws.com``, while it acts on behalf of this account.

        With ``source_arn``, only while the service acts for a resource that matches. Not every service reports its
        resource.
        """
        conditions: dict[str, dict[str, str]] = {"StringEquals": {"aws:SourceAccount": self.account}}
        if source_arn is not None:
            conditions["ArnLike"] = {"aws:SourceArn": source_arn}
        return iam.ServicePrincipal(service, conditions=conditions)

    def grant_put_metrics(self, grantee: iam.IGrantable, namespace: str) -> None:
        """Let a principal send metrics to one CloudWatch namespace."""
        grant(
            grantee,
            ["cloudwatch:PutMetricData"],
            ["*"],
            conditions={"StringEquals": {"cloudwatch:namespace": namespace}},
            wildcard=Reason.ACTION_TAKES_NO_RESOURCE,
        )

    def grant_put_events(self, grantee: iam.IGrantable, source: str) -> None:
        """Let a principal send events of one source to the account's event bus."""
        grant(
            grantee,
            ["events:PutEvents"],
            [self.format_arn(service="events", resource="event-bus", resource_name="default")],
            conditions={"StringEquals": {"events:source": source}},
        )

    def grant_read_secret(self, grantee: iam.IGrantable, name: str, key_arn: str | None) -> None:
        """Let a principal read a secret by its name, and decrypt it with its key. None as the key means AWS's own key.

        The policy names the secret instead of importing its ARN: an export would keep an unused secret from being
        deleted.
        """
        arn = self.format_arn(
            service="secretsmanager",
            resource="secret",
            # An ARN of Secrets Manager ends with a hyphen and six random characters.
            resource_name=f"{name}-??????",
            arn_format=cdk.ArnFormat.COLON_RESOURCE_NAME,
        )
        grant(grantee, ["secretsmanager:GetSecretValue"], [arn])
        if key_arn is not None:
            self.grant_decrypt(grantee, key_arn, "secretsmanager")

    def grant_decrypt(self, grantee: iam.IGrantable, key_arn: str, service: str) -> None:
        """Let a principal of this or a later stack decrypt with a key through one service, such as ``kinesis``.

        The key's own grant would name the principal in the key's policy. The key's stack would then depend on the later
        stack.
        """
        grant(
            grantee,
            ["kms:Decrypt"],
            [key_arn],
            conditions={"StringEquals": {"kms:ViaService": f"{service}.{self.region}.amazonaws.com"}},
        )


def grant(
    grantee: iam.IGrantable,
    actions: Sequence[str],
    resources: Sequence[str],
    *,
    conditions: Mapping[str, Mapping[str, str]] | None = None,
    wildcard: Reason | None = None,
) -> None:
    """Let a principal do these actions on resources, through a policy resource separate from its role.

    ``wildcard`` is the reason why the ARN of a resource may contain a ``*``.
    """
    iam.Grant.add_to_principal(
        grantee=grantee, actions=list(actions), resource_arns=list(resources), conditions=conditions
    )
    if wildcard is not None:
        acknowledge_wildcard(grantee, resources, wildcard)


def _unprotected(scope: Construct) -> list[str]:
    """The names of the unfinished stacks, which ``headwater deploy`` puts into the context.

    A protected stack whose creation has failed can be neither deleted nor created again. So a stack is protected only
    after it is complete.
    """
    return str(scope.node.try_get_context(UNPROTECTED) or "").split(",")


def grant_pass_role(grantee: iam.Role, role: iam.IRole, service: str) -> None:
    """Let a role hand another role to one service, such as ``ec2.amazonaws.com``."""
    conditions = {"StringEquals": {"iam:PassedToService": service}}
    grant(grantee, ["iam:PassRole"], [role.role_arn], conditions=conditions)


def properties_text(values: Mapping[str, str]) -> str:
    """The text of a Kafka properties file."""
    return "".join(f"{key}={value}\n" for key, value in sorted(values.items()))


def log_retention(days: int) -> logs.RetentionDays:
    """CDK's constant for a retention in days. The days are one of ``headwater.environment.model.LOG_DAYS``."""
    words = {
        7: "ONE_WEEK", 14: "TWO_WEEKS", 30: "ONE_MONTH", 60: "TWO_MONTHS", 90: "THREE_MONTHS", 120: "FOUR_MONTHS",
        150: "FIVE_MONTHS", 180: "SIX_MONTHS", 365: "ONE_YEAR", 400: "THIRTEEN_MONTHS", 545: "EIGHTEEN_MONTHS",
        731: "TWO_YEARS", 1096: "THREE_YEARS", 1827: "FIVE_YEARS", 2192: "SIX_YEARS", 2557: "SEVEN_YEARS",
        2922: "EIGHT_YEARS", 3288: "NINE_YEARS", 3653: "TEN_YEARS", 1: "ONE_DAY", 3: "THREE_DAYS", 5: "FIVE_DAYS",
    }  # fmt: skip
    return logs.RetentionDays[words[days]]
