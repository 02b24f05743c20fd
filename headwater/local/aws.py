"""The AWS services that the pipeline calls, answered on this machine: S3 by SeaweedFS, the others by moto's server."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from headwater.local.object_store import ObjectStore
from headwater.local.processes import Part, Process, Program, free_port, listens

REGION = "eu-central-1"
# Credentials that open nothing elsewhere: parts require some, and the developer's own must never reach one. DynamoDB
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


def client(service: str, endpoint: str, credentials: Mapping[str, str] = CREDENTIALS) -> Any:
    """Return a boto3 client of a service such as ``s3`` at the URL of a local part."""
    return boto3.client(  # type: ignore[call-overload]
        service,
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id=credentials["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=credentials["AWS_SECRET_ACCESS_KEY"],
        config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 3, "mode": "standard"}),
    )


class AwsApi(Part):
    """An object store for S3 and one moto server for the rest, on free ports of 127.0.0.1 that stay the same over
    restarts.

    moto keeps everything in memory: ``stop`` and ``kill`` lose it, but no object, since ``store`` is a part of its own
    that only starts and stops with this one. The Kinesis streams behave as AWS's do where moto's do not, see
    ``headwater.local.moto_server``.
    """

    name = "the AWS API (moto)"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.port = 0
        self.store = ObjectStore(self.folder / "s3", environment())

    @property
    def endpoint(self) -> str:
        """The URL of all services but S3."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def s3_endpoint(self) -> str:
        """The URL of S3."""
        return self.store.endpoint

    def endpoints(self) -> dict[str, str]:
        """The variables by which the AWS SDKs find all services here."""
        return {"AWS_ENDPOINT_URL": self.endpoint, "AWS_ENDPOINT_URL_S3": self.s3_endpoint}

    def client(self, service: str) -> Any:
        """Return a boto3 client of a service such as ``s3`` or ``glue``."""
        return client(service, self.store.endpoint if service == "s3" else self.endpoint)

    def start(self) -> None:
        """Start the server, and the store unless it runs, and wait until both serve."""
        if not self.store.running:
            self.store.start()
        super().start()

    def stop(self) -> None:
        """Shut both down in order."""
        super().stop()
        self.store.stop()

    def check(self) -> None:
        """Raise ``ProcessError`` unless both run."""
        super().check()
        self.store.check()

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
