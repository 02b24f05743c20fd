"""Contracts in place of the demo's: what the deployment is held to is of them."""

from collections.abc import Callable

import aws_cdk as cdk
import msgspec
import pytest

from headwater.contract.model import Contract
from headwater.contract.reading import parse_contract
from headwater.environment.model import Environment, ExistingTable, ExistingTables
from headwater.environment.rules import read_environment
from headwater.lake_folder import EXAMPLE
from headwater.review import policies, rights
from stacks.assets import Assets
from tests.synth.conftest import Synthesized
from tests.synth.deployed import Templates, deployment, templates
from tests.synth.existing import with_existing
from tests.synth.test_permissions import without

CONTRACT = """
table: {table}
description: One row a {table}.
source: {{database: {database}, table: {source}}}
key: [id]
partition_by: []
buckets: 1
columns:
  - {{name: id, type: {type}, source_type: {source_type}}}
"""

Build = Callable[..., Synthesized]


def postgresql(table: str, schema: str = "rental") -> Contract:
    text = CONTRACT.format(
        table=table, database="postgresql", source=f"{schema}.{table}", type="bigint", source_type="bigint"
    )
    return parse_contract(text, f"{table}.yaml")


def dynamodb(table: str) -> Contract:
    text = CONTRACT.format(table=table, database="dynamodb", source=f"Rental-{table}", type="string", source_type="S")
    return parse_contract(text, f"{table}.yaml")


FILM, RENTALS, ORDERS, DEVICES, ACCOUNTS = (
    postgresql("film_actor"),
    postgresql("rentals", "shop"),
    postgresql("orders"),
    dynamodb("device_states"),
    dynamodb("accounts"),
)
DEVICE_STATES = ExistingTable(contract="device_states", table="Devices", stream="device-changes", stream_key=None)


@pytest.fixture(scope="module")
def build(assets: Assets, new_app: Callable[[], cdk.App]) -> Build:
    def built(
        contracts: list[Contract], change: Callable[[Environment], Environment] = lambda each: each
    ) -> Synthesized:
        return Synthesized(new_app(), change(read_environment("dev", EXAMPLE.config)), contracts, assets)

    return built


def beside_existing(settings: Environment) -> Environment:
    return with_existing(settings, DEVICE_STATES)


def beside_an_existing_database(settings: Environment) -> Environment:
    nothing = ExistingTables(stream_retention_hours=72, tables=())
    return msgspec.structs.replace(with_existing(settings), key_value=nothing)


def with_a_job_per_table(settings: Environment) -> Environment:
    return msgspec.structs.replace(settings, glue=msgspec.structs.replace(settings.dynamodb.glue, jobs="per-table"))


def missing(synthesized: Synthesized, changed: Templates | None = None) -> list[str]:
    deployed = deployment(synthesized, changed)
    granted = policies.read(deployed)
    principals = policies.needed_by(deployed, rights.read_principals())
    return [text for each in principals for text in policies.judge(deployed, granted, each).missing]


@pytest.mark.parametrize(
    ("described", "change"),
    [
        ([FILM, RENTALS, DEVICES], lambda settings: settings),
        ([FILM, RENTALS, DEVICES], beside_existing),
        ([FILM, ORDERS], lambda settings: settings),
        ([FILM], beside_an_existing_database),
        ([FILM, DEVICES, ACCOUNTS], with_a_job_per_table),
    ],
    ids=["Aurora", "existing sources", "PostgreSQL alone", "an existing PostgreSQL alone", "a job per table"],
)
def test_no_right_is_missing(
    build: Build, described: list[Contract], change: Callable[[Environment], Environment]
) -> None:
    assert missing(build(described, change)) == []


def test_rights_to_each_table_and_topic_are_needed(build: Build) -> None:
    synthesized = build([FILM, RENTALS, DEVICES], beside_existing)
    needed = policies.needed_by(deployment(synthesized), rights.read_principals())
    texts = {each.name: " ".join(map(str, each.rights)) for each in needed}
    for name in ("film_actor", "rentals"):
        assert f"s3:PutObject arn:aws:s3:::{{lake}}/lake/{name}/*" in texts["emr writer"]
    for topic in ("headwater.rental.film_actor", "headwater.shop.rentals"):
        assert f"landing/{topic}/*" in texts["emr writer"]
        assert f"topic/{{kafka}}/{topic} " in texts["source connector"] + texts["sink connector"]
    assert "/lake/device_states/*" in texts["glue writer"]
    assert not [name for name, text in texts.items() if "northwind" in text or "customers" in text]


def test_a_job_of_its_own_needs_what_its_table_does(build: Build) -> None:
    synthesized = build([FILM, DEVICES, ACCOUNTS], with_a_job_per_table)
    writers = [
        each
        for each in policies.needed_by(deployment(synthesized), rights.read_principals())
        if each.name == "glue writer"
    ]
    texts = {each.role: " ".join(map(str, each.rights)) for each in writers}
    assert set(texts) == {"glue-job:Roledevicestates", "glue-job:Roleaccounts"}
    assert "/lake/accounts/*" in texts["glue-job:Roleaccounts"]
    assert "device_states" not in texts["glue-job:Roleaccounts"]
    changed = templates(synthesized)
    without(changed, "Roledevicestates", "glue-job", "kinesis:GetRecords")
    assert any("glue writer (glue-job:Roledevicestates)" in text for text in missing(synthesized, changed))


@pytest.mark.parametrize(
    ("policy", "part", "action", "named"),
    [
        ("NodeRole", "emr", "s3:PutObject", "/lake/film_actor/*: no statement"),
        ("SinkRole", "connect", "s3:PutObject", "/landing/headwater.shop.rentals/*: no statement"),
        ("SourceRole", "connect", "kafka-cluster:WriteData", "/headwater.rental.film_actor: no statement"),
        ("Rolekeyvalue", "glue-job", "kinesis:GetRecords", "stream/device-changes: no statement"),
    ],
)
def test_a_missing_right_is_named(build: Build, policy: str, part: str, action: str, named: str) -> None:
    synthesized = build([FILM, RENTALS, DEVICES], beside_existing)
    changed = templates(synthesized)
    without(changed, policy, part, action)
    assert any(named in text for text in missing(synthesized, changed))
