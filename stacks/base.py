"""What all stacks have in common."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from constructs import Construct

from headwater.deployment.environment import Environment
from stacks.nag import Reason, acknowledge_wildcard


class HeadwaterStack(cdk.Stack):
    """A stack of one environment, named ``headwater-<environment>-<part>``."""

    def __init__(self, scope: Construct, environment: Environment, part: str, description: str) -> None:
        self._zones = list(environment.availability_zones)
        super().__init__(
            scope,
            f"headwater-{environment.name}-{part}",
            env=cdk.Environment(account=environment.account, region=environment.region),
            description=description,
            termination_protection=environment.data.retain,
            tags={"project": "headwater", "environment": environment.name},
        )
        self.environment_settings = environment

    @property
    def availability_zones(self) -> list[str]:
        """The zones that the environment's file names; the default would look them up with credentials."""
        return self._zones

    @property
    def data_removal(self) -> cdk.RemovalPolicy:
        """What becomes of a resource that holds data when it leaves its stack."""
        return cdk.RemovalPolicy.DESTROY if self.environment_settings.deletes_data else cdk.RemovalPolicy.RETAIN

    def grant_put_metrics(self, grantee: iam.IGrantable, namespace: str) -> None:
        """Let a principal send metrics to one namespace of CloudWatch."""
        iam.Grant.add_to_principal(
            grantee=grantee,
            actions=["cloudwatch:PutMetricData"],
            resource_arns=["*"],
            conditions={"StringEquals": {"cloudwatch:namespace": namespace}},
        )
        acknowledge_wildcard(grantee, ["*"], Reason.ACTION_TAKES_NO_RESOURCE)

    def log_group(self, scope: Construct, name: str, path: str) -> logs.LogGroup:
        """A log group ``/headwater/<environment>/<path>`` with the environment's retention."""
        return logs.LogGroup(
            scope,
            name,
            log_group_name=f"/headwater/{self.environment_settings.name}/{path}",
            retention=log_retention(self.environment_settings.log_days),
            removal_policy=self.data_removal,
        )


def log_retention(days: int) -> logs.RetentionDays:
    """CDK's name of a retention in days, one of ``headwater.deployment.environment.LOG_DAYS``."""
    words = {
        7: "ONE_WEEK", 14: "TWO_WEEKS", 30: "ONE_MONTH", 60: "TWO_MONTHS", 90: "THREE_MONTHS", 120: "FOUR_MONTHS",
        150: "FIVE_MONTHS", 180: "SIX_MONTHS", 365: "ONE_YEAR", 400: "THIRTEEN_MONTHS", 545: "EIGHTEEN_MONTHS",
        731: "TWO_YEARS", 1096: "THREE_YEARS", 1827: "FIVE_YEARS", 2192: "SIX_YEARS", 2557: "SEVEN_YEARS",
        2922: "EIGHT_YEARS", 3288: "NINE_YEARS", 3653: "TEN_YEARS", 1: "ONE_DAY", 3: "THREE_DAYS", 5: "FIVE_DAYS",
    }  # fmt: skip
    return logs.RetentionDays[words[days]]
