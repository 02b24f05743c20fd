"""The Glue streaming jobs that write the key-value tables, and the rules that restart them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

import aws_cdk as cdk
from aws_cdk import aws_events as events
from aws_cdk import aws_glue as glue
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3_assets as s3_assets
from constructs import Construct

from headwater.contract.model import DYNAMODB, Contract, lake_tables, of_database
from headwater.definitions import spark_settings, writers
from headwater.environment.model import Environment
from headwater.lake.base.announcements import event_source
from headwater.lake.base.metrics import NAMESPACE
from stacks.assets import Assets, NamedFile, grant_fetch
from stacks.base import HeadwaterStack, grant
from stacks.key_value_sources import KeyValueSources
from stacks.lake import LakeStack
from stacks.polled import PolledProvider
from stacks.restarts import Restarts

# The states of a run that has ended, for whatever reason.
ENDED = ("SUCCEEDED", "FAILED", "TIMEOUT", "STOPPED", "ERROR", "EXPIRED")
# The longest timeout that Glue allows, less than seven days. A run that reaches it is restarted like a failed run.
_TIMEOUT_MINUTES = 7 * 24 * 60 - 1
_RESTART_MINUTES = 5
# The end of the name of the job that writes all contracts.
SHARED = "key-value"


class GlueJobStack(HeadwaterStack):
    """One job for all DynamoDB contracts, or one per contract, as ``glue.jobs`` says.

    Each job has one run. When a run ends, the next one starts.
    """

    def __init__(
        self,
        scope: Construct,
        *,
        environment: Environment,
        lake: LakeStack,
        key_value: KeyValueSources,
        contracts: Sequence[Contract],
        assets: Assets,
    ) -> None:
        super().__init__(scope, environment=environment, part="glue-job", description="Headwater: Glue streaming jobs")
        self._lake = lake
        self._key_value = key_value
        self._assets = assets
        self._logs_folder = f"/headwater/{environment.name}/glue"
        self._key = self._make_key()
        self._security = glue.SecurityConfiguration(
            self,
            "Security",
            security_configuration_name=self.prefix,
            s3_encryption=glue.S3Encryption.kms(lake.key),
            cloud_watch_encryption=glue.CloudWatchEncryption.kms(self._key),
            job_bookmarks_encryption=glue.JobBookmarksEncryption.client_side_kms(self._key),
        )
        # The job's role holds no data. If the stack retained it, the next one of its name could not be created.
        self._security.apply_removal_policy(cdk.RemovalPolicy.DESTROY)
        written = of_database(contracts, DYNAMODB)
        self._contract_assets = {
            contract.table: s3_assets.Asset(
                self, f"Contract-{contract.table}", path=str(self._assets.contract(contract))
            )
            for contract in written
        }
        groups = _groups(written, shared=environment.dynamodb.glue.jobs == "shared")
        self.job_names = {group: f"{self.prefix}-{group}" for group in groups}
        self._runs = PolledProvider(self, "Runs", module="glue_run", assets=assets)
        self._restart = self._runs.function("Restart", "keep_running", cdk.Duration.minutes(1))
        grant(
            self._runs.role,
            ["glue:BatchStopJobRun", "glue:GetJobRun", "glue:GetJobRuns", "glue:StartJobRun"],
            [self.format_arn(service="glue", resource="job", resource_name=name) for name in self.job_names.values()],
        )
        for group, members in groups.items():
            self._job(group, members)

    def _make_key(self) -> kms.Key:
        key = self.encryption_key("Logs and bookmarks of Glue jobs")
        groups = self._log_group_arn(f"{self._logs_folder}/*")
        key.grant_encrypt_decrypt(
            iam.ServicePrincipal(
                f"logs.{self.region}.amazonaws.com",
                conditions={"ArnLike": {"kms:EncryptionContext:aws:logs:arn": groups}},
            )
        )
        return key

    def _job(self, group: str, contracts: Sequence[Contract]) -> None:
        """The job of a group of contracts, with its run and its restarts."""
        environment = self.environment_settings
        settings = environment.dynamodb.glue
        name = self.job_names[group]
        role = self._role(group, contracts)
        script = s3_assets.Asset(self, f"Script-{group}", path=str(self._assets.glue_script()))
        package = s3_assets.Asset(self, f"Package-{group}", path=str(self._assets.package()))
        hudi = s3_assets.Asset(self, f"HudiJar-{group}", path=str(self._assets.hudi_jar()))
        writer = s3_assets.Asset(self, f"WriterJar-{group}", path=str(self._assets.writer_jar()))
        shipped = [self._contract_assets[contract.table] for contract in contracts]
        source_of = {table.table: contract for contract in contracts for table in lake_tables([contract])}
        wheel = NamedFile.publish(self, self._assets.wheel())
        wheel.grant_fetch(role)
        grant_fetch(role, [script, package, hudi, writer, *shipped])
        arguments = {
            "--job-language": "python",
            # This puts Hudi on the class path before Glue's own jars.
            "--extra-jars": f"{hudi.s3_object_url},{writer.s3_object_url}",
            "--user-jars-first": "true",
            "--extra-py-files": package.s3_object_url,
            "--additional-python-modules": wheel.uri,
            # pip installs this wheel only: no dependencies, and nothing from an index.
            "--python-modules-installer-option": "--no-deps --no-index",
            "--custom-logGroup-prefix": self._logs_folder,
            "--conf": _chained(spark_settings.shared()),
            **writers.job_arguments(
                [asset.s3_object_url for asset in shipped],
                self._lake.place,
                environment.lake,
                streams={table: self._key_value.stream_arn(contract) for table, contract in source_of.items()},
                source_tables={table: self._key_value.tables[contract.table] for table, contract in source_of.items()},
                window_seconds=settings.window_seconds,
                epoch=settings.epoch,
                mask_secret=self._lake.mask_secret if any(contract.needs_mask_key for contract in contracts) else None,
            ),
        }
        # Files are named by their content, so the digest changes with each of them.
        definition = {
            "script": script.s3_object_url,
            "arguments": arguments,
            "role": role.role_arn,
            "security": self._security.security_configuration_name,
            "version": settings.version,
            "worker_type": settings.worker_type,
            "workers": settings.workers,
        }
        job = glue.CfnJob(
            self,
            f"Job-{group}",
            name=name,
            description="Writes the changes of DynamoDB tables into the lake",
            role=role.role_arn,
            command=glue.CfnJob.JobCommandProperty(
                name="gluestreaming", python_version="3", script_location=script.s3_object_url
            ),
            default_arguments=arguments,
            glue_version=settings.version,
            worker_type=settings.worker_type,
            number_of_workers=settings.workers,
            security_configuration=self._security.security_configuration_name,
            execution_property=glue.CfnJob.ExecutionPropertyProperty(max_concurrent_runs=1),
            max_retries=0,
            timeout=_TIMEOUT_MINUTES,
            maintenance_window=settings.maintenance_window,
        )
        # Rights are separate resources, so CloudFormation has to create them before a run starts.
        job.node.add_dependency(role)
        for kind in ("error", "output"):
            job.node.add_dependency(self._run_logs(group, kind, role))
        self._keep_running(job, name, group, _digest(self.resolve(definition)))

    def _role(self, group: str, contracts: Sequence[Contract]) -> iam.Role:
        role = iam.Role(
            self,
            f"Role-{group}",
            description=f"Headwater's Glue job {self.job_names[group]}",
            assumed_by=self.service_principal("glue.amazonaws.com"),
        )
        for contract in contracts:
            self._key_value.grant_read_stream(role, contract)
        if any(contract.needs_mask_key for contract in contracts):
            self._lake.grant_read_mask_key(role)
        self._lake.grant_read_exports(role)
        self._lake.grant_write_tables(role, contracts)
        self._lake.grant_forget(role, contracts)
        self.grant_put_metrics(role, NAMESPACE)
        self.grant_put_events(role, event_source(self._lake.database))
        # Glue encrypts a job's bookmark with this key.
        self._key.grant(role, "kms:Decrypt", "kms:Encrypt", "kms:GenerateDataKey")
        return role

    def _run_logs(self, group: str, kind: str, role: iam.Role) -> logs.LogGroup:
        """The log group that Glue 5 would name so, with the stack's key and retention."""
        name = f"{self._logs_folder}/{self._security.security_configuration_name}-role/{role.role_name}/{kind}"
        log_group = self.service_log_group(self, f"{kind.capitalize()}Logs-{group}", name, self._key)
        # Glue still tries to create the group.
        log_group.grant(
            role, "logs:AssociateKmsKey", "logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents"
        )
        return log_group

    def _keep_running(self, job: glue.CfnJob, name: str, group: str, definition: str) -> None:
        """Start the job, restart it when its definition changes or a run has ended, and stop it on delete."""
        run = self._runs.resource("GlueRun", f"Run-{group}", name, {"Definition": definition})
        run.node.add_dependency(job, self._runs.role)
        restarts = Restarts(run, self._restart)
        restarts.on_events(
            f"Ended-{group}",
            f"Starts {name} again after a run has ended",
            events.EventPattern(
                source=["aws.glue"],
                detail_type=["Glue Job State Change"],
                detail={"jobName": [name], "state": list(ENDED)},
            ),
            {"job": name, "run": events.EventField.from_path("$.detail.jobRunId")},
        )
        restarts.every(_RESTART_MINUTES, f"Regularly-{group}", f"Starts {name} if it does not run", {"job": name})

    def _log_group_arn(self, name: str) -> str:
        return self.format_arn(
            service="logs", resource="log-group", resource_name=name, arn_format=cdk.ArnFormat.COLON_RESOURCE_NAME
        )


def _groups(contracts: Sequence[Contract], *, shared: bool) -> dict[str, Sequence[Contract]]:
    """The contracts of each job, by the end of the job's name. No table is called like the shared job."""
    if shared:
        return {SHARED: contracts}
    return {contract.table: [contract] for contract in contracts}


def _chained(settings: Mapping[str, str]) -> str:
    """Spark's settings in Glue's form: one argument ``--conf``, whose value contains every further ``--conf``."""
    return " --conf ".join(f"{key}={value}" for key, value in sorted(settings.items()))


def _digest(definition: object) -> str:
    """A hash that changes with the definition."""
    return hashlib.sha256(json.dumps(definition, sort_keys=True).encode()).hexdigest()
