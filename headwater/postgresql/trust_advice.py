"""Advice if PostgreSQL cannot be reached because of TLS."""

import re

_ABOUT_TLS = re.compile(r"SSL|sslmode|certificate|no encryption|closed the connection unexpectedly")
# libpq then tries without TLS, and reports that failure as well.
_ABOUT_PASSWORD = "authentication failed"  # noqa: S105 - the server's words


def trust_advice(message: str) -> str:
    """A sentence on the variables that configure TLS, with a space before it, if libpq's ``message`` is about TLS.

    Returns "" for any other message.
    """
    if _ABOUT_PASSWORD in message or not _ABOUT_TLS.search(message):
        return ""
    return (
        " PGSSLMODE says whether TLS is used and the certificate verified; PGSSLROOTCERT names the file with the "
        "authority that signed it."
    )
