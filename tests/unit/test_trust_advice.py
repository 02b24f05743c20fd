"""Which of libpq's errors are about TLS: all errors come from PostgreSQL 15 with `hostssl` alone, and from libpq 18."""

from __future__ import annotations

import pytest

from headwater.postgresql.trust_advice import trust_advice

FAILED = 'connection failed: connection to server at "10.0.0.7", port 5432 failed: '
UNENCRYPTED = 'FATAL:  no pg_hba.conf entry for host "10.0.0.8", user "u", database "rental", no encryption'


@pytest.mark.parametrize(
    "message",
    [
        f"{FAILED}{UNENCRYPTED}",
        f"{FAILED}SSL error: certificate verify failed",
        f"{FAILED}SSL error: provider signature failure",
        f'{FAILED}root certificate file "/home/u/.postgresql/root.crt" does not exist',
        f'{FAILED}server certificate for "db" does not match host name "localhost"',
        f"{FAILED}server does not support SSL, but SSL was required",
        'connection is bad: invalid sslmode value: "required"',
    ],
)
def test_an_error_of_tls_names_the_variables(message: str) -> None:
    assert "PGSSLROOTCERT" in trust_advice(message)


@pytest.mark.parametrize(
    "message",
    [
        # libpq then tries it without TLS.
        f'{FAILED}FATAL:  password authentication failed for user "u"\n{FAILED}{UNENCRYPTED}',
        f"{FAILED}Connection refused\n\tIs the server running on that host and accepting TCP/IP connections?",
        f'{FAILED}FATAL:  database "rental" does not exist',
    ],
)
def test_another_error_does_not(message: str) -> None:
    assert trust_advice(message) == ""
