"""The account of an environment: AWS's own, or what another package provides."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

import pytest

from headwater.commands import accounts
from headwater.environment.rules import read_environment
from headwater.errors import UserError
from headwater.lake_folder import EXAMPLE
from rig.commands.local import LocalAws


def test_the_rig_provides_the_account_of_local() -> None:
    assert isinstance(accounts.of(read_environment("local", EXAMPLE.config), EXAMPLE), LocalAws)


def test_without_the_rig_local_is_refused_and_aws_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def none(**selected: Any) -> tuple[()]:
        asked.append(selected)
        return ()

    monkeypatch.setattr(accounts, "entry_points", none)
    with pytest.raises(UserError, match=r"^local: found no package .* expected the package `rig`: run `.*tools/setup`"):
        accounts.of(read_environment("local", EXAMPLE.config), EXAMPLE)
    assert asked == [{"group": "headwater.accounts", "name": "local"}]
    assert accounts.of(read_environment("dev", EXAMPLE.config), EXAMPLE).approval == "broadening"
    assert accounts.of(read_environment("prod", EXAMPLE.config), EXAMPLE).approval == "any-change"


def test_a_rig_that_cannot_be_imported_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = EntryPoint("local", "nowhere.local:Account", accounts.ENTRY_POINTS)
    monkeypatch.setattr(accounts, "entry_points", lambda **_: (broken,))
    with pytest.raises(UserError, match=r"^local: found No module named 'nowhere' in nowhere\.local:Account"):
        accounts.of(read_environment("local", EXAMPLE.config), EXAMPLE)


def test_two_packages_that_provide_local_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    two = [EntryPoint("local", value, accounts.ENTRY_POINTS) for value in ("one:A", "other:A")]
    monkeypatch.setattr(accounts, "entry_points", lambda **_: two)
    with pytest.raises(UserError, match=r"^local: found its account in one:A and in other:A, expected one$"):
        accounts.of(read_environment("local", EXAMPLE.config), EXAMPLE)
