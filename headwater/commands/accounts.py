"""The account that has the stacks of an environment: one of AWS, or one that another package provides."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib.metadata import entry_points
from typing import Any, Protocol

import boto3
import typer
from botocore.exceptions import BotoCoreError, ClientError

from headwater.commands import sources
from headwater.console import announce
from headwater.environment.model import Environment
from headwater.environment.protection import described_stacks
from headwater.errors import UserError
from headwater.paths import ROOT, SYNTHESIZED
from headwater.review.baselines import CDK

ENTRY_POINTS = "headwater.accounts"
"""The group of the entry points that provide an account. The one named ``local`` is called with the environment."""
ENDPOINT = "AWS_ENDPOINT_URL"
# The stacks that only one kind of a source has. The other kind has taken their place if an app with these has not them.
_OF_A_KIND = {
    "database": {"connect"},
    "database-content": {"connect"},
    "key-value": {"glue-job"},
    "database-peering": {"connect", "database"},
}


class Account(Protocol):
    """An account that has the stacks of an environment, or will have them."""

    approval: str
    """The value of CDK's ``--require-approval``."""

    def session(self) -> tuple[boto3.Session, str]:
        """Return the credentials, and the endpoint: "" for AWS's own. Raises UserError where there is none."""

    def client(self, service: str) -> Any:
        """Return a boto3 client of a service."""

    def prepare(self, stacks: Sequence[str]) -> None:
        """Make the account ready for a deploy of these stacks. Raises UserError where they must not be deployed."""

    def cdk(self, arguments: Sequence[str]) -> None:
        """Run CDK's command line. Raises typer.Exit or UserError where it fails."""

    def deployed(self) -> None:
        """Tell a person what the deploy leaves running."""

    def deletion(self) -> AbstractContextManager[str]:
        """Return the context of a deletion. It yields the reason if there is nothing to delete, otherwise ""."""


def of(environment: Environment) -> Account:
    """Return the account of an environment. Raises UserError where no package provides that of a local one."""
    if not environment.is_local:
        return _Aws(environment)
    found = entry_points(group=ENTRY_POINTS, name="local")
    values = sorted({entry.value for entry in found})
    if len(values) > 1:
        raise UserError(f"{environment.name}: found its account in {' and in '.join(values)}, expected one")
    for entry in found:
        try:
            account: Account = entry.load()(environment)
        except ImportError as error:
            raise UserError(f"{environment.name}: found {error} in {entry.value}, expected its account") from error
        return account
    raise UserError(
        f"{environment.name}: found no package that provides its account, expected the package `rig`: run `make setup` "
        "in a checkout of Headwater"
    )


class _Aws:
    """An account of AWS, by the credentials at hand."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self.approval = "broadening" if environment.name == "dev" else "any-change"

    def session(self) -> tuple[boto3.Session, str]:
        return sources.session(), os.environ.get(ENDPOINT, "")

    def client(self, service: str) -> Any:
        create: Callable[..., Any] = boto3.client
        return create(service, region_name=self._environment.region)

    def prepare(self, stacks: Sequence[str]) -> None:
        # Verbs that only read need none of it.
        from headwater.packaging import shipped

        self._refuse_another_kind(stacks)
        with announce("Looking for the origin of each file"):
            found = shipped.unexplained(SYNTHESIZED)
        if found:
            raise UserError("\n".join([f"{self._environment.name}: nothing was deployed.", *found]))

    def cdk(self, arguments: Sequence[str]) -> None:
        status = subprocess.run(command(self._environment, arguments), cwd=ROOT).returncode
        if status:
            raise typer.Exit(status)

    def deployed(self) -> None:
        pass

    @contextmanager
    def deletion(self) -> Iterator[str]:
        yield ""

    def _refuse_another_kind(self, stacks: Sequence[str]) -> None:
        """Raise UserError if the account has stacks of the environment that another kind of its sources has made.

        No deploy would update them, and they need what this deploy would take away. If CloudFormation does not answer,
        CDK says so.
        """
        try:
            there = described_stacks(self.client("cloudformation"))
        except (BotoCoreError, ClientError):
            return
        name = self._environment.name
        prefix = f"{self._environment.prefix}-"
        left = [
            f"{prefix}{part}"
            for part, others in _OF_A_KIND.items()
            if f"{prefix}{part}" in there.keys() - set(stacks) and {f"{prefix}{other}" for other in others} <= {*stacks}
        ]
        if left:
            raise UserError(
                f"{name}: found the stacks {', '.join(left)} of another database.kind or key_value.kind, expected "
                f"none: bring the former file back and `make destroy ENV={name}` first, or make another environment "
                "(docs/how-to/existing-sources.md)"
            )


def command(environment: Environment, arguments: Sequence[str]) -> list[str]:
    """Return CDK's command line for an environment."""
    return [CDK[0], "--no-notices", "--context", f"env={environment.name}", *arguments]
