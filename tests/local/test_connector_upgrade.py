"""The source connector takes over from an earlier Debezium, which was stopped while it read a table again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from headwater.console import announce
from headwater.contract.reading import read_contracts
from headwater.definitions import connectors
from headwater.errors import UserError
from headwater.packaging import jars
from headwater.paths import BUILD
from headwater.postgresql.administration import read_again
from headwater.waiting import wait_until
from rig.local import aws
from rig.local.connect import ConnectWorker
from rig.local.pipeline import DATABASE, Pipeline
from tests.lake_folders import lake_folder
from tests.local.test_capture import CONTRACTS, TABLES, Capture

ROWS = 8000


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


class Upgrade:
    """A pipeline whose source connector is Debezium 3.3 in a first worker, and the present one in a second."""

    def __init__(self, pipeline: Pipeline, folder: Path) -> None:
        self.pipeline = pipeline
        self.capture = Capture(pipeline)
        self.name, self.config = connectors.source_connector(pipeline.contracts, pipeline.settings)
        self.former = {
            setting: value
            for setting, value in self.config.items()
            if not setting.startswith(("headwater.", "notification."))
        } | {"connector.class": "io.debezium.connector.postgresql.PostgresConnector"}
        access, properties = pipeline.broker.access, connectors.worker_properties(pipeline.settings)
        environment, former = aws.environment(pipeline.aws.credentials), former_plugins(folder / "plugins")
        self.first = ConnectWorker(folder / "first", access, properties, plugins=former, environment=environment)
        self.second = ConnectWorker(folder / "second", access, properties, environment=environment)

    def start(self, worker: ConnectWorker, config: dict[str, str]) -> None:
        """Run the source connector with a configuration in a worker that has been started."""
        self.pipeline.connect = worker
        worker.put(self.name, config)
        worker.await_running(self.name)


@pytest.fixture
def upgrade(tmp_path: Path) -> Iterator[Upgrade]:
    with Pipeline(
        tmp_path / "run", read_contracts(CONTRACTS), lake_folder(tmp_path / "lake", CONTRACTS), sql=TABLES
    ) as pipeline:
        pipeline.start_source()
        pipeline.start_stream()
        yield Upgrade(pipeline, tmp_path)


@pytest.mark.drill
def test_debezium_3_6_goes_on_where_3_3_was_stopped(upgrade: Upgrade) -> None:
    capture = upgrade.capture
    with upgrade.first as worker, upgrade.pipeline.postgres.connect(DATABASE) as owner:
        worker.put(*connectors.sink_connector(upgrade.pipeline.contracts, upgrade.pipeline.settings))
        upgrade.start(worker, upgrade.former)
        capture.await_landed("documents", 1)
        owner.execute("INSERT INTO shop.documents SELECT n, 'text', '' FROM generate_series(1, %s) AS n", (ROWS,))
        read_again(owner, ["shop.documents"])
        wait_until("some rows to be read again", lambda: len(read_rows(capture, "incremental")) > 200, poll=0.1)
    assert len(set(read_rows(capture, "incremental"))) <= ROWS // 2
    with upgrade.second as worker, upgrade.pipeline.postgres.connect(DATABASE) as owner:
        owner.execute("UPDATE shop.documents SET title = 'meanwhile' WHERE id = 1")
        upgrade.start(worker, upgrade.config)
        others = {*range(ROWS + 1)} - {1}
        wait_until("all rows to be read again", lambda: set(read_rows(capture, "incremental")) >= others)
        owner.execute("INSERT INTO shop.documents VALUES (-1, 'at last', '')")
        capture.await_all_landed()
    events = capture.landed("documents")
    assert events[-1]["after"]["id"] == -1
    assert "meanwhile" in [event["after"]["title"] for event in events]
    assert read_rows(capture, "first last true last_in_data_collection first_in_data_collection") == [0]
    # What was read before is not read again.
    assert len(read_rows(capture, "incremental")) < 1.5 * ROWS


@pytest.mark.drill
def test_a_task_that_a_generated_column_has_stopped_goes_on(upgrade: Upgrade) -> None:
    capture = upgrade.capture
    former = {setting: value for setting, value in upgrade.former.items() if setting != "column.exclude.list"}
    with upgrade.first as worker, upgrade.pipeline.postgres.connect(DATABASE) as owner:
        worker.put(*connectors.sink_connector(upgrade.pipeline.contracts, upgrade.pipeline.settings))
        upgrade.start(worker, former)
        capture.await_landed("prices", 2)
        read_again(owner, ["shop.prices"])
        owner.execute("INSERT INTO shop.documents VALUES (1, 'behind the signal', '')")
        capture.await_landed("documents", 2)
        upgrade.pipeline.await_captured()
        worker.delete(upgrade.name)
        worker.put(upgrade.name, former)

        def failed() -> bool:
            with suppress(UserError):  # the worker is reading the configuration
                return [task["state"] for task in worker.status(upgrade.name)["tasks"]] == ["FAILED"]
            return False

        wait_until("the task to fail at what its position asks for", failed)
        worker.delete(upgrade.name)
    with upgrade.second as worker:
        upgrade.start(worker, upgrade.config)
        assert [event["after"]["net"] for event in capture.await_landed("prices", 4)] == [10, 20, 10, 20]
