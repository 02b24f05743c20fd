"""``headwater bootstrap`` prepares the account of an environment."""

from __future__ import annotations

import boto3
import pytest
from botocore.exceptions import NoCredentialsError
from typer.testing import CliRunner

from headwater.cli import app
from headwater.errors import UserError

STAGE = "111122223333"
"""The account in the example's ``config/stage.yaml``. That of dev names none."""


class Sts:
    """boto3's client, as far as it names the account."""

    def __init__(self, account: str | None) -> None:
        self._account = account

    def get_caller_identity(self) -> dict[str, str]:
        if self._account is None:
            raise NoCredentialsError
        return {"Account": self._account}


def bootstrap(monkeypatch: pytest.MonkeyPatch, environment: str, account: str | None) -> int:
    """Run the command with credentials of an account, or without any."""
    monkeypatch.setattr(boto3, "client", lambda *_, **__: Sts(account))
    return CliRunner().invoke(app, ["bootstrap", "--env", environment], catch_exceptions=False).exit_code


@pytest.mark.parametrize(("environment", "account"), [("stage", STAGE), ("dev", "123456789012")])
def test_the_account_of_the_credentials_is_prepared(
    monkeypatch: pytest.MonkeyPatch, ran: list[list[str]], environment: str, account: str
) -> None:
    assert bootstrap(monkeypatch, environment, account) == 0
    assert [command[-4:] for command in ran] == [["bootstrap", "--app", "", f"aws://{account}/eu-central-1"]]


def test_another_account_is_not_prepared(monkeypatch: pytest.MonkeyPatch, ran: list[list[str]]) -> None:
    with pytest.raises(UserError, match=f"found the account 123456789012, expected {STAGE}, the account of stage"):
        bootstrap(monkeypatch, "stage", "123456789012")
    assert ran == []


def test_without_credentials_nothing_is_prepared(monkeypatch: pytest.MonkeyPatch, ran: list[list[str]]) -> None:
    with pytest.raises(UserError, match="credentials: found Unable to locate credentials, expected an administrator's"):
        bootstrap(monkeypatch, "dev", None)
    assert ran == []


def test_the_local_aws_is_not_prepared(monkeypatch: pytest.MonkeyPatch, ran: list[list[str]]) -> None:
    with pytest.raises(UserError, match="--env: found local, expected an environment of AWS"):
        bootstrap(monkeypatch, "local", STAGE)
    assert ran == []
