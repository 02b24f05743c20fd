"""Values that have leaked are in every store, and in none once docs/how-to/leaked-values.md is followed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from headwater.contract.reading import read_contracts
from headwater.definitions import connectors
from headwater.lake.requests.protocol import Requests
from headwater.paths import ROOT
from headwater.waiting import wait_until
from rig.local import aws
from rig.local.kafka import Broker
from rig.local.pipeline import DATABASE, LAKE, LAKE_BUCKET, LANDING_BUCKET, Pipeline
from tests import programs
from tests.lake_folders import lake_folder
from tests.stores import Trace, file_traces, traces

pytestmark = pytest.mark.drill

PAGE = ROOT / "docs" / "how-to" / "leaked-values.md"
TABLE = """
CREATE SCHEMA shop;
CREATE TABLE shop.people (id integer PRIMARY KEY, note text, born date, iban text, password text);
"""
CONTRACT = """
table: people
description: A table of the tests.
source: {database: postgresql, table: shop.people}
key: [id]
partition_by: []
buckets: 1
on_unfit: quarantine
history: {keep_days: 30}
columns:
  - {name: id, type: int, source_type: integer}
  - {name: note, type: string, source_type: text}
  - {name: born, type: date, source_type: date}
  - {name: iban, type: string, source_type: text}
"""
CLOSED = f"{CONTRACT}exclude: [password, Straße]\nmask: {{iban: null}}\n"
"""With a name, too, that the table does not have, as of a column that was stored under another one."""
PASSWORD, IBAN = "leaked-password-771177", "leaked-iban-271828"
"""The one stands in ``_rest``, the other in a column."""
MARKERS = [PASSWORD, IBAN]
EVERYWHERE = {
    "landing gz",
    "people parquet",
    "people log",
    "people_changes parquet",
    "people_changes log",
    "_quarantine gz",
    "exports gz",
    "kafka log",
}
QUICK_BROKER = {"log.retention.check.interval.ms": "1000", "log.segment.delete.delay.ms": "1000"}


class Leak:
    """A pipeline in which the contract hides nothing at first, and the commands of the page."""

    def __init__(self, folder: Path) -> None:
        self._contracts = folder / "contracts"
        self._contracts.mkdir()
        self._since = ""
        self._write(CONTRACT)
        lake = lake_folder(folder / "lake", self._contracts)
        self.pipeline = Pipeline(folder / "parts", read_contracts(self._contracts), lake, sql=TABLE)
        self.pipeline.broker = Broker(folder / "parts" / "kafka", {**connectors.broker_config(), **QUICK_BROKER})

    def _write(self, contract: str) -> None:
        (self._contracts / "people.yaml").write_text(contract)

    def start(self) -> None:
        """Start all parts, with buckets that keep older versions, as in environments that retain data."""
        pipeline = self.pipeline
        pipeline.start_source()
        self.change(
            "INSERT INTO shop.people SELECT n, 'first', '2000-01-01', %(iban)s, %(password)s FROM "
            "generate_series(1, 20) AS n"
        )
        pipeline.start_stream()
        for bucket in (LAKE_BUCKET, LANDING_BUCKET):
            status = {"Status": "Enabled"}
            pipeline.aws.client("s3").put_bucket_versioning(Bucket=bucket, VersioningConfiguration=status)
        pipeline.start_writer()
        pipeline.start_connect()
        pipeline.drain()

    def change(self, statement: str) -> None:
        """Change the source, with the values that may not leave it at hand."""
        with self.pipeline.postgres.connect(DATABASE) as owner:
            owner.execute(statement.encode(), {"iban": IBAN, "password": PASSWORD})

    def found(self) -> dict[str, list[Trace]]:
        """The places that hold the values, by store: S3 with older versions, and files of Kafka, Connect and Spark."""
        s3 = self.pipeline.aws.client("s3")
        listed = [trace for bucket in (LAKE_BUCKET, LANDING_BUCKET) for trace in traces(s3, bucket, "", MARKERS)]
        for part in ("kafka", "connect", "spark"):
            listed += file_traces(self.pipeline.folder / part, MARKERS)
        found: dict[str, list[Trace]] = {}
        for trace in listed:
            found.setdefault(trace.store(), []).append(trace)
        return found

    def headwater(self, command: str, **more: str) -> subprocess.Popen[str]:
        """Begin a command of the page, whose --env and other options become this pipeline's."""
        own = re.sub(r" --(env|host|user|lake) \S+", "", command).replace("TABLE", "people")
        verb, *arguments = shlex.split(own)[1:]
        server = self.pipeline.postgres
        lake = {"--lake": LAKE, "--endpoint": self.pipeline.aws.s3_endpoint, "--region": aws.REGION}
        database = {
            "--host": server.host,
            "--port": str(server.port),
            "--user": server.superuser,
            "--database": DATABASE,
        }
        options = {"--folder": str(self.pipeline.lake_folder.root), **more}
        options |= {} if verb in ("expire", "quarantine", "sql") else database
        options |= {} if verb == "resync" else lake
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "headwater.cli",
                verb,
                *arguments,
                *(part for pair in options.items() for part in pair),
            ],
            env={**self.pipeline.aws.environment(), "HEADWATER_DB_PASSWORD": server.password},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, command: str) -> str:
        """Run a command of the page, with yes for an answer, and return what it says."""
        with self.headwater(command) as process:
            said, _ = programs.said_by(process, "y\n")
        assert process.returncode == 0, f"{command}\n{said}"
        return said

    def deploy(self, command: str) -> None:
        """Do as a deploy of the closed contract does: give it to the connector and the writer."""
        self._write(CLOSED)
        pipeline = self.pipeline
        pipeline.contracts = read_contracts(self._contracts)
        (contract,) = pipeline.contracts
        key = f"contracts/{contract.table}.json"
        pipeline.aws.client("s3").put_object(Bucket=LAKE_BUCKET, Key=key, Body=contract.to_json().encode())
        pipeline.writer.stop()
        pipeline.start_writer()
        source, _ = pipeline.connector_names
        pipeline.connect.put(*connectors.source_connector(pipeline.contracts, pipeline.settings))
        pipeline.connect.await_running(source)
        self.change("UPDATE shop.people SET note = 'second' WHERE id = 1")
        pipeline.drain()

    def note_time(self, command: str) -> None:
        shell = ["bash", "-c", f"{command} && echo $SINCE"]
        self._since = subprocess.run(shell, check=True, capture_output=True, text=True).stdout.strip()

    def await_no_rows(self, command: str) -> None:
        """Repeat a query of the page until it gives no rows."""
        query = command.replace("$SINCE", self._since)
        wait_until("all rows to be written anew", lambda: "0 rows" in self.run(query).splitlines(), poll=1)

    def drain(self, command: str) -> None:
        """Wait until nothing is left to land or read, as ``headwater status`` reports it of a deployed pipeline."""
        self.pipeline.drain()

    def update_topic(self, command: str) -> None:
        """Give the topic a short retention, or the former one, by Kafka's API in place of MSK's."""
        topic = self.pipeline.topics["people"]
        is_short = command.endswith("$SHORT")
        value = "1000" if is_short else None
        names = re.findall(r'"([a-z.]+)": "600000"', PAGE.read_text())
        assert names == ["retention.ms", "segment.ms"]
        configs = dict.fromkeys(names, ("SET", value) if value else ("DELETE", None))
        client = KafkaAdminClient(**self.pipeline.broker.access.for_python())
        client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs=configs)])
        client.close()
        if is_short:
            wait_until("Kafka to delete", lambda: not file_traces(self.pipeline.folder / "kafka", MARKERS), poll=1)

    def python(self, command: str) -> None:
        """Run a statement of Python on the page."""
        arguments = shlex.split(command.replace("LAKE_BUCKET", LAKE_BUCKET))[1:]
        programs.run([sys.executable, *arguments], env=self.pipeline.aws.environment()).check_returncode()


@pytest.fixture(scope="module")
def leak(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Leak]:
    leak = Leak(tmp_path_factory.mktemp("leak"))
    with leak.pipeline:
        leak.start()
        yield leak


def let_leak(leak: Leak) -> None:
    """Have the values in every store: changed rows, one that does not fit, one that goes, and a copy left behind."""
    leak.change("UPDATE shop.people SET note = 'changed' WHERE id <= 5")
    leak.change("INSERT INTO shop.people VALUES (21, 'odd', 'infinity', %(iban)s, %(password)s)")
    leak.change("DELETE FROM shop.people WHERE id = 20")
    leak.pipeline.drain()
    s3 = leak.pipeline.aws.client("s3")
    requests = Requests(s3, LAKE, "people")
    with leak.headwater("headwater backfill --table TABLE") as backfill:
        wait_until(
            "a copy that is asked for", lambda: any(id_.startswith("copy/") for id_, _ in requests.listed()), poll=0.01
        )
        backfill.kill()
    both = [Requests(s3, LAKE, table) for table in ("people", "people_changes")]

    def loaded() -> bool:
        return all(of.is_answered(id_) for of in both for id_, _ in of.listed())

    wait_until("the copy to be loaded", loaded)
    # It fits now: a row that does not could not be read again.
    leak.change("UPDATE shop.people SET born = '2000-01-01' WHERE id = 21")
    leak.pipeline.drain()


def commands() -> list[str]:
    """The commands of the page, in its order."""
    blocks = re.findall(r"```console\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


def test_nothing_is_left_in_any_store_once_the_page_is_followed(leak: Leak) -> None:
    let_leak(leak)
    before = leak.found()
    assert before.keys() >= EVERYWHERE, "the search finds the values where they are"
    for marker in MARKERS:
        assert {
            store for store, listed in before.items() if any(marker in trace.told for trace in listed)
        } >= EVERYWHERE

    def here(command: str) -> None:
        """Nothing of what it clears or asks is on this machine, or the step of ``update_topic`` does it."""

    steps: Mapping[str, Callable[[str], object]] = {
        "headwater deploy --env ENV": leak.deploy,
        "SINCE=$(date ": leak.note_time,
        "headwater resync ": leak.run,
        "headwater sql ": leak.await_no_rows,
        "headwater status ": leak.drain,
        "headwater verify ": leak.run,
        "headwater quarantine drop ": leak.run,
        "headwater expire ": leak.run,
        "aws kafka update-topic ": leak.update_topic,
        ".venv/bin/python -c ": leak.python,
        "CLUSTER_ARN=$(aws kafka list-clusters-v2 ": here,
        "BEFORE=$(aws kafka describe-topic ": here,
        "SHORT=$(echo $BEFORE ": here,
        "aws s3 rm s3://RESULTS_BUCKET/": here,
        "headwater logs ": here,
        "aws s3 sync s3://LOGS_BUCKET/": here,
        "find emr-logs ": here,
        "aws kinesis ": here,
    }
    used = set()
    for command in commands():
        (step,) = [each for each in steps if command.startswith(each)]
        used.add(step)
        steps[step](command)
        if "quarantine drop" in command:
            assert "_quarantine gz of before" in leak.found(), "S3 keeps what is dropped"
    assert used == set(steps)
    assert leak.found() == {}

    # The table goes on, and shows what the source has.
    leak.change("UPDATE shop.people SET note = 'third' WHERE id <= 3")
    leak.pipeline.drain()
    (compared,) = leak.pipeline.verify()
    assert (compared.missing, compared.extra, compared.different) == (0, 0, 0), compared.examples
    assert leak.found() == {}
