"""The deployed environment that a verb names, with AWS clients for its account."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from botocore.config import Config

from headwater.commands import accounts
from headwater.contract.model import Contract
from headwater.contract.reading import read_contracts
from headwater.environment.model import Environment
from headwater.environment.rules import read_environment
from headwater.lake_folder import LakeFolder
from headwater.operations.deployed import Deployed

_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# A person waits for the answer, so requests fail within a minute or so.
_IMPATIENT = Config(
    connect_timeout=5, read_timeout=20, retries={"total_max_attempts": 3, "mode": "standard"}, max_pool_connections=32
)


def deployed(name: str, folder: LakeFolder, contracts: Sequence[Contract] = ()) -> Deployed:
    """Return an environment as the lake folder describes it, in the account of the current credentials.

    The environment has these ``contracts``, or by default all contracts of the folder. The environment ``local`` is in
    the local AWS that AWS_ENDPOINT_URL names. If the variable is not set, it is in the lake folder's local AWS. Raises
    UserError.
    """
    return described(read_environment(name, folder.config), contracts or read_contracts(folder.contracts), folder)


def described(environment: Environment, contracts: Sequence[Contract], folder: LakeFolder) -> Deployed:
    """Return an environment with these contracts. Raises UserError as ``deployed`` does."""
    return Deployed(environment, contracts, _clients(environment, folder))


def as_now(known: Deployed, folder: LakeFolder) -> Deployed:
    """Return an environment with its file read anew, and the contracts and clients of ``known``. Raises UserError."""
    return Deployed(read_environment(known.environment.name, folder.config), known.contracts, known.client)


def printable(text: str) -> str:
    """Return a text without characters that would steer a terminal or could not be written to it."""
    return _STEERING.sub("?", text).encode("utf-8", "replace").decode()


def _clients(environment: Environment, folder: LakeFolder) -> Callable[[str], Any]:
    session, endpoint = accounts.of(environment, folder).session()
    return partial(session.client, region_name=environment.region, endpoint_url=endpoint or None, config=_IMPATIENT)
