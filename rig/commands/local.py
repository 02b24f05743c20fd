"""The local half of the verbs that take --env: the local AWS as an account for stacks."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError

from headwater import process_groups
from headwater.commands import cdk, sources
from headwater.commands.accounts import ENDPOINT
from headwater.commands.advice import advise
from headwater.console import Announce, announce, say
from headwater.environment.model import Environment
from headwater.errors import UserError
from headwater.lake_folder import LakeFolder
from headwater.log_files import tail
from headwater.paths import ROOT
from headwater.review.baselines import search_path
from headwater.waiting import StuckError, cpu_seconds
from rig.commands.assets import with_local_aws
from rig.local_aws import daemon
from rig.local_aws.daemon import REGION, Running

IMPATIENT = ROOT / "rig" / "emulator" / "impatient.js"
"""A script that CDK's command line loads."""
_BOOTSTRAP = "CDKToolkit"
# The number of stacks that CDK deploys or destroys at a time. No approval is needed: nothing here costs money or lasts.
_OPTIONS = {"deploy": ("--concurrency", "4"), "destroy": ("--concurrency", "4", "--force")}
# CDK's waiters and rules poll every few minutes.
_PATIENCE_SECONDS = 600.0


class LocalAws:
    """The local AWS of a lake folder, with the methods of ``headwater.commands.accounts.Account``."""

    approval = "never"

    def __init__(self, environment: Environment, folder: LakeFolder) -> None:
        self._environment = environment
        self._folder = folder
        self._account = daemon.account_of(folder)

    def make_assets(self, announce: Announce) -> None:
        """Make the files for synthesis and deployment, and the environment of the local AWS. Raises UserError."""
        with_local_aws(self._folder, announce)

    def session(self) -> tuple[boto3.Session, str]:
        """Return credentials and endpoint: of AWS_ENDPOINT_URL if it is set, otherwise of the running local AWS."""
        if os.environ.get(ENDPOINT):
            return sources.session(), os.environ[ENDPOINT]
        variables = self._running.environment
        return boto3.Session(variables["AWS_ACCESS_KEY_ID"], variables["AWS_SECRET_ACCESS_KEY"]), variables[ENDPOINT]

    def client(self, service: str) -> Any:
        """Return a boto3 client of a service."""
        return self._running.client(service)

    def prepare(self) -> None:
        """Start the local AWS unless it runs, and deploy CDK's bootstrap if it is missing."""
        environment = self._environment
        if environment.region != REGION:
            raise UserError(f"region: found {environment.region}, expected {REGION}: the local AWS has no other region")
        running = Running.find(self._account)
        if running is None:
            with announce("Starting the local AWS"):
                running = Running.start(self._account)
        try:
            bootstrap = running.stacks().get(_BOOTSTRAP)
        except BotoCoreError as error:
            raise UserError(
                f"the local AWS does not answer: {error}. End it by `headwater destroy --env local`"
            ) from None
        if bootstrap != "CREATE_COMPLETE":
            place = f"aws://{environment.account}/{environment.region}"
            # If no app were named, CDK would synthesize one first, only to read its environments.
            self.cdk(["bootstrap", "--app", str(self._folder.synthesized), place])

    def cdk(self, arguments: Sequence[str]) -> None:
        """Run CDK's command line.

        Raises UserError if CDK fails, or if both CDK and the local AWS stand still. The error has the end of the local
        AWS's log, if there is one.
        """
        running = self._running
        verb = arguments[0]
        command = cdk.command(self._folder, self._environment.name, [*arguments, *_OPTIONS.get(verb, ())])
        try:
            # The user's own AWS settings would lead to another account.
            kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
            node = f"{kept.get('NODE_OPTIONS', '')} --require {json.dumps(str(IMPATIENT))}".strip()
            variables = {**kept, **running.environment, "NODE_OPTIONS": node, "PATH": search_path()}
            with subprocess.Popen(command, cwd=ROOT, env=variables) as child:
                try:
                    process_groups.await_end("CDK", child, _PATIENCE_SECONDS, lambda: _work(child, running))
                except BaseException:
                    process_groups.kill(child)
                    raise
            status = child.returncode
            failed = f"ended with {status}; its lines above say why" if status else ""
        except StuckError as error:
            failed = f"was killed: {error}"
        if failed:
            log = daemon.log_of(self._account)
            more = f". The end of {log}:\n{tail(log)}" if log.exists() and log.stat().st_size else ""
            raise UserError(f"cdk {verb} {failed}{more}")

    def deployed(self) -> None:
        """Say how to use and end the local AWS."""
        name = self._environment.name
        advise(f"The local AWS runs on; `headwater destroy --env {name}` ends it.")
        say("These variables point AWS's tools to it:")
        say(f"  . {shlex.quote(os.path.relpath(daemon.variables_of(self._account)))}")

    @contextmanager
    def deletion(self) -> Iterator[str]:
        """Wrap the deletion of stacks.

        The local AWS ends with the last stack, or if it does not answer.
        """
        running = Running.find(self._account)
        if running is None:
            say("No local AWS runs: it has ended, or was never started")
            yield "no local AWS runs"
            return
        try:
            running.stacks()
        except BotoCoreError:
            say("The local AWS does not answer, so it is ended and its data is deleted")
            running.stop(self._account)
            yield "the local AWS did not answer"
            return
        yield ""
        others = [name for name in running.stacks() if name != _BOOTSTRAP]
        if others:
            say(f"The local AWS runs on for the stacks {', '.join(others)}")
            return
        with announce("Ending the local AWS"):
            running.stop(self._account)

    @property
    def _running(self) -> Running:
        running = Running.find(self._account)
        if running is None:
            name = self._environment.name
            raise UserError(f"{name}: found no running local AWS, expected one: run `headwater deploy --env {name}`")
        return running


def _work(child: subprocess.Popen[bytes], running: Running) -> float:
    return cpu_seconds(child.pid) + cpu_seconds(running.pid)
