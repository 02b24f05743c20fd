"""Masks of texts: the HMAC-SHA-256 of a text's UTF-8 under the environment's key, as 64 lower-case hexadecimal digits.

Nothing but key and text goes into a mask, so that equal texts have equal masks in all columns and in both pipelines.
``Masks.java`` makes the same of PostgreSQL's texts. Runs on Glue too: the standard library only.
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
"""The field of the secret, a JSON object, whose text in UTF-8 is the key."""
SHORTEST_KEY = 32
"""Bytes."""
is_masked = re.compile(r"[0-9a-f]{64}\Z").match
"""Whether a text has the form of a mask."""


def masked(text: str, key: bytes) -> str:
    """The mask of a text."""
    return hmac.new(key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def read_key(client: Any, secret: str) -> bytes:
    """Read the key with boto3's client of ``secretsmanager``; ``secret`` is a name or an ARN. Raises UserError if
    the secret has no key."""
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
    """The key, b"" if the contract needs none. Raises UserError if it needs one that is not there."""
    if key is None and contract.needs_mask_key:
        raise UserError(f"{contract.table}: found masks by hmac and no key, expected --mask-secret, the key's secret")
    return key or b""
