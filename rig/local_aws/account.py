"""An AWS account on this machine: the emulator, the object store, and the services behind the emulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from headwater import private_files
from headwater.environment.model import LOCAL_ACCOUNT
from rig.local import aws
from rig.local.object_store import ObjectStore
from rig.local_aws import (
    athena,
    authority,
    cloudwatch,
    connect,
    database,
    dynamodb,
    emr,
    glue,
    images,
    no_ops,
    rotation,
    stream,
)
from rig.local_aws.account_context import AccountContext
from rig.local_aws.emulator import Emulator
from rig.local_aws.handlers import HandlerServer


class LocalAccount(ExitStack):
    """An empty account in one region, below ``folder``.

    Closing it ends its services. Each account gets new access keys. In an ``idle`` account, no program of a cluster,
    job or connector runs.
    """

    def __init__(
        self,
        folder: Path,
        region: str = aws.REGION,
        account: str = LOCAL_ACCOUNT,
        *,
        idle: bool = False,
    ) -> None:
        super().__init__()
        self.folder = folder.resolve()
        of_store = aws.make_credentials()
        self.store = ObjectStore(self.folder / "s3", of_store, may_delete_full_buckets=False)
        # The emulator takes an access key of twelve digits as the account's number.
        credentials = {**aws.make_credentials(), "AWS_ACCESS_KEY_ID": account}
        self.context = AccountContext(account, region, self.store, credentials, of_store, idle)
        self.databases = database.Clusters(self.folder / "rds", self.context, authority.of(folder))
        self.brokers = stream.Clusters(self.folder / "msk", self.context)
        self.connectors = connect.Connectors(self.folder / "connect", self.context)
        self.clusters = emr.Clusters(self.folder / "emr", self.context)
        self.jobs = glue.Jobs(self.folder / "glue", self.context)
        self.tables = dynamodb.Tables(self.folder / "dynamodb", self.context)
        self.emulator: Emulator

    def start(self) -> None:
        """Start the store and the emulator, in a folder that other users cannot read."""
        private_files.make_private(self.folder)
        self.enter_context(self.store)
        # Programs end before the services that they read from and write to.
        stores = (self.databases, self.brokers, self.tables)
        programs = (self.connectors, self.clusters, self.jobs)
        self.callback(_together, [service.close for service in stores])
        self.callback(_together, [service.close for service in programs])
        services = (*stores, *programs)
        watched = (self.databases, self.brokers, self.connectors, self.tables)
        alarms = cloudwatch.Alarms(self.context, [service.measured for service in watched])
        rotations = rotation.Rotations(self.context)
        types = no_ops.types() | athena.types(self.context) | alarms.types() | rotations.types()
        for service in services:
            types |= service.types()
        apis = [*(service.api for service in services), images.API, rotations.api]
        handlers = self.enter_context(HandlerServer(self.context, types, apis))
        self.emulator = Emulator(self.folder / "emulator", self.context.environment(), handlers.url, handlers.token)
        self.context.endpoint = self.emulator.endpoint
        self.enter_context(self.emulator)
        self.enter_context(alarms)
        self.callback(self._begin_to_end)

    def _begin_to_end(self) -> None:
        self.context.ending = True

    def environment(self) -> dict[str, str]:
        """The environment variables that point AWS's tools and SDKs to this account instead of the user's."""
        return self.context.environment()

    def client(self, service: str) -> Any:
        """A boto3 client of a service of the account."""
        return self.context.client(service)


def _together(closes: Sequence[Callable[[], None]]) -> None:
    """Call all functions at the same time. Raises the first error after all have returned."""
    with ThreadPoolExecutor(len(closes)) as pool:
        for closed in [pool.submit(close) for close in closes]:
            closed.result()
