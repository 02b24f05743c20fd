"""Masks of texts: the HMAC-SHA-256 of a text's UTF-8 under the environment's key, as 64 lower-case hexadecimal digits.

A mask depends only on key and text, so that equal texts have equal masks in all columns and in both pipelines.
``Masks.java`` makes the same masks for PostgreSQL's texts. Runs on Glue too, so it uses the standard library only.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from typing import Any

from headwater.contract.model import Contract
from headwater.errors import UserError

KEY_FIELD = "key"
"""The field of the secret's JSON object whose text, in UTF-8, is the key."""
SHORTEST_KEY = 32
"""The least length of a key, in bytes."""
is_masked = re.compile(r"[0-9a-f]{64}\Z").match
"""Returns a match if a text has the form of a mask, otherwise None."""


def masked(text: str, key: bytes) -> str:
    """Return the mask of a text."""
    return hmac.new(key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def read_key(client: Any, secret: str) -> bytes:
    """Read the key from a secret. Raises UserError if the secret has no key.

    - ``client``: boto3's client for ``secretsmanager``.
    - ``secret``: the secret's name or ARN.
    """
    try:
        key = json.loads(client.get_secret_value(SecretId=secret)["SecretString"])[KEY_FIELD].encode()
    except (AttributeError, LookupError, TypeError, ValueError):
        key = b""
    if len(key) < SHORTEST_KEY:
        raise UserError(
            f"secret {secret}: found no key in the field {KEY_FIELD}, expected a text of {SHORTEST_KEY} bytes or more"
        )
    return bytes(key)


def needed_key(contract: Contract, key: bytes | None) -> bytes:
    """Return the key, or b"" if there is none. Raises UserError if the contract needs a key and there is none."""
    if key is None and contract.needs_mask_key:
        raise UserError(f"{contract.table}: found hmac masks and no key, expected --mask-secret, the key's secret")
    return key or b""
