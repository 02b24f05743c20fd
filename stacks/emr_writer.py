"""The EMR step that writes the lake, and the rules that restart it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import aws_cdk as cdk
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3_assets as s3_assets
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from headwater.contract.model import POSTGRESQL, Contract, of_database
from headwater.definitions import spark_settings, writers
from headwater.definitions.connectors import NO_DATA
from headwater.environment.model import Environment
from stacks.assets import Assets, fetch_arns
from stacks.base import HeadwaterStack, grant
from stacks.emr import ENVIRONMENT_TAG, PYTHON, EmrStack
from stacks.lake import LakeStack
from stacks.nag import Reason
from stacks.polled import PolledProvider
from stacks.restarts import Restarts

# The states of a step that has ended, for whatever reason.
STEP_ENDED = ("CANCELLED", "COMPLETED", "FAILED", "INTERRUPTED")
_RESTART_MINUTES = 10


class EmrWriterStack(HeadwaterStack):
    """One running step on the cluster. If its deployment fails, the cluster stays."""

    def __init__(
        self,
        scope: Construct,
        *,
        environment: Environment,
        lake: LakeStack,
        emr: EmrStack,
        contracts: Sequence[Contract],
        assets: Assets,
    ) -> None:
        super().__init__(
            scope, environment=environment, part="emr-writer", description="Headwater: writer step on the EMR cluster"
        )
        # The writer needs its tables and buckets when it starts.
        self.add_stack_dependency(lake)
        self.add_stack_dependency(emr)
        self._lake = lake
        self._emr = emr
        self.step_name = f"{self.prefix}-writer"
        # CloudFormation reads the parameter at each deploy, so cdk deploys this stack every time.
        self._cluster = ssm.StringParameter.value_for_string_parameter(self, emr.cluster_id_parameter)
        self._keep_running(of_database(contracts, POSTGRESQL), assets)

    def _submit(self, contracts: Sequence[Contract], assets: Assets) -> tuple[list[str], list[s3_assets.Asset]]:
        """The writer's command and its files.

        File names contain hashes of the content, so the command changes with each file.
        """
        script = s3_assets.Asset(self, "WriterScript", path=str(assets.writer_script()))
        package = s3_assets.Asset(self, "Package", path=str(assets.package()))
        hudi = s3_assets.Asset(self, "HudiJar", path=str(assets.hudi_jar()))
        shipped = [
            s3_assets.Asset(self, f"Contract-{contract.table}", path=str(assets.contract(contract)))
            for contract in contracts
        ]
        writer = s3_assets.Asset(self, "WriterJar", path=str(assets.writer_jar()))
        # In client mode the step is the driver's process on the primary node, so cancelling the step ends the driver.
        submit = ["spark-submit", "--deploy-mode", "client", "--jars", f"{hudi.s3_object_url},{writer.s3_object_url}"]
        for key, value in sorted(self._spark_settings().items()):
            submit += ["--conf", f"{key}={value}"]
        submit += ["--py-files", package.s3_object_url, script.s3_object_url]
        environment = self.environment_settings
        submit += writers.step_arguments(
            [asset.s3_object_url for asset in shipped],
            self._lake.place,
            environment.lake,
            landing=self._lake.landing_uri,
            idle_seconds_max=environment.postgresql.emr.idle_seconds_max,
            awaits_backfill=environment.postgresql.connect.snapshot_mode == NO_DATA,
        )
        return submit, [script, package, hudi, writer, *shipped]

    def _keep_running(self, contracts: Sequence[Contract], assets: Assets) -> None:
        """Run the writer as a step, replace the step when its command changes, and add it again when it has ended."""
        command, files = self._submit(contracts, assets)
        # The policy belongs to this stack, so that it changes with the files and not with the cluster. IAM limits the
        # total size of a role's inline policies, and the role's own policy takes most of it.
        fetch = iam.ManagedPolicy(
            self,
            "NodeRoleFetches",
            roles=[self._emr.node_role],
            statements=[iam.PolicyStatement(actions=["s3:GetObject"], resources=fetch_arns(files))],
        )
        provider = PolledProvider(self, "Steps", module="emr_step", assets=assets)
        self._grant_keep_step(provider.role)
        restart = provider.function("Restart", "restart", cdk.Duration.minutes(1))
        restart.add_environment("CLUSTER_ID", self._cluster)
        restart.add_environment("STEP_NAME", self.step_name)
        settled = self.environment_settings.deployment.settled_seconds
        properties = {"ClusterId": self._cluster, "Args": command, "SettledSeconds": settled}
        writer = provider.resource("Step", "Writer", self.step_name, properties)
        # A step that ends while the cluster is replaced must not be added to the old cluster.
        writer.node.add_dependency(restart, fetch)
        restarts = Restarts(writer, restart)
        restarts.on_events(
            "WriterEnded",
            f"Adds {self.step_name} again after it has ended",
            events.EventPattern(
                source=["aws.emr"],
                detail_type=["EMR Step Status Change", "EMR Cluster State Change"],
                detail={"clusterId": [self._cluster], "state": [*STEP_ENDED, "WAITING"]},
            ),
        )
        restarts.every(_RESTART_MINUTES, "WriterRegularly", f"Adds {self.step_name} if it does not run")

    def _grant_keep_step(self, role: iam.Role) -> None:
        """Let the custom resource add and cancel steps of this environment's clusters, and describe any cluster.

        A cluster that EMR has forgotten has no tag by which a policy could allow it. EMR has to say that it is gone,
        and not that access is denied.
        """
        clusters = self.format_arn(service="elasticmapreduce", resource="cluster", resource_name="*")
        grant(role, ["elasticmapreduce:DescribeCluster", "elasticmapreduce:ListSteps"], [clusters])
        grant(
            role,
            ["elasticmapreduce:AddJobFlowSteps", "elasticmapreduce:CancelSteps"],
            [clusters],
            conditions={
                "StringEquals": {f"elasticmapreduce:ResourceTag/{ENVIRONMENT_TAG}": self.environment_settings.name}
            },
            wildcard=Reason.NAMES_BELOW_A_PREFIX,
        )

    def _spark_settings(self) -> Mapping[str, str]:
        return {
            **spark_settings.shared(),
            **self._emr.spark_sizes(),
            # The log of an application that never ends would fill HDFS: rolled files are dropped only after a history
            # server has compacted them. Metrics go to CloudWatch, and YARN serves the application's own pages.
            "spark.eventLog.enabled": "false",
            "spark.executorEnv.AWS_DEFAULT_REGION": self.region,
            # The driver runs spark.pyspark.driver.python, and makes the executors run spark.pyspark.python.
            "spark.pyspark.driver.python": PYTHON,
            "spark.pyspark.python": PYTHON,
        }
