from __future__ import annotations

from dataclasses import replace

from headwater.contract.model import POSTGRESQL, of_database
from headwater.contract.reading import read_contracts
from headwater.definitions import connectors
from headwater.definitions.connectors import CaptureSettings
from headwater.lake_folder import EXAMPLE

ROOT = "-----BEGIN CERTIFICATE-----\nroot\n-----END CERTIFICATE-----\n"
TLS = connectors.verified_by(ROOT)
SETTINGS = CaptureSettings("dev", "eu-west-1", "db", "5432", "northwind", "headwater/dev/cdc", TLS, "landing")


def test_every_contract_of_postgresql_has_a_topic_that_both_connectors_know() -> None:
    contracts = of_database(read_contracts(EXAMPLE.contracts), POSTGRESQL)
    names = {connectors.topic(contract, SETTINGS.topic_prefix) for contract in contracts}
    assert names <= connectors.topics(contracts, SETTINGS).keys()
    assert set(connectors.sink_connector(contracts, SETTINGS)[1]["topics"].split(",")) == names
    included = set(connectors.source_connector(contracts, SETTINGS)[1]["table.include.list"].split(","))
    assert {contract.source.table for contract in contracts} <= included


def test_the_connectors_leave_the_other_databases_tables_alone() -> None:
    everything = read_contracts(EXAMPLE.contracts)
    relational = of_database(everything, POSTGRESQL)
    assert len(relational) < len(everything)
    assert connectors.topics(everything, SETTINGS) == connectors.topics(relational, SETTINGS)
    for render in (connectors.source_connector, connectors.sink_connector):
        assert render(everything, SETTINGS) == render(relational, SETTINGS)


def test_no_secret_stands_in_a_configuration() -> None:
    _, config = connectors.source_connector(read_contracts(EXAMPLE.contracts), SETTINGS)
    assert config["database.user"] == "${secretsmanager:headwater/dev/cdc:username}"
    assert config["database.password"] == "${secretsmanager:headwater/dev/cdc:password}"


def test_the_source_connector_trusts_one_authority_and_the_hosts_name() -> None:
    _, config = connectors.source_connector(read_contracts(EXAMPLE.contracts), SETTINGS)
    assert config["database.sslmode"] == "verify-full"
    assert config["database.sslfactory"] == "org.postgresql.ssl.SingleCertValidatingFactory"
    assert config["driver.sslfactoryarg"] == ROOT


def test_only_addresses_differ_on_a_laptop() -> None:
    contracts = read_contracts(EXAMPLE.contracts)
    local = replace(SETTINGS, aws_endpoint="http://127.0.0.1:1", s3_endpoint="http://127.0.0.1:2")
    for render in (connectors.source_connector, connectors.sink_connector):
        on_aws, here = render(contracts, SETTINGS)[1], render(contracts, local)[1]
        assert {name for name in here if here[name] != on_aws.get(name)} <= {"s3.endpoint"}
    on_aws, here = connectors.worker_properties(SETTINGS), connectors.worker_properties(local)
    assert set(here) - set(on_aws) == {"config.providers.secretsmanager.param.endpoint"}
