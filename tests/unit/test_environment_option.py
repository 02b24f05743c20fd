"""What operators ask of a deployed environment by --env: the commands take lake, tables and region from it, and refuse
credentials of another account."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import psycopg
import pytest
from typer.testing import CliRunner, Result

from headwater.cli import app
from headwater.commands import forget, resync, sources
from headwater.errors import UserError
from headwater.lake.base.quarantine import BadEntry, Quarantine
from headwater.lake.decoding.debezium_decoder import order
from headwater.lake.requests import protocol as lake_requests
from headwater.lake.requests.protocol import DONE, News, Requests, Status
from headwater.lake.sources import scanned_export
from headwater.lake.sources.scanned_export import write_export
from tests.lake_folders import lake_folder
from tests.unit.conftest import BUCKET, EXISTING, REGION, write_dev

Deploy = Callable[[str, str], None]
HERE = "123456789012"
"""The account that answers; dev is bound to none, and stage to another."""
TABLE = "headwater-dev-accounts"
ITEM = {"id": {"S": "17"}, "custName": {"S": "Ann"}}
ITEM_KEY = ("id=17", "cust_name=Ann")

RESYNC = ("resync", "accounts")
RESYNC_OF_POSTGRESQL = ("resync", "orders")
OF_POSTGRESQL = (RESYNC_OF_POSTGRESQL, ("backfill", "--table", "orders"), ("forget", "customers", "ALFKI"))
BACKFILL = ("backfill", f"s3://{BUCKET}/AWSDynamoDB/01769860800250-2d8752fd", "--table", "accounts")
FILL = ("fill", "orders")
EXPIRE = ("expire", "orders", "--yes")
FORGET = ("forget", "accounts", *ITEM_KEY)
LIST = ("quarantine", "list")
SHOW, REPLAY, DROP = (("quarantine", verb, "orders") for verb in ("show", "replay", "drop"))
VERIFY = ("verify",)
NEEDING_A_LAKE = (VERIFY, RESYNC, BACKFILL, FILL, FORGET, EXPIRE, LIST, SHOW, REPLAY, DROP)
ALL = (*NEEDING_A_LAKE, RESYNC_OF_POSTGRESQL)
OPTIONS = ("--lake", "--endpoint", "--region")
OPTIONS_OF_DYNAMODB = (*OPTIONS, "--dynamodb-table", "--dynamodb-endpoint")
AN_OBJECT = "t-0-1"


def named(command: tuple[str, ...]) -> str:
    return " ".join(command[:2])


def run(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "500"}).invoke(app, list(arguments))


def refusal(*arguments: str) -> str:
    result = run(*arguments)
    assert isinstance(result.exception, UserError), (result.output, result.exception)
    return str(result.exception)


@pytest.fixture
def lake() -> str:
    return f"s3://{BUCKET}/{uuid.uuid4().hex[:8]}/lake"


@pytest.fixture
def bad_records(s3: Any, lake: str) -> Quarantine:
    """Two records of orders that could not be decoded."""
    aside = Quarantine(s3, f"{lake}/_quarantine", "orders")
    aside.store(AN_OBJECT, [BadEntry(reason, {"position": "p", "data": "x"}, 1) for reason in ("price", "key")])
    return aside


@pytest.fixture(scope="module")
def items(s3: Any) -> None:
    """The DynamoDB table of dev, in its region alone."""
    dynamodb = boto3.client("dynamodb", REGION, aws_access_key_id="test", aws_secret_access_key="test")
    keys = ("id", "custName")
    dynamodb.create_table(
        TableName=TABLE,
        KeySchema=[
            {"AttributeName": name, "KeyType": kind} for name, kind in zip(keys, ("HASH", "RANGE"), strict=True)
        ],
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in keys],
        BillingMode="PAY_PER_REQUEST",
    )
    dynamodb.put_item(TableName=TABLE, Item=ITEM)


@pytest.fixture
def dev(lake: str, deploy: Deploy, items: None, monkeypatch: pytest.MonkeyPatch) -> str:
    """The lake of dev, on a machine that is set up for another region."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    deploy("dev", lake)
    return lake


@pytest.fixture
def existing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database of dev is an existing one."""
    write_dev(tmp_path, EXISTING["database"])
    monkeypatch.chdir(lake_folder(tmp_path / "lake", config=tmp_path).root)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The requests to writers, which answer that all is done."""
    found: list[dict[str, Any]] = []
    forgotten = {
        "key": "a hash",
        "rows": 1,
        "files_deleted": 1,
        "quarantine_objects": 0,
        "quarantine_records": 0,
        "quarantine_unreadable": 0,
        "landing": {"objects": 0, "rewritten": 0, "records": 0, "unreadable": 0},
        "versions_deleted": 0,
    }

    def follow(requests: Requests, id_: str, token: str = "") -> Iterator[News]:
        request = requests.get(id_)
        assert request is not None
        found.append({"id": id_, **request.details})
        yield News(Status(request.token, DONE, parts=1, parts_done=1, records=1, told=forgotten), 0)

    monkeypatch.setattr(lake_requests, "follow", follow)
    # Nobody streams here, who would have to begin before the table is read.
    monkeypatch.setattr(scanned_export, "time", SimpleNamespace(sleep=lambda _: None))
    return found


def waiting(s3: Any, lake: str) -> list[str]:
    """The requests in a lake, by table."""
    prefix = f"{lake.removeprefix(f's3://{BUCKET}/')}/_requests/"
    found = s3.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", ())
    return [entry["Key"].removeprefix(prefix).removesuffix(".json") for entry in found]


# --- Which lake is meant ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", NEEDING_A_LAKE, ids=named)
def test_neither_an_environment_nor_a_lake_is_refused(command: tuple[str, ...], s3: Any) -> None:
    assert refusal(*command) == "--env: found neither an environment nor --lake, expected one of them"


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (command, option)
        for command in ALL
        for option in (OPTIONS_OF_DYNAMODB if command[0] in ("resync", "forget") else OPTIONS)
    ],
    ids=lambda value: value if isinstance(value, str) else named(value),
)
def test_an_environment_says_it_itself(
    command: tuple[str, ...], option: str, dev: str, bad_records: Quarantine
) -> None:
    value = {"--lake": dev, "--dynamodb-table": "accounts=other", "--region": REGION}.get(option, "http://127.0.0.1:1")
    told = refusal(*command, "--env", "dev", option, value)
    assert told == f"--env: found {option}, too, expected one of them: the environment already sets {option}"


@pytest.mark.parametrize("command", ALL, ids=named)
def test_credentials_of_another_account_are_refused_and_nothing_is_touched(
    command: tuple[str, ...],
    s3: Any,
    lake: str,
    deploy: Deploy,
    bad_records: Quarantine,
    asked: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An environment of that name is in this account too."""
    deploy("stage", lake)
    monkeypatch.setattr(sources, "connector", lambda *_, **__: pytest.fail("PostgreSQL was asked"))
    told = refusal(*command, "--env", "stage", *(["--yes"] if command == DROP else []))
    assert told == f"credentials: found the account {HERE}, expected 111122223333, the account of stage"
    assert (asked, waiting(s3, lake), len(bad_records.listed())) == ([], [], 1)


def test_an_environment_that_is_not_deployed_or_there_is_told(s3: Any) -> None:
    found = "dev: found nothing in eu-central-1 of this account"
    told = f"{found}, expected a deployed environment: headwater deploy --env dev"
    assert refusal(*FILL, "--env", "dev") == told
    assert "nowhere" in refusal(*FILL, "--env", "nowhere")


def test_contracts_of_a_folder_describe_the_environment(dev: str, s3: Any, asked: list[Any], tmp_path: Path) -> None:
    folder = lake_folder(tmp_path / "lake", tmp_path)
    (tmp_path / "broken.yaml").write_text("table: [")
    for command in ALL:
        assert "broken.yaml" in refusal(*command, "--env", "dev", "--folder", str(folder.root)), command
    assert waiting(s3, dev) == []


# --- What the commands do ---------------------------------------------------------------------------------------------


def test_a_table_of_dynamodb_is_read_again_under_its_name_there(dev: str, s3: Any, asked: list[Any]) -> None:
    done = run(*RESYNC, "--env", "dev")
    assert done.exit_code == 0, (done.output, done.exception)
    assert f"Done: the 1 items of {TABLE} are in the lake" in done.output
    (request,) = asked
    assert request["export"].startswith(f"{dev.removesuffix('/lake')}/exports/_resync/accounts/")
    assert waiting(s3, dev) == [f"accounts/{request['id']}"]


def test_a_table_of_postgresqls_is_asked_for_without_an_environment(
    s3: Any, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []

    def connect(**options: Any) -> Any:
        told.append({name: options[name] for name in ("host", "port", "dbname", "user")})
        return nullcontext()

    monkeypatch.setenv("HEADWATER_DB_PASSWORD", "secret")
    monkeypatch.setattr(psycopg, "connect", connect)
    monkeypatch.setattr(
        resync, "read_by_connector", lambda _, contracts, where: told.append((contracts[0].table, where))
    )
    assert run(*RESYNC_OF_POSTGRESQL, "--host", "tunnel", "--database", "shop").exit_code == 0
    assert told == [
        {"host": "tunnel", "port": 5432, "dbname": "shop", "user": "postgres"},
        ("orders", None),
    ]


def test_without_environment_and_options_the_databases_name_is_asked_for() -> None:
    expected = "--database: found nothing, expected the database's name"
    assert refusal(*RESYNC_OF_POSTGRESQL, "--host", "tunnel") == expected


def test_a_database_that_is_missing_is_not_to_be_made_by_who_reads_it(
    dev: str, existing: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: Any) -> None:
        raise psycopg.OperationalError('FATAL:  database "rental" does not exist')

    monkeypatch.setenv("HEADWATER_DB_PASSWORD", "secret")
    monkeypatch.setattr(psycopg, "connect", refuse)
    for command in OF_POSTGRESQL:
        told = refusal(*command, "--env", "dev")
        assert ("rental.example.com:5433" in told, "db create" in told) == (True, False), told


def test_an_export_is_loaded_and_the_request_taken_back(dev: str, s3: Any, asked: list[Any]) -> None:
    arn = f"arn:aws:dynamodb:{REGION}:{HERE}:table/{TABLE}"
    export = write_export(s3, arn, [[ITEM]], dt.datetime.now(dt.UTC), f"s3://{BUCKET}/exports")
    command = ("backfill", export, "--table", "accounts", "--env", "dev")
    done = run(*command)
    assert done.exit_code == 0, (done.output, done.exception)
    assert "Done: the 1 items are in the lake" in done.output
    assert [request["export"] for request in asked] == [export]
    assert waiting(s3, dev) == [f"accounts/{asked[0]['id']}"]
    assert run(*command, "--withdraw").exit_code == 0
    assert waiting(s3, dev) == []


def test_a_table_is_filled_and_the_request_taken_back(dev: str, s3: Any, asked: list[Any]) -> None:
    done = run(*FILL, "--env", "dev")
    assert (done.exit_code, "Done: 1 rows were filled" in done.output) == (0, True), (done.output, done.exception)
    assert waiting(s3, dev) == [f"orders/{asked[0]['id']}"]
    assert run(*FILL, "--env", "dev", "--withdraw").exit_code == 0
    assert waiting(s3, dev) == []


def test_a_row_is_forgotten_once_the_table_of_the_environment_lacks_it(
    dev: str, s3: Any, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert refusal(*FORGET, "--env", "dev").startswith(f"{TABLE}: found the row, expected none")
    other = ("forget", "accounts", "id=18", "cust_name=Ann", "--env", "dev")
    done = run(*other)
    assert done.exit_code == 0, (done.output, done.exception)
    (request,) = asked
    assert request["key"] == {"id": "18", "cust_name": "Ann"}
    assert waiting(s3, dev) == [f"accounts/{request['id']}"]
    assert run(*other, "--withdraw").exit_code == 0
    assert waiting(s3, dev) == []


def test_a_row_of_postgresqls_is_forgotten_in_the_lake_of_the_environment(
    dev: str, s3: Any, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "connector", lambda *_, **__: None)
    monkeypatch.setattr(forget._Rows, "spelled", lambda _, key: dict(key))
    monkeypatch.setattr(forget._Rows, "absent_until", lambda rows, _: order(rows.epoch, 7, 7, snapshot=False))
    done = run("forget", "customers", "ALFKI", "--env", "dev")
    assert done.exit_code == 0, (done.output, done.exception)
    assert sorted(name.partition("/")[0] for name in waiting(s3, dev)) == ["customers", "customers_changes"]


def test_bad_records_are_listed_shown_replayed_and_dropped(
    dev: str, bad_records: Quarantine, s3: Any, asked: list[Any]
) -> None:
    (stored,) = bad_records.listed()
    assert stored.name in run(*LIST, "--env", "dev").output
    assert stored.name in run(*LIST, "orders", "--env", "dev").output
    shown = run(*SHOW, stored.name, "--env", "dev", "--reason", "price").output
    assert ("reason: price" in shown, "reason: key" in shown) == (True, False)
    replayed = run(*REPLAY, "--env", "dev")
    assert "Done: 1 records are in the lake" in replayed.output, (replayed.output, replayed.exception)
    assert [request["objects"] for request in asked] == [[stored.name]]
    assert waiting(s3, dev) == [f"orders/{asked[0]['id']}"]
    assert "Withdrawn: 1 requests" in run(*REPLAY, "--env", "dev", "--withdraw").output
    assert "Deleted: 1 objects" in run(*DROP, stored.name, "--env", "dev", "--yes").output
    assert bad_records.listed() == []


def test_the_options_stay_for_a_lake_that_no_environment_has(
    s3: Any, lake: str, bad_records: Quarantine, items: None, asked: list[Any]
) -> None:
    assert "reason: price" in run(*SHOW, "--lake", lake).output
    assert run(*FILL, "--lake", lake).exit_code == 0
    options = ("--lake", lake, "--dynamodb-table", f"accounts={TABLE}", "--region", REGION)
    done = run(*RESYNC, *options)
    assert f"Done: the 1 items of {TABLE} are in the lake" in done.output, (done.output, done.exception)
    assert refusal(*FORGET, *options).startswith(f"{TABLE}: found the row, expected none")
    assert sorted(name.partition("/")[0] for name in waiting(s3, lake)) == ["accounts", "orders"]
