"""The PostgreSQL database of an environment: its address, the role and password, and the trusted authority."""

from __future__ import annotations

import json
import os

from botocore.exceptions import BotoCoreError, ClientError

from headwater.commands.postgresql import PASSWORD_VARIABLE, Login, database_password
from headwater.definitions.source_database import CDC_ROLE, OWNER_ROLE, READER_ROLE
from headwater.environment import rds_authority
from headwater.environment.model import ExistingDatabase
from headwater.errors import UserError
from headwater.lake_folder import LakeFolder
from headwater.operations.deployed import Deployed

_VERIFIES = ("verify-ca", "verify-full")
_NO_SECRET = "ResourceNotFoundException"  # noqa: S105 - an error code


class EnvironmentDatabase:
    """The database that an environment's file describes: one that its deployment has made, or an existing one."""

    def __init__(self, deployed: Deployed, folder: LakeFolder) -> None:
        self._deployed = deployed
        self._environment = deployed.environment
        self._folder = folder

    def user(self, *, as_owner: bool) -> str:
        """Return the role that a command logs in as by default. With ``as_owner`` the role may write, too."""
        if isinstance(self._environment.database, ExistingDatabase):
            return CDC_ROLE
        return OWNER_ROLE if as_owner else READER_ROLE

    def login(
        self, host: str | None, port: int | None, database: str | None, user: str | None, *, as_owner: bool
    ) -> Login:
        """Return how a command logs in. The environment completes the options that are None.

        A ``host`` is another way to the server, such as a tunnel. The server's certificate still has to name the
        server, not ``host``. Raises UserError.
        """
        user = user or self.user(as_owner=as_owner)
        # Raises UserError if the section is missing.
        at = self._environment.postgresql.database
        if isinstance(at, ExistingDatabase):
            name, known_port, known_database = at.host, at.port, at.name
        else:
            with self._deployed.refusals():
                # Check the account first: another account may have an environment of the same name.
                _ = self._deployed.account
                name, known_database = self._deployed.database_host, at.name
                known_port = port or self._deployed.database_port
        mode = os.environ.get("PGSSLMODE") or "verify-full"
        parts = {
            "host": name,
            "port": port or known_port,
            "dbname": database or known_database,
            "user": user,
            "sslmode": mode,
        }
        authority = ""
        if mode in _VERIFIES and not os.environ.get("PGSSLROOTCERT"):
            authority = rds_authority.trusted(self._environment, self._folder.root)
        password, password_from = self._password(user)
        way = host if host not in (None, name) else None
        return Login(parts, password, password_from, authority, way, self._where_unreached())

    def _password(self, user: str) -> tuple[str, str]:
        """Return the password, and the variable or secret that holds it."""
        secret = self._deployed.secret_of(user)
        if secret is None:
            return database_password(user), PASSWORD_VARIABLE
        if os.environ.get(PASSWORD_VARIABLE):
            # The variable may be meant for another server, such as the one that `headwater contract infer` reads.
            given = f"{PASSWORD_VARIABLE}, which replaces the secret {secret}: unset the variable to use the secret"
            return database_password(user), given
        environment = self._environment
        otherwise = f"or give the password in {PASSWORD_VARIABLE}"
        try:
            _ = self._deployed.account
            answer = self._deployed.client("secretsmanager").get_secret_value(SecretId=secret)
        except (BotoCoreError, ClientError) as error:
            if isinstance(error, ClientError) and error.response["Error"]["Code"] == _NO_SECRET:
                made = f"run headwater deploy --env {environment.name}"
                if isinstance(environment.database, ExistingDatabase):
                    made = "make the secret that database.secret names (docs/how-to/existing-sources.md)"
                raise UserError(
                    f"{environment.name}: found no secret {secret} in {environment.region} of this account, expected "
                    f"one with the password of {user}: {made}, {otherwise}"
                ) from None
            raise UserError(
                f"{environment.name}: found {error}, expected the secret {secret} of {user}: use credentials with "
                f"secretsmanager:GetSecretValue on the secret and kms:Decrypt on its key, {otherwise}"
            ) from None
        try:
            return str(json.loads(answer["SecretString"])["password"]), f"the secret {secret}"
        except (KeyError, TypeError, ValueError):
            raise UserError(
                f"{environment.name}: found a secret {secret} without a password, expected JSON with the fields "
                f"username and password: write the secret anew, {otherwise}"
            ) from None

    def _where_unreached(self) -> str:
        if self._environment.is_local:
            return f"See its log: headwater logs database --env {self._environment.name}."
        if isinstance(self._environment.database, ExistingDatabase):
            return "Name another way to the server by --host and --port (docs/how-to/existing-sources.md)."
        return (
            "The server is inside the environment's network: open the tunnel through the bastion, and add "
            "--host localhost (docs/reference/stacks.md#the-bastion)."
        )
