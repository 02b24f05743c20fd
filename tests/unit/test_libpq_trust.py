"""libpq's options for one's own database that the source connector does not have are refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headwater.errors import UserError
from rig.local.libpq_trust import connector_host, connector_options


@pytest.fixture(autouse=True)
def untold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in [name for name in os.environ if name.startswith("PG")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.parametrize("variable", ["PGSSLCERT", "PGSSLKEY", "PGSSLCRL", "PGSSLCRLDIR"])
def test_what_the_connector_has_no_option_for_is_refused(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "mine")
    with pytest.raises(UserError, match=f"^{variable}: found mine, expected none: the source connector .* Unset it"):
        connector_options()


def test_the_systems_authorities_are_wanted_as_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGSSLROOTCERT", "system")
    with pytest.raises(UserError, match=r"^PGSSLROOTCERT: found system, expected a file .*ca-certificates\.crt"):
        connector_options()


def test_the_connector_is_told_a_files_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    monkeypatch.setenv("PGSSLROOTCERT", "bundle.pem")
    assert connector_options()["database.sslrootcert"] == str(tmp_path / "bundle.pem")


def test_a_service_says_whom_to_trust_as_variables_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "services").write_text("[rental]\nsslmode=verify-ca\nsslrootcert=/etc/rental.pem\n")
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
    monkeypatch.setenv("PGSERVICE", "rental")
    assert connector_options() == {"database.sslmode": "verify-ca", "database.sslrootcert": "/etc/rental.pem"}


def test_the_connector_goes_to_the_address_that_libpq_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert connector_host("rental.example.com") == "rental.example.com"
    monkeypatch.setenv("PGHOSTADDR", "127.0.0.1")
    monkeypatch.setenv("PGSSLMODE", "verify-ca")
    assert connector_host("rental.example.com") == "127.0.0.1"
    # It would verify the address.
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    with pytest.raises(UserError, match=r"^PGHOSTADDR: found 127\.0\.0\.1 with the sslmode verify-full, expected none"):
        connector_host("rental.example.com")


@pytest.mark.parametrize("host", ["::1", "/var/run/postgresql", "one,two"])
def test_a_host_that_debezium_does_not_take_is_refused(host: str) -> None:
    with pytest.raises(UserError, match=f"^--host: found {host}, expected a name or an IPv4 address"):
        connector_host(host)
