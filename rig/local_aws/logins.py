"""The logins of the database that the environment ``local`` deploys to the local AWS."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg


def login(client: Callable[[str], Any], role: str) -> dict[str, Any]:
    """Return the user, password and address of ``owner``, ``app``, ``cdc`` or ``reader``.

    - ``client``: makes boto3's client of a service, by the service's name.
    """
    secrets = client("secretsmanager")
    # Only the owner's secret has the address.
    texts = [secrets.get_secret_value(SecretId=f"headwater/local/{part}")["SecretString"] for part in ("owner", role)]
    return {**json.loads(texts[0]), **json.loads(texts[1])}


def connect(client: Callable[[str], Any], account: Path, role: str, database: str) -> psycopg.Connection:
    """Connect to a database by a role's ``login``. The connection trusts only the authority that the template names.

    - ``account``: the account's folder, beside which the authority is.
    """
    found = login(client, role)
    return psycopg.connect(
        host=found["host"],
        # The user's PGHOSTADDR and PGOPTIONS are meant for another server.
        hostaddr=found["host"],
        port=found["port"],
        dbname=database,
        user=found["username"],
        password=found["password"],
        sslmode="verify-full",
        sslrootcert=str(account.with_name("authority.pem")),
        autocommit=True,
        options="",
    )
