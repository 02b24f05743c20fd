"""The account of an environment: AWS's own, or what another package provides."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.commands import accounts
from headwater.environment.rules import read_environment
from headwater.errors import UserError
from headwater.paths import CONFIG
from rig.commands.local import LocalAws


def test_the_rig_provides_the_account_of_local() -> None:
    assert isinstance(accounts.of(read_environment("local", CONFIG)), LocalAws)


def test_without_the_rig_local_is_refused_and_aws_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def none(**selected: Any) -> tuple[()]:
        asked.append(selected)
        return ()

    monkeypatch.setattr(accounts, "entry_points", none)
    with pytest.raises(UserError, match=r"^local: found no package .* expected the package `rig`: run `make setup`"):
        accounts.of(read_environment("local", CONFIG))
    assert asked == [{"group": "headwater.accounts", "name": "local"}]
    assert accounts.of(read_environment("dev", CONFIG)).approval == "broadening"
    assert accounts.of(read_environment("prod", CONFIG)).approval == "any-change"
