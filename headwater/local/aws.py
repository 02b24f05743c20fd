"""The AWS services the pipeline calls, answered on this machine by moto's server."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import boto3
from botocore.config import Config

from headwater.errors import UserError
from headwater.local.processes import Process, free_port, listens

REGION = "eu-central-1"
# Credentials that open nothing: moto asks for some, and the developer's own must never reach a local part.
CREDENTIALS: Mapping[str, str] = {"AWS_ACCESS_KEY_ID": "headwater-local", "AWS_SECRET_ACCESS_KEY": "headwater-local"}


def environment() -> dict[str, str]:
    """Return this process's environment for a child that talks to `AwsApi`: without any AWS setting of the user's."""
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


class AwsApi:
    """One moto server on a free port of 127.0.0.1 that stays the same over restarts.

    It keeps everything in memory: what was stored is gone after `stop` or `kill`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.port = 0
        self._process: Process | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def endpoint(self) -> str:
        """The URL of all services."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._running().pid

    def start(self) -> None:
        """Start the server and wait until it serves."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self.port:
            self.port = free_port()
        self._process = Process(
            "the AWS API (moto)",
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)],
            self.folder / "aws.log",
            env={**environment(), "PYTHONWARNINGS": "ignore", "MOTO_ACCOUNT_ID": "123456789012"},
            ready=lambda: listens(self.port),
        )
        self._process.start()

    def stop(self) -> None:
        """Stop it; its contents are gone."""
        if self._process is not None:
            self._process.stop()

    def kill(self) -> None:
        """End it as a crash would; its contents are gone."""
        self._running().kill()

    def check(self) -> None:
        """Raise `ProcessError` unless it runs."""
        self._running().check()

    def client(self, service: str) -> Any:
        """Return a boto3 client of one service, such as `s3` or `glue`."""
        return boto3.client(  # type: ignore[call-overload]
            service,
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
            config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 3, "mode": "standard"}),
        )

    def _running(self) -> Process:
        if self._process is None:
            raise UserError("the AWS API is not running: start it first")
        return self._process
