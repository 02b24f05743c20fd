"""The account that an environment's stacks are deployed to: an AWS account, or one that another package provides."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib.metadata import entry_points
from typing import Any, Protocol

import boto3

from headwater.commands import cdk, sources
from headwater.console import Announce, announce
from headwater.environment.model import Environment
from headwater.errors import UserError
from headwater.lake_folder import LakeFolder
from headwater.paths import SETUP

ENTRY_POINTS = "headwater.accounts"
"""The group of the entry points that provide an account.

Only the name ``local`` is used. Its value is a function of the environment and the lake folder.
"""
ENDPOINT = "AWS_ENDPOINT_URL"


class Account(Protocol):
    """An account that an environment's stacks are deployed to."""

    approval: str
    """The value of CDK's ``--require-approval``."""

    def make_assets(self, announce: Announce) -> None:
        """Build the files that synthesis reads and a deployment uploads. Raises UserError."""

    def session(self) -> tuple[boto3.Session, str]:
        """Return a session with the credentials, and the endpoint: "" for AWS. Raises UserError without credentials."""

    def client(self, service: str) -> Any:
        """Return a boto3 client for a service."""

    def prepare(self) -> None:
        """Make the account ready for a deploy. Raises UserError if the synthesized stacks must not be deployed."""

    def cdk(self, arguments: Sequence[str]) -> None:
        """Run CDK's command line. Raises typer.Exit or UserError if it fails."""

    def deployed(self) -> None:
        """Print what the deploy leaves running."""

    def deletion(self) -> AbstractContextManager[str]:
        """Return the context manager of a deletion: it yields the reason if nothing can be deleted, otherwise ""."""


def of(environment: Environment, folder: LakeFolder) -> Account:
    """Return the account of an environment. Raises UserError if no package provides a local environment's account."""
    if not environment.is_local:
        return _Aws(environment, folder)
    found = entry_points(group=ENTRY_POINTS, name="local")
    values = sorted({entry.value for entry in found})
    if len(values) > 1:
        raise UserError(f"{environment.name}: found its account in {' and in '.join(values)}, expected one")
    for entry in found:
        try:
            account: Account = entry.load()(environment, folder)
        except ImportError as error:
            raise UserError(f"{environment.name}: found {error} in {entry.value}, expected its account") from error
        return account
    raise UserError(
        f"{environment.name}: found no package that provides its account, expected the package `rig`: run `{SETUP}`"
    )


class _Aws:
    """The AWS account of the credentials in use."""

    def __init__(self, environment: Environment, folder: LakeFolder) -> None:
        self._environment = environment
        self._folder = folder
        self.approval = "broadening" if environment.name == "dev" else "any-change"

    def make_assets(self, announce: Announce) -> None:
        # Imported here, because verbs that only read do not need it.
        from headwater.packaging import artifacts

        artifacts.build(announce)

    def session(self) -> tuple[boto3.Session, str]:
        return sources.session(), os.environ.get(ENDPOINT, "")

    def client(self, service: str) -> Any:
        create: Callable[..., Any] = boto3.client
        return create(service, region_name=self._environment.region)

    def prepare(self) -> None:
        # Imported here, because verbs that only read do not need it.
        from headwater.packaging import shipped

        with announce("Looking for the origin of each file"):
            found = shipped.unexplained(self._folder.synthesized, self._folder)
        if found:
            raise UserError("\n".join([f"{self._environment.name}: nothing was deployed.", *found]))

    def cdk(self, arguments: Sequence[str]) -> None:
        cdk.run(cdk.command(self._folder, self._environment.name, arguments))

    def deployed(self) -> None:
        pass

    @contextmanager
    def deletion(self) -> Iterator[str]:
        yield ""
