"""The AWS services that the pipeline calls, answered on this machine: S3 by SeaweedFS, the others by moto's server."""

import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from headwater import private_files
from rig.local.object_store import ObjectStore
from rig.local.processes import Part, Process, Program, free_port

REGION = "eu-central-1"


def make_credentials() -> dict[str, str]:
    """Return new credentials, as the variables in which AWS's tools expect them.

    The credentials work only for parts that are started with them. The developer's own credentials never reach a part.
    """
    # DynamoDB Local accepts only letters and digits in a key.
    return {"AWS_ACCESS_KEY_ID": "headwaterlocal", "AWS_SECRET_ACCESS_KEY": secrets.token_urlsafe(30)}


def environment(credentials: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child with these credentials: this process's without AWS settings and proxies.

    The AWS settings and proxies left out are the user's own.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        # A proxy of the user's would receive requests to parts of this machine.
        if not name.startswith("AWS_") and not name.lower().endswith("_proxy")
    }
    return {
        **kept,
        **credentials,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }


def write_variables(path: Path, environment: Mapping[str, str]) -> None:
    """Write an environment's AWS variables to a private file, see ``private_files.write_variables``."""
    of_aws = {name: value for name, value in environment.items() if name.startswith("AWS_")}
    private_files.write_variables(path, of_aws)


def client(service: str, endpoint: str, credentials: Mapping[str, str]) -> Any:
    """Return a boto3 client of a service such as ``s3`` at the URL of a local part."""
    return boto3.client(  # type: ignore[call-overload]
        service,
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id=credentials["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=credentials["AWS_SECRET_ACCESS_KEY"],
        config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 3, "mode": "standard"}, proxies={}),
    )


class AwsApi(Part):
    """An object store for S3 and one moto server for the rest, on free ports of 127.0.0.1.

    The ports stay the same over restarts.

    moto keeps everything in memory, so ``stop`` and ``kill`` lose it. No object is lost, because ``store`` is a
    separate part that only starts and stops with this one. Kinesis streams behave as in AWS, see
    ``rig.local.moto_server``.

    Both answer only requests that are signed with ``credentials``. Each ``AwsApi`` makes new ones.
    """

    name = "the AWS API (moto)"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.port = 0
        self.credentials = make_credentials()
        self.store = ObjectStore(self.folder / "s3", environment(self.credentials))

    @property
    def endpoint(self) -> str:
        """The URL of all services but S3."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def s3_endpoint(self) -> str:
        """The URL of S3."""
        return self.store.endpoint

    def environment(self) -> dict[str, str]:
        """The environment of a child that finds all services here by the AWS SDKs' variables, see ``environment``."""
        endpoints = {"AWS_ENDPOINT_URL": self.endpoint, "AWS_ENDPOINT_URL_S3": self.s3_endpoint}
        return {**environment(self.credentials), **endpoints}

    @property
    def variables(self) -> Path:
        """The file with the variables of all services here, once it is written.

        A person's shell reads it by ``. FILE``.
        """
        return self.folder / "variables"

    def client(self, service: str) -> Any:
        """Return a boto3 client of a service such as ``s3`` or ``glue``."""
        return client(service, self.store.endpoint if service == "s3" else self.endpoint, self.credentials)

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
            [sys.executable, "-m", "rig.local.moto_server", str(self.port)],
            self.folder / "aws.log",
            env={
                **environment(self.credentials),
                "PYTHONWARNINGS": "ignore",
                "MOTO_ACCOUNT_ID": "123456789012",
                "MOTO_DISABLE_GLOBAL_CORS": "true",
            },
        )
        return Process(program, port=self.port)
