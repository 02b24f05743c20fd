"""What the verbs share that ask a deployed environment: which it is, and AWS's clients for it."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from botocore.config import Config

from headwater.commands import accounts
from headwater.contract.reading import read_contracts
from headwater.environment.model import Environment
from headwater.environment.rules import read_environment
from headwater.operations.deployed import Deployed
from headwater.paths import CONFIG

_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# A person waits: what does not answer is told soon.
_IMPATIENT = Config(
    connect_timeout=5, read_timeout=20, retries={"total_max_attempts": 3, "mode": "standard"}, max_pool_connections=32
)


def deployed(name: str, contracts: Path) -> Deployed:
    """An environment, as its file and the contracts describe it, in the account of the credentials at hand; ``local``
    in the local AWS that AWS_ENDPOINT_URL names, or else in the one of this checkout. Raises UserError."""
    environment = read_environment(name, CONFIG)
    return Deployed(environment, read_contracts(contracts), _clients(environment))


def as_now(known: Deployed) -> Deployed:
    """An environment as its file and its stacks say now, with the contracts and the clients that are known. Raises
    UserError."""
    return Deployed(read_environment(known.environment.name, CONFIG), known.contracts, known.client)


def printable(text: str) -> str:
    """A text of a log or an error without what would steer a terminal, or could not be written to it."""
    return _STEERING.sub("?", text).encode("utf-8", "replace").decode()


def _clients(environment: Environment) -> Callable[[str], Any]:
    session, endpoint = accounts.of(environment).session()
    return partial(session.client, region_name=environment.region, endpoint_url=endpoint or None, config=_IMPATIENT)
