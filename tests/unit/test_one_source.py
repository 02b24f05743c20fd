"""The verbs and the demo, if the contracts name none of one kind of source."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headwater.cli import app
from headwater.contract.model import DYNAMODB, POSTGRESQL, of_database
from headwater.contract.reading import read_contracts
from headwater.environment.rules import read_environment
from headwater.errors import UserError
from headwater.lake_folder import EXAMPLE
from headwater.operations import connectors, key_value
from headwater.operations.deployed import Deployed
from headwater.operations.part_logs import Wanted, lines
from rig.demo import run as demo
from rig.demo.sources import DemoPlan, ItemsPipeline, OrdersPipeline
from tests.lake_folders import lake_folder

TABLES = {POSTGRESQL: "customers, orders, products", DYNAMODB: "accounts"}
PIPELINES = {POSTGRESQL: OrdersPipeline, DYNAMODB: ItemsPipeline}
PLAN = DemoPlan(None, 1, 1, 1)


@pytest.fixture
def items_alone(tmp_path: Path) -> Path:
    """A lake folder with contracts of DynamoDB alone."""
    contracts = tmp_path / "contracts"
    contracts.mkdir()
    shutil.copy(EXAMPLE.contracts / "accounts.yaml", contracts)
    return lake_folder(tmp_path / "items", contracts).root


def deployed(source: str) -> Deployed:
    """An environment of one source, without an AWS."""

    def client(service: str) -> None:
        raise AssertionError(f"found a client of {service}, expected none")

    return Deployed(
        read_environment("dev", EXAMPLE.config), of_database(read_contracts(EXAMPLE.contracts), source), client
    )


def error_of(*arguments: str) -> str:
    with pytest.raises(UserError) as refused:
        CliRunner().invoke(app, arguments, catch_exceptions=False)
    return str(refused.value)


@pytest.mark.parametrize(
    ("option", "arguments"),
    [
        ("--folder", ["db", "create", "--database", "shop"]),
        ("--folder", ["db", "capture", "--database", "shop"]),
        ("--folder", ["replicate", "--database", "shop"]),
        ("--database-url", ["status", "--env", "dev", "--database-url", "postgresql://reader@db/shop"]),
    ],
)
def test_a_verb_of_postgresql_alone_is_refused_without_a_contract(
    items_alone: Path, option: str, arguments: list[str]
) -> None:
    said = error_of(*arguments, "--folder", str(items_alone))
    assert said.startswith(f"{option}: found only contracts of accounts, expected at least one of PostgreSQL")


def test_the_demo_loads_no_orders_without_a_contract_of_them(
    items_alone: Path,
) -> None:
    assert error_of("demo", "--data", "northwind", "--folder", str(items_alone)).startswith(
        "--data: found only contracts of accounts"
    )


@pytest.mark.parametrize(("source", "other"), [(POSTGRESQL, DYNAMODB), (DYNAMODB, POSTGRESQL)])
def test_no_epoch_is_raised_of_a_source_without_contracts(source: str, other: str, tmp_path: Path) -> None:
    contracts = tmp_path / "contracts"
    contracts.mkdir()
    for contract in of_database(read_contracts(EXAMPLE.contracts), other):
        shutil.copy(EXAMPLE.contracts / f"{contract.table}.yaml", contracts)
    config = tmp_path / "config"
    shutil.copytree(EXAMPLE.config, config)
    folder = lake_folder(tmp_path / "lake", contracts, config)
    assert f"SOURCE: found only contracts of {TABLES[other]}" in error_of(
        "epoch", "--env", "dev", source, "--folder", str(folder.root)
    )
    assert (config / "dev.yaml").read_text() == (EXAMPLE.config / "dev.yaml").read_text()


@pytest.mark.parametrize(
    ("source", "part", "expected"),
    [
        (DYNAMODB, "source", "job, runs: no contract is of PostgreSQL"),
        (POSTGRESQL, "job", "source, sink, brokers, database, steps, rotation, writer: no contract is of DynamoDB"),
    ],
)
def test_the_log_of_a_part_that_no_contract_has_is_refused(source: str, part: str, expected: str) -> None:
    with pytest.raises(UserError, match=f"PART: found {part}, expected one of {expected}"):
        lines(deployed(source), part, Wanted(0.0))


@pytest.mark.parametrize(("source", "unasked"), [(DYNAMODB, connectors), (POSTGRESQL, key_value)])
def test_status_measures_no_part_that_no_contract_has(source: str, unasked: object) -> None:
    measured = {module: list(module.metrics(deployed(source))) for module in (connectors, key_value)}
    assert [module for module, metrics in measured.items() if not metrics] == [unasked]


@pytest.mark.parametrize("source", [POSTGRESQL, DYNAMODB])
def test_the_demo_has_the_pipelines_of_its_contracts_alone(source: str, tmp_path: Path) -> None:
    contracts = of_database(read_contracts(EXAMPLE.contracts), source)
    with ExitStack() as opened:
        _, sources = demo._open(opened, tmp_path, contracts, PLAN)
    assert [type(each) for each in sources] == [PIPELINES[source]]


def test_the_demo_of_both_sources_has_one_lake(tmp_path: Path) -> None:
    with ExitStack() as opened:
        aws_api, sources = demo._open(opened, tmp_path, read_contracts(EXAMPLE.contracts), PLAN)
    assert [type(each) for each in sources] == [OrdersPipeline, ItemsPipeline]
    assert all(each.aws is aws_api for each in sources if isinstance(each, OrdersPipeline | ItemsPipeline))
