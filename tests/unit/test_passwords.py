"""What a command says of the passwords that it lacks."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from headwater.cli import app
from headwater.definitions.source_database import ROLES
from headwater.errors import UserError
from tests.lake_folders import lake_folder

OF_ROLES = [f"{role.upper()}_PASSWORD" for role in ROLES]


def refusal(folder: Path) -> str:
    result = CliRunner().invoke(app, ["db", "create", "--database", "shop", "--folder", str(folder)])
    assert isinstance(result.exception, UserError), (result.output, result.exception)
    return str(result.exception)


def test_all_passwords_that_are_missing_are_named_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = lake_folder(tmp_path / "lake").root
    for variable in OF_ROLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HEADWATER_DB_PASSWORD", "owner")
    every = "HEADWATER_CDC_PASSWORD, HEADWATER_APP_PASSWORD, HEADWATER_READER_PASSWORD"
    assert refusal(folder) == (
        "New password of headwater_cdc, New password of headwater_app, New password of headwater_reader: found no "
        f"{every}, and no terminal for a prompt, expected one of the two: set {every}"
    )
    for variable in OF_ROLES[1:]:
        monkeypatch.setenv(variable, "given")
    assert refusal(folder).endswith(": set HEADWATER_CDC_PASSWORD")
