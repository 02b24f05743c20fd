"""What to look at if PostgreSQL cannot be reached for reasons of TLS."""

import re

_ABOUT_TLS = re.compile(r"SSL|sslmode|certificate|no encryption|closed the connection unexpectedly")
# libpq then tries without TLS, and tells of that as well.
_ABOUT_PASSWORD = "authentication failed"  # noqa: S105 - the server's words


def trust_advice(message: str) -> str:
    """A sentence about the variables that TLS hangs on, after a space; "" if ``message``, which is libpq's, is about
    something else."""
    if _ABOUT_PASSWORD in message or not _ABOUT_TLS.search(message):
        return ""
    return (
        " PGSSLMODE says whether TLS is used and the certificate verified; PGSSLROOTCERT names the file with the "
        "authority that signed it."
    )
