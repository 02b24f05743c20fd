"""The local AWS as a process that outlives the command that started it, until another command ends it.

The process runs ``serve``, which imports all parts of an account. Commands that only find or end the process do not.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import psutil

from headwater import private_files
from headwater.console import say
from headwater.errors import UserError
from headwater.lake_folder import LakeFolder
from headwater.log_files import tail
from headwater.paths import ROOT
from headwater.waiting import cpu_seconds, wait_until
from rig.local import aws

REGION = aws.REGION
"""The region of the local AWS."""


@dataclass(frozen=True)
class Running:
    """A running local AWS."""

    pid: int
    since: float
    """The start of its process, in epoch seconds."""
    environment: dict[str, str]
    """The variables that point AWS's tools to it. Its key is only in them, and in a file that other users cannot
    read."""

    @classmethod
    def find(cls, folder: Path) -> Self | None:
        """The local AWS below a folder; None if none runs."""
        try:
            found = cls(**json.loads(description_of(folder).read_text()))
        except FileNotFoundError:
            return None
        return found if found._runs() else None

    @classmethod
    def start(cls, folder: Path) -> Self:
        """Start an empty local AWS below a folder.

        The folder is that of a ``LocalAccount``. Raises UserError with the end of the log if the local AWS does not
        start.
        """
        warn_of_root()
        log = log_of(folder)
        log.unlink(missing_ok=True)
        with private_files.append(log) as out:
            child = subprocess.Popen(
                command(folder),
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                umask=private_files.UMASK,
            )

        def answers() -> bool:
            if child.poll() is not None:
                raise UserError(f"the local AWS ended with {child.returncode}:\n{tail(log)}")
            return cls.find(folder) is not None

        try:
            wait_until("the local AWS to start", answers, work=partial(cpu_seconds, child.pid))
        except BaseException:
            child.terminate()
            raise
        found = cls.find(folder)
        if found is None:
            raise UserError(f"the local AWS has ended:\n{tail(log)}")
        return found

    def client(self, service: str) -> Any:
        """A boto3 client of a service, with the account's own credentials."""
        return aws.client(service, self.environment["AWS_ENDPOINT_URL"], self.environment)

    def stacks(self) -> dict[str, str]:
        """The stacks of all environments with their states, and the stack of CDK's bootstrap."""
        pages = self.client("cloudformation").get_paginator("describe_stacks").paginate()
        return {stack["StackName"]: stack["StackStatus"] for page in pages for stack in page["Stacks"]}

    def stop(self, folder: Path) -> None:
        """End the local AWS and all its programs, and remove its data."""
        os.kill(self.pid, signal.SIGTERM)
        wait_until("the local AWS to end", lambda: not self._runs(), work=partial(cpu_seconds, self.pid))
        shutil.rmtree(folder, ignore_errors=True)

    def _runs(self) -> bool:
        try:
            process = psutil.Process(self.pid)
            # Another process may have the number by now.
            return process.create_time() == self.since and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False


def account_of(lake: LakeFolder) -> Path:
    """The folder of a lake folder's local AWS."""
    return lake.build / "local_aws" / "account"


def command(folder: Path) -> list[str]:
    """The arguments that start a local AWS below a folder."""
    return [sys.executable, "-m", "rig.local_aws.serve", str(folder)]


def log_of(folder: Path) -> Path:
    """The log of the local AWS below a folder."""
    return folder.with_suffix(".log")


def variables_of(folder: Path) -> Path:
    """The file with the local AWS's variables for a shell, which reads it by ``. FILE``."""
    return folder / "variables"


def warn_of_root() -> None:
    """Warn a person who starts a local AWS as root."""
    if os.geteuid() == 0:
        say(
            "Warning: the local AWS runs as root, and so do the functions, jobs and connectors that you deploy to "
            "it. Run it as a user who may do less"
        )


def description_of(folder: Path) -> Path:
    """The file that describes the local AWS below a folder while it runs."""
    return folder / "account.json"
