"""Asking for a table's past to be deleted; the tests give the writers' answers."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from headwater.cli import app
from headwater.commands.expire import expire
from headwater.errors import UserError
from headwater.lake.requests import expire_requests
from headwater.lake.requests import protocol as lake_requests
from headwater.lake.requests.protocol import DONE, News, Requests, Status
from headwater.lake_folder import EXAMPLE
from tests.unit.conftest import BUCKET


def test_the_command_asks_both_writers_and_tells_what_is_deleted_and_what_stays(
    s3: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = f"s3://{BUCKET}/{uuid.uuid4().hex[:8]}"
    asked = [Requests(s3, lake, table) for table in ("customers", "customers_changes")]
    deleted = {"files": 1041, "landing_objects": 118, "landing_left": 1, "versions": 7}
    answers = [Status("token", DONE, told=deleted), Status("token", DONE, told={**deleted, "landing_left": 0})]

    def follow(_: Requests, id_: str, token: str = "") -> Iterator[News]:
        assert [[listed for listed, _ in each.listed()] for each in asked] == [[expire_requests.REQUEST]] * 2
        yield News(answers.pop(0), 0)

    monkeypatch.setattr(lake_requests, "follow", follow)
    expire("customers", lake=lake, yes=True, folder=EXAMPLE)
    assert capsys.readouterr().out.splitlines() == [
        "customers: deleted 1,041 replaced files, 118 landing objects and 7 older versions",
        "1 landing objects stay: the newest of each partition, and those that a table has not read yet",
        "customers_changes: deleted 1,041 replaced files, 118 landing objects and 7 older versions",
    ]


def test_nothing_is_asked_for_without_a_yes_or_a_contract(s3: Any) -> None:
    lake = f"s3://{BUCKET}/{uuid.uuid4().hex[:8]}"
    arguments = ["expire", "customers", "--lake", lake]
    refused = CliRunner().invoke(app, arguments, input="n\n")
    assert "Delete the past of customers and customers_changes for good? [y/N]" in refused.output
    assert refused.exit_code == 1
    assert Requests(s3, lake, "customers").listed() == []
    with pytest.raises(UserError, match=r"TABLE: found 'people', expected one of .*customers"):
        expire("people", lake=lake, yes=True, folder=EXAMPLE)
