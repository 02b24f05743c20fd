"""Asking for a table to be filled; the tests give the writer's answers."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from headwater.commands.fill import fill
from headwater.errors import UserError
from headwater.lake.requests import fill_requests
from headwater.lake.requests import protocol as lake_requests
from headwater.lake.requests.protocol import DONE, News, Requests, Status
from headwater.lake_folder import EXAMPLE
from tests.unit.conftest import BUCKET


def test_the_command_asks_for_a_table_and_tells_how_many_rows_were_filled(
    s3: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = f"s3://{BUCKET}/{uuid.uuid4().hex[:8]}"
    requests = Requests(s3, lake, "orders")

    def follow(_: Requests, id_: str, token: str = "") -> Iterator[News]:
        assert [listed for listed, _ in requests.listed()] == [id_] == [fill_requests.REQUEST]
        yield News(None, 0)
        yield News(Status("token", DONE, parts=2, parts_done=2, records=1204), 0)

    monkeypatch.setattr(lake_requests, "follow", follow)
    fill("orders", lake=lake, folder=EXAMPLE)
    assert capsys.readouterr().out == "Done: 1,204 rows were filled\n"
    fill("orders", lake=lake, withdraw=True, folder=EXAMPLE)
    assert requests.listed() == []
    with pytest.raises(UserError, match="nothing to withdraw"):
        fill("orders", lake=lake, withdraw=True, folder=EXAMPLE)
