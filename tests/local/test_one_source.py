"""A lake of one source alone, whose user has deleted the contracts of the other: the demo, and the local AWS."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.contract.model import DYNAMODB, POSTGRESQL
from headwater.contract.reading import read_contract, read_contracts
from headwater.lake_folder import EXAMPLE
from rig.local_aws.daemon import Running
from rig.samples import items, orders
from rig.samples.loading import load_folder
from tests.checkout import Checkout, succeeded
from tests.deployment import Deployment

TABLES = {POSTGRESQL: ["customers", "orders", "products"], DYNAMODB: ["accounts"]}
PIPELINES = {POSTGRESQL: "relational", DYNAMODB: "key_value"}
MEMORY = {
    POSTGRESQL: {"AWS API", "S3", "PostgreSQL", "TLS", "Kafka", "Kafka Connect", "Spark"},
    DYNAMODB: {"AWS API", "S3", "DynamoDB Local", "Spark (key-value)", "Relay (accounts)"},
}
# What only the other source's run has to say.
OTHERS_WORDS = {
    POSTGRESQL: r"DynamoDB|Kinesis|Glue job|item|key-value|accounts",
    DYNAMODB: r"PostgreSQL|Kafka|Debezium|EMR|Spark writer|transactions, live|order|relational|customer|Revenue",
}
PARTS = {
    POSTGRESQL: ["PostgreSQL", "Kafka", "source connector", "sink", "EMR step", "Glue catalog"],
    DYNAMODB: ["DynamoDB accounts", "Glue job key-value", "Glue catalog"],
}
ITEMS_TABLE = "headwater-local-accounts"


@pytest.fixture(params=[POSTGRESQL, DYNAMODB])
def source(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def checkout(source: str, tmp_path: Path) -> Iterator[Checkout]:
    """A checkout whose contracts are of one source alone, and of whose local AWS nothing is left at the end."""
    copy = Checkout(tmp_path / "checkout")
    for contract in read_contracts(copy.folder / "contracts"):
        if contract.source.database != source:
            for file in (copy.folder / "contracts").glob(f"{contract.table}.*"):
                file.unlink()
    # As README.md says: the queries are of the orders.
    if source == DYNAMODB:
        shutil.rmtree(copy.folder / "queries")
    yield copy
    left = Running.find(copy.account)
    if left is not None:
        left.stop(copy.account)


def test_the_demo_runs_and_shows_the_parts_of_that_source_alone(checkout: Checkout, source: str) -> None:
    said = succeeded(checkout.run_headwater("demo", "--seconds", "5", "--scale", "0.1", COLUMNS="200"))
    assert said.splitlines()[-1] == "The lake equals its source."
    assert re.findall(r"^│ (\w+) ", said, re.MULTILINE) == TABLES[source]
    assert re.findall(OTHERS_WORDS[source], said) == []
    report = checkout.folder / "build" / "demo" / "report"
    figures = json.loads(report.with_suffix(".json").read_text())
    assert [table["name"] for table in figures["tables"]] == TABLES[source]
    assert all(table["source_rows"] == table["lake_rows"] > 0 for table in figures["tables"])
    for by_pipeline in ("freshness_seconds_by_pipeline", "stage_seconds_by_pipeline", "workloads"):
        assert list(figures[by_pipeline]) == [PIPELINES[source]]
    assert figures["memory_bytes"].keys() == MEMORY[source]
    assert bool(figures["top_customers"]) == (source == POSTGRESQL)
    # The text alone: a style or a script may say anything.
    page = re.sub(r"<(style|script)\b.*?</\1>", "", report.with_suffix(".html").read_text(), flags=re.DOTALL)
    assert re.findall(OTHERS_WORDS[source], page) == []


@pytest.mark.drill
def test_the_demo_is_deployed_and_updated_under_its_load(checkout: Checkout, source: str) -> None:
    # It copies what git lists.
    succeeded(checkout.run("git", "init", "--quiet"))
    succeeded(checkout.run("git", "add", "--all"))
    said = succeeded(checkout.run_headwater("demo", "--deployed", "--seconds", "10", "--scale", "0.1"))
    assert said.splitlines()[-1] == "The lake equals its source."
    assert ("a column newsletter" in said) == (source == POSTGRESQL)
    figures = json.loads((checkout.folder / "build" / "demo" / "report.json").read_text())
    assert [table["name"] for table in figures["tables"]] == TABLES[source]
    assert all(table["source_rows"] == table["lake_rows"] > 0 for table in figures["tables"])
    assert list(figures["workloads"]) == [PIPELINES[source]]


@pytest.mark.drill
def test_the_lake_is_deployed_compared_and_destroyed_locally(checkout: Checkout, source: str, tmp_path: Path) -> None:
    succeeded(checkout.deploy())
    deployment = Deployment(checkout)
    if source == POSTGRESQL:
        orders.generate(0.1, 1996, tmp_path)
        with deployment.connect() as owner:
            load_folder(owner, tmp_path)
    else:
        generated = items.generate(read_contract(EXAMPLE.contracts / "accounts.yaml"), 100, 1996)
        items.load(deployment.client("dynamodb"), ITEMS_TABLE, generated)

    def compared() -> list[dict[str, Any]]:
        done = checkout.run_headwater("verify", "--env", "local", "--json")
        assert done.returncode in (0, 1), done.stderr
        tables: list[dict[str, Any]] = json.loads(done.stdout)["tables"]
        return tables

    def is_equal() -> bool:
        return all(table["source_rows"] == table["lake_rows"] > 0 and not table["different"] for table in compared())

    deployment.wait_until("the lake to equal its source", is_equal)
    state = json.loads(checkout.run_headwater("status", "--env", "local", "--json").stdout)
    assert [part["name"] for part in state["parts"]] == PARTS[source]
    assert [part["name"] for part in state["parts"] if part["problems"] or part["unasked"]] == []
    said = checkout.run_headwater("logs", "source" if source == DYNAMODB else "job", "--env", "local")
    assert "expected one of" in said.stderr
    succeeded(checkout.run_headwater("destroy", "--env", "local"))
    assert Running.find(checkout.account) is None
