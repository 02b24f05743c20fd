"""The source connector's TLS options that match libpq's configuration.

Variables such as ``PGSSLMODE``, or a service, configure libpq (https://www.postgresql.org/docs/18/libpq-ssl.html). The
connector passes its options to PostgreSQL's JDBC driver, which has nearly the same options
(https://jdbc.postgresql.org/documentation/ssl/).
"""

from __future__ import annotations

import re
from pathlib import Path

from psycopg import pq

from headwater.errors import UserError

_REQUIRE = "require"
_VERIFY_CA = "verify-ca"
_VERIFY_FULL = "verify-full"
_SYSTEM = "system"
# The host names and addresses that Debezium accepts.
_HOST = re.compile(r"[\w.-]+", re.ASCII)
# libpq's settings that the connector has no options for.
_REFUSED = {
    "sslcert": "shows no certificate of its own",
    "sslkey": "shows no certificate of its own",
    "sslcrl": "reads no list of revoked certificates",
    "sslcrldir": "reads no list of revoked certificates",
}


def connector_options() -> dict[str, str]:
    """The source connector's options by which it trusts the servers that libpq trusts.

    Raises UserError if there are no such options. A missing file raises nothing here: libpq refuses to connect
    without it.
    """
    told = _told()
    for name, reason in _REFUSED.items():
        if told[name]:
            raise UserError(
                f"PG{name.upper()}: found {told[name]}, expected none: the source connector {reason}. Unset it if the "
                "server works without it."
            )
    if told["sslrootcert"] == _SYSTEM:
        raise UserError(
            f"PGSSLROOTCERT: found {_SYSTEM}, expected a file of certificates: the source connector reads only "
            "files. The system's certificates are in a file such as /etc/ssl/certs/ca-certificates.crt."
        )
    root = Path(told["sslrootcert"] or Path.home() / ".postgresql" / "root.crt").absolute()
    mode = told["sslmode"]
    # libpq verifies a server whenever it finds the file. The driver does so only in two modes.
    if mode == _REQUIRE and root.exists():
        mode = _VERIFY_CA
    if mode not in (_VERIFY_CA, _VERIFY_FULL):
        return {"database.sslmode": mode}
    return {"database.sslmode": mode, "database.sslrootcert": str(root)}


def connector_host(host: str) -> str:
    """The address at which the source connector reaches ``host``: libpq's ``hostaddr`` if set, such as a tunnel's end.

    Raises UserError if the connector cannot use that address. Also raises it if ``hostaddr`` is set and libpq verifies
    host names: the connector would compare the certificate with the address.
    """
    told = _told()
    if told["hostaddr"] and told["sslmode"] == _VERIFY_FULL:
        raise UserError(
            f"PGHOSTADDR: found {told['hostaddr']} with the sslmode {_VERIFY_FULL}, expected none: the source "
            f"connector would look for that address in the server's certificate, not for {host}. Unset PGHOSTADDR and "
            f"map {host} to the address in /etc/hosts. Or set PGSSLMODE={_VERIFY_CA}, which verifies no name."
        )
    reached = told["hostaddr"] or host
    if not _HOST.fullmatch(reached):
        raise UserError(
            f"--host: found {reached}, expected a name or an IPv4 address: the source connector accepts nothing else. "
            "Give an IPv6 address a name in /etc/hosts."
        )
    return reached


def _told() -> dict[str, str]:
    """libpq's settings by libpq's keywords; "" for a setting without a value."""
    return {option.keyword.decode(): (option.val or b"").decode() for option in pq.Conninfo.get_defaults()}
