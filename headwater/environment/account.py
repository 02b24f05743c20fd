"""The account that an environment is bound to."""

from __future__ import annotations

from headwater.environment.model import Environment
from headwater.errors import UserError


def refuse_another(environment: Environment, found: str) -> None:
    """Raise UserError if ``found``, the number of the credentials' account, is not the environment's."""
    if environment.account is not None and found != environment.account:
        raise UserError(
            f"credentials: found the account {found}, expected {environment.account}, the account of {environment.name}"
        )
