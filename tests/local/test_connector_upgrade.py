"""The source connector takes over from an earlier Debezium, which was stopped while it read a table again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwater.console import announce
from headwater.contract.reading import read_contracts
from headwater.definitions import connectors
from headwater.local.connect import ConnectWorker
from headwater.local.pipeline import DATABASE, Pipeline
from headwater.local.processes import wait_until
from headwater.order_database.administration import read_again
from headwater.packaging import jars
from headwater.paths import BUILD
from tests.local.test_capture import CONTRACTS, TABLES, Capture

ROWS = 3000


def former_plugins(folder: Path) -> Path:
    """A folder of plugins as the worker wants it, with Debezium 3.3 in place of the present one."""
    jars.fetch(announce, sets=["debezium-3.3"])
    folder.mkdir()
    (folder / "debezium").symlink_to(BUILD / jars.FORMER["debezium-3.3"])
    (folder / "headwater-connect").symlink_to(BUILD / "plugins" / "headwater-connect")
    return folder


def read_rows(capture: Capture, kind: str) -> list[int]:
    """The ids of the documents that a snapshot of a kind has read so far."""
    events: list[dict[str, Any]] = capture.landed("documents")
    return [event["after"]["id"] for event in events if event["op"] == "r" and event["source"]["snapshot"] in kind]


@pytest.mark.drill
def test_debezium_3_6_goes_on_where_3_3_was_stopped(tmp_path: Path) -> None:
    with Pipeline(tmp_path / "run", read_contracts(CONTRACTS), CONTRACTS, sql=TABLES) as pipeline:
        pipeline.start_source()
        pipeline.start_stream()
        capture = Capture(pipeline)
        name, config = connectors.source_connector(pipeline.contracts, pipeline.settings)
        former = {
            setting: value
            for setting, value in config.items()
            if not setting.startswith(("headwater.", "notification."))
        } | {"connector.class": "io.debezium.connector.postgresql.PostgresConnector"}
        properties = connectors.worker_properties(pipeline.settings)
        bootstrap, plugins = pipeline.broker.bootstrap, former_plugins(tmp_path / "plugins")
        first = ConnectWorker(tmp_path / "first", bootstrap, properties, plugins=plugins)
        second = ConnectWorker(tmp_path / "second", bootstrap, properties)
        with first, pipeline.postgres.connect(DATABASE) as owner:
            pipeline.connect = first
            first.put(*connectors.sink_connector(pipeline.contracts, pipeline.settings))
            first.put(name, former)
            first.await_running(name)
            capture.await_landed("documents", 1)
            owner.execute("INSERT INTO shop.documents SELECT n, 'text', '' FROM generate_series(1, %s) AS n", (ROWS,))
            read_again(owner, ["shop.documents"])
            wait_until("some rows to be read again", lambda: len(read_rows(capture, "incremental")) > 200, 60, 0.1)
        half = read_rows(capture, "incremental")
        assert len(set(half)) <= ROWS // 2
        with second, pipeline.postgres.connect(DATABASE) as owner:
            pipeline.connect = second
            owner.execute("UPDATE shop.documents SET title = 'meanwhile' WHERE id = 1")
            second.put(name, config)
            second.await_running(name)
            wait_until(
                "every row to be read again",
                lambda: set(read_rows(capture, "incremental")) >= {*range(ROWS + 1)} - {1},
                120,
            )
            owner.execute("INSERT INTO shop.documents VALUES (-1, 'at last', '')")
            capture.await_all_landed()
        events = capture.landed("documents")
        assert events[-1]["after"]["id"] == -1
        assert "meanwhile" in [event["after"]["title"] for event in events]
        assert read_rows(capture, "first last true last_in_data_collection first_in_data_collection") == [0]
        # What was read before is not read again.
        again = read_rows(capture, "incremental")
        assert len(again) < 1.5 * ROWS
