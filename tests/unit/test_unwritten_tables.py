"""`headwater status` never says that all is well while a table has no commit whose source has rows, or may have."""

from __future__ import annotations

import datetime as dt
import itertools
import json
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from headwater.cli import app
from headwater.commands import environments, status
from headwater.contract.model import History, catalog_names, lake_tables
from headwater.contract.reading import read_contracts
from headwater.definitions.connectors import topic
from headwater.environment.rules import read_environment
from headwater.errors import UserError
from headwater.lake.base.progress import NOTED_AS, Progress
from headwater.lake_folder import EXAMPLE
from headwater.operations.deployed import Deployed
from tests.unit.conftest import BUCKET
from tests.unit.test_operations import ANSWER, SINK, SOURCE, STEP, Answers, refused

MADE = dt.datetime(2026, 11, 27, 1, 48, tzinfo=dt.UTC)
# Each with a history.
CONTRACTS_HERE = [replace(contract, history=History(30)) for contract in read_contracts(EXAMPLE.contracts)]
TABLES = [table.table for table in lake_tables(CONTRACTS_HERE)]
_folders = itertools.count()


class Environment:
    """An environment all of whose parts are well. ``written`` are the tables with a commit, ``filled`` the sources with
    rows; ``scan`` is what DynamoDB says instead of whether it has items."""

    def __init__(
        self,
        s3: Any,
        written: Collection[str],
        filled: Collection[str] = (),
        *,
        scan: Exception | None = None,
        database: Callable[[str], str] | None = None,
        made: dt.datetime | None = MADE,
    ) -> None:
        self.lake = f"s3://{BUCKET}/unwritten-{next(_folders)}"
        self.s3, self.filled, self.database = s3, filled, database
        for table in written:
            noted = json.dumps({"extraMetadata": {NOTED_AS: Progress().to_json()}}).encode()
            s3.put_object(Bucket=BUCKET, Key=f"{self._key}/{table}/.hoodie/20261127010000000.deltacommit", Body=noted)
        outputs = [{"OutputKey": "LakeUri", "OutputValue": self.lake}]
        outputs.append({"OutputKey": "LandingUri", "OutputValue": f"{self.lake}/landing"})
        running = {"State": "RUNNING", "Timeline": {}}
        catalog = [
            {"Name": name, "StorageDescriptor": {"Location": f"{self.lake}/{name}"}}
            | ({"CreateTime": made} if made else {})
            for table in lake_tables(CONTRACTS_HERE)
            for name in catalog_names(table)
        ]
        self.answers = Answers(
            get_caller_identity={"Account": "111111111111", "ResponseMetadata": {"HTTPHeaders": {}}},
            describe_stacks={"Stacks": [{"Outputs": outputs}]},
            describe_alarms={"MetricAlarms": []},
            get_metric_data={"MetricDataResults": []},
            get_parameter={"Parameter": {"Value": "j-1"}},
            describe_cluster={"Cluster": {"Status": {"State": "RUNNING"}}},
            list_steps={"Steps": [STEP | {"Status": running}]},
            get_job_runs={"JobRuns": [{"Id": "r", "JobRunState": "RUNNING", "StartedOn": dt.datetime.now(dt.UTC)}]},
            list_clusters_v2={"ClusterInfoList": [{"ClusterName": "headwater-dev", "State": "ACTIVE"}]},
            list_connectors={
                "connectors": [{"connectorName": name, "connectorState": "RUNNING"} for name in (SOURCE, SINK)]
            },
            describe_table={"Table": {"TableStatus": "ACTIVE", "ItemCount": 0}},
            scan=scan or {"Count": int("headwater-dev-accounts" in filled)},
            describe_kinesis_streaming_destination={
                "KinesisDataStreamDestinations": [
                    {"StreamArn": "arn:x/headwater-dev-accounts", "DestinationStatus": "ACTIVE"}
                ]
            },
            describe_stream_summary={
                "StreamDescriptionSummary": {"RetentionPeriodHours": 24, "StreamStatus": "ACTIVE", "OpenShardCount": 1}
            },
            get_tables={"TableList": catalog},
        )

    @property
    def _key(self) -> str:
        return self.lake.removeprefix(f"s3://{BUCKET}/")

    def land(self, table: str) -> None:
        """A record of a table lands."""
        (contract,) = [each for each in CONTRACTS_HERE if each.table == table]
        key = f"{self._key}/landing/{topic(contract)}/0/{0:020}.jsonl.gz"
        self.s3.put_object(Bucket=BUCKET, Key=key, Body=b"", Metadata={"next-offset": "1"})

    def query(self, sql: str) -> str:
        if "pg_replication_slots" in sql:
            return json.dumps(ANSWER)
        if self.database is not None:
            return self.database(sql)
        plain = sql.replace('"', "")
        return "rows" if any(f"FROM {table})" in plain for table in self.filled) else "none"

    def status(self, monkeypatch: pytest.MonkeyPatch, *options: str) -> Result:
        asked = Deployed(
            read_environment("dev", EXAMPLE.config),
            CONTRACTS_HERE,
            lambda name: self.s3 if name == "s3" else self.answers,
        )
        monkeypatch.setattr(environments, "deployed", lambda name, folder: asked)
        monkeypatch.setattr(status, "through_data_api", lambda deployed: self.query)
        arguments = ["status", "--env", "dev", *options]
        return CliRunner(env={"COLUMNS": "250"}).invoke(app, arguments, catch_exceptions=False)

    def told(self, monkeypatch: pytest.MonkeyPatch) -> tuple[int, dict[str, Any]]:
        """The command's status, and what its JSON says of each table."""
        result = self.status(monkeypatch, "--json")
        document = json.loads(result.output)
        assert {part["state"] for part in document["parts"]} == {"well"}, document["parts"]
        return result.exit_code, {"all": document["state"], **{each["name"]: each for each in document["tables"]}}


def without(*tables: str) -> list[str]:
    return [table for table in TABLES if table not in tables]


def test_all_is_well_where_each_table_has_a_commit(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    result = Environment(s3, TABLES).status(monkeypatch)
    assert (result.exit_code, "all is well" in result.output) == (0, True), result.output


@pytest.mark.parametrize(
    ("table", "source"),
    [
        ("orders", "northwind.order_events"),
        ("customers", "northwind.customers"),
        ("customers_changes", "northwind.customers"),
        ("accounts", "headwater-dev-accounts"),
        ("accounts_changes", "headwater-dev-accounts"),
    ],
)
def test_a_table_without_a_commit_is_not_well(
    s3: Any, monkeypatch: pytest.MonkeyPatch, table: str, source: str
) -> None:
    environment = Environment(s3, without(table), [source])
    code, told = environment.told(monkeypatch)
    assert (code, told["all"], told[table]["state"]) == (4, "nothing written yet", "nothing written yet")
    assert "nothing written yet since 2026-11-27 01:48 UTC: its source, " in told[table]["unwritten"]["found"]
    assert told[table]["facts"]["expected_since"] == MADE.timestamp()
    assert told[table]["facts"]["source_is_empty"] is False
    assert [each for each in TABLES if told[each]["state"] != "well"] == [table]
    output = environment.status(monkeypatch).output
    assert "all is well" not in output
    assert "nothing found wrong, nothing written yet into 1 table" in output
    assert f"1. {table}: nothing written yet since" in output


@pytest.mark.parametrize("table", ["orders", "customers_changes", "accounts", "accounts_changes"])
def test_a_table_whose_source_is_empty_is_well(s3: Any, monkeypatch: pytest.MonkeyPatch, table: str) -> None:
    code, told = Environment(s3, without(table), ["northwind.products"]).told(monkeypatch)
    assert (code, told["all"], told[table]["facts"]["source_is_empty"]) == (0, "well", True)


def test_where_nothing_is_written_all_tables_are_named(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = ["northwind.order_events", "northwind.customers", "northwind.products", "headwater-dev-accounts"]
    environment = Environment(s3, (), sources)
    code, told = environment.told(monkeypatch)
    assert (code, {told[table]["state"] for table in TABLES}) == (4, {"nothing written yet"})
    assert f"nothing written yet into {len(TABLES)} tables" in environment.status(monkeypatch).output


def test_what_has_landed_is_no_empty_source(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = Environment(s3, without("orders"))
    environment.land("orders")
    code, told = environment.told(monkeypatch)
    assert (code, "1 landed records wait" in told["orders"]["unwritten"]["found"]) == (4, True)


def hidden(sql: str) -> str:
    return "hidden"


def down(sql: str) -> str:
    raise UserError("PostgreSQL does not answer: no right")


@pytest.mark.parametrize(
    ("table", "denied", "said"),
    [
        ("orders", {"database": hidden}, "row security may hide rows"),
        ("orders", {"database": down}, "could not be read: PostgreSQL does not answer: no right"),
        ("accounts", {"scan": refused("AccessDeniedException")}, "AccessDeniedException"),
    ],
)
def test_a_source_that_cannot_be_asked_is_not_taken_for_empty(
    s3: Any, monkeypatch: pytest.MonkeyPatch, table: str, denied: dict[str, Any], said: str
) -> None:
    code, told = Environment(s3, without(table), **denied).told(monkeypatch)
    assert (code, told[table]["facts"]["source_is_empty"]) == (4, None)
    assert said in told[table]["unwritten"]["found"]


def test_of_a_table_that_the_catalog_dates_not_no_time_is_told(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    code, told = Environment(s3, without("orders"), ["northwind.order_events"], made=None).told(monkeypatch)
    assert (code, told["orders"]["facts"]["expected_since"]) == (4, None)
    assert told["orders"]["unwritten"]["found"].startswith("nothing written yet: its source")


def test_rows_behind_the_first_page_of_a_scan_count(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = Environment(s3, without("accounts"))
    environment.answers._answers["scan"] = {"Count": 0, "LastEvaluatedKey": {"id": {"S": "a"}}}
    assert environment.told(monkeypatch)[0] == 4
