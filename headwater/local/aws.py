"""The AWS services that the pipeline calls, answered on this machine by moto's server."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from headwater.local.processes import Part, Process, Program, free_port, listens

REGION = "eu-central-1"
# Credentials that open nothing: moto requires some, and the developer's own must never reach a local part. DynamoDB
# Local accepts letters and digits only.
CREDENTIALS: Mapping[str, str] = {"AWS_ACCESS_KEY_ID": "headwaterlocal", "AWS_SECRET_ACCESS_KEY": "headwaterlocal"}


def environment() -> dict[str, str]:
    """Return the environment of a child that talks to ``AwsApi``: this process's, less the user's AWS settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return {
        **kept,
        **CREDENTIALS,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }


def client(service: str, endpoint: str) -> Any:
    """Return a boto3 client of a service such as ``s3`` at the URL of a local part."""
    return boto3.client(  # type: ignore[call-overload]
        service,
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 3, "mode": "standard"}),
    )


class AwsApi(Part):
    """One moto server on a free port of 127.0.0.1 that stays the same over restarts.

    It keeps everything in memory: ``stop`` and ``kill`` lose what was stored. Its Kinesis streams behave as AWS's do
    where moto's do not, see ``headwater.local.moto_server``.
    """

    name = "the AWS API (moto)"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.port = 0

    @property
    def endpoint(self) -> str:
        """The URL of all services."""
        return f"http://127.0.0.1:{self.port}"

    def client(self, service: str) -> Any:
        """Return a boto3 client of a service such as ``s3`` or ``glue``."""
        return client(service, self.endpoint)

    def _prepare(self) -> Process:
        if not self.port:
            self.port = free_port()
        program = Program(
            self.name,
            [sys.executable, "-m", "headwater.local.moto_server", "-H", "127.0.0.1", "-p", str(self.port)],
            self.folder / "aws.log",
            env={**environment(), "PYTHONWARNINGS": "ignore", "MOTO_ACCOUNT_ID": "123456789012"},
        )
        return Process(program, ready=lambda: listens(self.port))
