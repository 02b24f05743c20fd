"""The parts of a deployed environment: the names that the stacks give them, and AWS's clients for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from headwater.contract.model import DYNAMODB, POSTGRESQL, Contract, lake_tables, of_database
from headwater.definitions import connectors
from headwater.definitions.connectors import CaptureSettings
from headwater.definitions.source_database import CDC_ROLE, READER_ROLE, SECRETS
from headwater.environment.account import refuse_another
from headwater.environment.key_value_names import key_value_names
from headwater.environment.model import Environment, ExistingDatabase
from headwater.errors import UserError
from headwater.lake.base.command_lines import CommandLines

_NOT_THERE = "ValidationError"


class Deployed:
    """An environment in its account, as ``contracts`` and its file describe it.

    ``make`` makes boto3's client of a service. Threads may share this object.
    """

    def __init__(self, environment: Environment, contracts: Sequence[Contract], make: Callable[[str], Any]) -> None:
        self.environment = environment
        self.contracts = list(contracts)
        self.relational = of_database(contracts, POSTGRESQL)
        self.key_value = of_database(contracts, DYNAMODB)
        self.key_value_names = key_value_names(environment, contracts)
        self.tables = lake_tables(contracts)
        """The contracts of the lake's tables, including the change histories."""
        self.prefix = environment.prefix
        self.glue_database = f"headwater_{environment.name}"
        self._make = make
        self._clients: dict[str, Any] = {}
        self._lock = threading.Lock()
        # How far this machine's clock is ahead of AWS's, in seconds.
        self._ahead = 0.0

    def client(self, service: str) -> Any:
        """The client of a service."""
        with self._lock:
            if service not in self._clients:
                self._clients[service] = self._make(service)
            return self._clients[service]

    @property
    def commands(self) -> CommandLines:
        """The commands that advice on this environment names."""
        at = self.environment.database
        if isinstance(at, ExistingDatabase):
            return CommandLines(self.environment.name, f"--host {at.host} --port {at.port} --database {at.name}")
        return CommandLines(self.environment.name)

    @cached_property
    def account(self) -> str:
        """The account's number. Raises UserError if it is not the environment's."""
        answer = self.client("sts").get_caller_identity()
        said = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
        if said is not None:
            self._ahead = time.time() - parsedate_to_datetime(said).timestamp()
        found = str(answer["Account"])
        refuse_another(self.environment, found)
        return found

    def find(self) -> None:
        """Check that the environment is deployed, in the account of the credentials. Raises UserError."""
        with self.refusals():
            _ = self.account, self.lake, self.landing

    @contextmanager
    def refusals(self) -> Iterator[None]:
        """Turn boto3's exceptions into a UserError while a caller looks up a part of the environment."""
        try:
            yield
        except (BotoCoreError, ClientError) as error:
            code = error.response["Error"]["Code"] if isinstance(error, ClientError) else ""
            name, region = self.environment.name, self.environment.region
            if code == _NOT_THERE:
                raise UserError(
                    f"{name}: found nothing in {region} of this account, expected a deployed environment: "
                    f"headwater deploy --env {name}"
                ) from None
            raise UserError(
                f"AWS in {region}: found {error}, expected an answer: use credentials of the environment's account "
                "that may read (docs/how-to/operate.md)"
            ) from None

    def now(self) -> float:
        """Return the time by AWS's clock, in epoch seconds.

        The time is an estimate from the date in the answer to ``account``, which has whole seconds. AWS's clock may be
        ahead of the estimate by a second plus the time of that request. Raises as ``account`` does.
        """
        _ = self.account
        return time.time() - self._ahead

    @cached_property
    def lake(self) -> str:
        """The address of the lake's tables, as s3://bucket/prefix."""
        return self._output("lake", "LakeUri")

    @cached_property
    def landing(self) -> str:
        """The address of the landing objects, as s3://bucket/prefix."""
        return self._output("lake", "LandingUri")

    @cached_property
    def cluster_id(self) -> str:
        """The id of the EMR cluster."""
        return str(self.client("ssm").get_parameter(Name=self.cluster_id_parameter)["Parameter"]["Value"])

    @property
    def cluster_id_parameter(self) -> str:
        """The name of the parameter that holds the id of the EMR cluster."""
        return f"/headwater/{self.environment.name}/emr/cluster-id"

    @property
    def database_arn(self) -> str:
        """The ARN of Aurora's cluster, which the Data API needs."""
        return f"arn:{self._partition}:rds:{self.environment.region}:{self.account}:cluster:{self.prefix}"

    @cached_property
    def database_host(self) -> str:
        """The host name of Aurora's writer, which its certificate names."""
        return self._output("database", "Host")

    @cached_property
    def database_port(self) -> int:
        """The port of Aurora's writer."""
        return int(self._output("database", "Port"))

    def secret_of(self, role: str) -> str | None:
        """The name of the secret with a database role's password; None if the environment has none."""
        at = self.environment.database
        if isinstance(at, ExistingDatabase):
            return at.secret if role == CDC_ROLE else None
        return f"headwater/{self.environment.name}/{SECRETS[role]}" if role in SECRETS else None

    @cached_property
    def reader_secret_arn(self) -> str:
        """The ARN of the reader's secret, for the Data API. This role may only read the source."""
        return str(self.client("secretsmanager").describe_secret(SecretId=self.secret_of(READER_ROLE))["ARN"])

    @property
    def capture(self) -> CaptureSettings:
        """The settings that decide the names of connectors and topics. The addresses are left out."""
        return CaptureSettings(
            environment=self.environment.name,
            region=self.environment.region,
            database_host="",
            database_port="",
            database_name="",
            database_secret="",
            database_tls={},
            landing_bucket="",
            topic_partitions=self.environment.postgresql.stream.partitions,
            epoch=self.environment.postgresql.connect.epoch,
        )

    @property
    def connector_names(self) -> tuple[str, str]:
        """The names of the source connector and of the sink."""
        return connectors.source_name(self.capture), connectors.sink_name(self.capture)

    @property
    def step_name(self) -> str:
        """The beginning of the names of the writer's steps."""
        return f"{self.prefix}-writer-"

    @property
    def job_names(self) -> list[str]:
        """The names of the Glue jobs that write the tables of DynamoDB."""
        return list(dict.fromkeys(map(self.job_name, self.key_value)))

    def job_name(self, contract: Contract) -> str:
        """The name of the Glue job that writes a contract's table of DynamoDB and its history."""
        shared = self.environment.dynamodb.glue.jobs == "shared"
        return f"{self.prefix}-{'key-value' if shared else contract.table}"

    @property
    def _partition(self) -> str:
        return str(self.client("sts").meta.partition)

    def _output(self, part: str, name: str) -> str:
        stack = f"{self.prefix}-{part}"
        (found,) = self.client("cloudformation").describe_stacks(StackName=stack)["Stacks"]
        for output in found.get("Outputs", ()):
            if output["OutputKey"] == name:
                return str(output["OutputValue"])
        raise UserError(
            f"the stack {stack}: found no output {name}, expected one: an earlier release has deployed it. "
            f"headwater deploy --env {self.environment.name}"
        )
