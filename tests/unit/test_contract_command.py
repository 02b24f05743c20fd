"""``headwater contract`` on files alone."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest
from typer.testing import CliRunner, Result

from headwater.cli import app
from headwater.commands import contract, sources
from headwater.commands.environment_database import EnvironmentDatabase
from headwater.definitions import dynamodb_checks, kinesis_checks, source_checks
from headwater.definitions.kinesis_checks import ExpectedStream
from headwater.definitions.source_checks import Finding
from headwater.errors import UserError
from headwater.lake_folder import EXAMPLE
from tests.lake_folders import lake_folder
from tests.unit.conftest import EXISTING, write_dev

PRODUCTS = (EXAMPLE.contracts / "products.yaml").read_text()


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["contract", *arguments], catch_exceptions=False)


def test_valid_contracts_end_with_0() -> None:
    result = run("check")
    assert result.exit_code == 0
    assert "valid contracts: 4, not compared with the sources" in result.stdout
    assert run("check", "--env", "dev").exit_code == 0


def test_every_invalid_file_is_named_and_the_status_is_1(tmp_path: Path) -> None:
    (tmp_path / "products.yaml").write_text(PRODUCTS.replace("type: int,", "type: integer,", 1))
    (tmp_path / "others.yaml").write_text(
        PRODUCTS.replace("table: products", "table: others").replace("buckets: 1", "")
    )
    keys = "key: [id, cust_name, email]"
    accounts = (EXAMPLE.contracts / "accounts.yaml").read_text().replace("key: [id, cust_name]", keys)
    (tmp_path / "accounts.yaml").write_text(accounts)
    result = run("check", "--folder", str(lake_folder(tmp_path / "lake", tmp_path).root), "--json")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert [problem.partition(":")[0].rpartition("/")[2] for problem in document["invalid"]] == [
        "contract accounts",
        "others.yaml",
        "products.yaml",
    ]
    assert not document["fits"]


def test_a_table_that_two_contracts_describe_is_invalid(tmp_path: Path) -> None:
    (tmp_path / "products.yaml").write_text(PRODUCTS)
    (tmp_path / "others.yaml").write_text(PRODUCTS.replace("table: products", "table: others"))
    result = run("check", "--folder", str(lake_folder(tmp_path / "lake", tmp_path).root))
    assert result.exit_code == 1
    assert "is described by two contracts" in result.stdout


class Asked:
    """Sources that record the queries and fit."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.where_refused = ""
        self.tables: tuple[object, ...] = ()
        self.streams: object = None
        patch.chdir(lake_folder(folder / "lake", config=folder).root)
        patch.setattr(sources, "connector", self._connector)
        patch.setattr(sources, "dynamodb_client", lambda endpoint, region, session: region)
        patch.setattr(sources, "kinesis_client", lambda endpoint, region, session: region)
        self.found: list[Finding] = []
        patch.setattr(source_checks, "findings", lambda *asked: self.found)
        patch.setattr(contract, "unread_slot", lambda query: None)
        patch.setattr(contract, "open_transactions", lambda query: [])
        patch.setattr(dynamodb_checks, "findings", self._tables)
        patch.setattr(kinesis_checks, "findings", self._streams)

    def _connector(
        self, *asked: object, of: EnvironmentDatabase, where_refused: str
    ) -> Callable[[], nullcontext[None]]:
        self.where_refused = where_refused
        return nullcontext

    def _tables(self, contracts: object, *asked: object) -> list[Finding]:
        self.tables = asked
        return []

    def _streams(self, streams: object, client: object) -> list[Finding]:
        self.streams = streams
        return []


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """The sources of dev, which exist."""
    write_dev(tmp_path, *EXISTING.values())
    return Asked(tmp_path, monkeypatch)


def test_the_connectors_role_of_an_existing_database_is_made_first(asked: Asked) -> None:
    assert run("check", "--env", "dev", "--live").exit_code == 0
    assert "run it first, or check as the administrator with --user" in asked.where_refused
    assert run("check", "--env", "dev", "--live", "--user", "postgres").exit_code == 0
    assert asked.where_refused == ""


@pytest.mark.parametrize(
    ("told", "more"),
    [
        ('FATAL:  password authentication failed for user "headwater_cdc"', " Capture first."),
        ('FATAL:  role "headwater_cdc" does not exist', " Capture first."),
        ("Connection refused", ""),
        ('FATAL:  database "rental" does not exist', ""),
    ],
)
def test_a_user_that_the_server_refuses_is_told_why(told: str, more: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**asked: object) -> None:
        raise psycopg.OperationalError(told)

    monkeypatch.setattr(psycopg, "connect", refuse)
    monkeypatch.setenv("HEADWATER_DB_PASSWORD", "wrong")
    with pytest.raises(UserError) as raised:
        sources.connector("", "rental.example.com", 5433, "rental", "headwater_cdc", where_refused="Capture first.")()
    assert str(raised.value) == (
        "Cannot connect to the database rental of PostgreSQL at rental.example.com:5433 as headwater_cdc: "
        f"{told}. Check host, port, database and user, and HEADWATER_DB_PASSWORD.{more}"
    )


def test_what_many_tables_lack_is_said_once(asked: Asked) -> None:
    asked.found = [Finding(name, name, "unprepared", "DEFAULT", "FULL", "run it") for name in ("film", "actor")]
    asked.found += [Finding("film", "film.note", "unfit", "DEFAULT", "FULL", "run it")]
    result = run("check", "--env", "dev", "--live")
    assert "film, actor" in result.stdout
    assert result.stdout.count("FULL") == 2
    assert "problems: 3" in result.stdout


def test_findings_stand_below_what_is_to_be_done(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    asked.found = [
        Finding("", place, "unprepared", f"the gap {number}", "none", "run headwater db create or capture")
        for number, place in enumerate(("headwater", "public.film", "public.actor", "public.staff", "public.rental"))
    ]
    asked.found += [Finding("film", "film.span", "note", "a column of type xid", "another", "nothing")]
    told = run("check", "--env", "dev", "--live").stdout.splitlines()
    assert told[0] == "unprepared: run headwater db create or capture"
    assert told[1] == "  headwater: found the gap 0, expected none"
    assert told[5] == "  public.rental: found the gap 4, expected none"
    assert told[6:8] == ["note: nothing", "  film.span: a column of type xid"]
    assert max(map(len, told)) <= 80


def test_existing_tables_and_streams_are_found_by_their_environment(asked: Asked) -> None:
    assert run("check", "--env", "dev", "--live").exit_code == 0
    assert asked.tables == ({"accounts": "Accounts"}, "eu-central-1", {"accounts": "account-changes"})
    assert asked.streams == {"accounts": ExpectedStream("account-changes", None, 24, 7)}


def test_tables_that_the_deployment_makes_are_found_by_their_environment(asked: Asked, tmp_path: Path) -> None:
    (tmp_path / "dev.yaml").write_text((EXAMPLE.config / "dev.yaml").read_text())
    assert run("check", "--env", "dev", "--live").exit_code == 0
    assert asked.tables == ({"accounts": "headwater-dev-accounts"}, "eu-central-1", None)
    assert asked.streams is None


def test_a_contract_whose_table_the_environment_does_not_name_is_an_error(asked: Asked, tmp_path: Path) -> None:
    path = tmp_path / "dev.yaml"
    path.write_text(path.read_text().replace("contract: accounts", "contract: users"))
    with pytest.raises(UserError, match=r"key_value\.tables: found \['users'\], expected \['accounts'\]"):
        run("check", "--env", "dev", "--live")


def test_a_new_table_gets_a_contract_and_the_others_keep_their_edits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = [["id", "integer", "", ""]]
    rows = [(name, 1, True, None, "d", ["id"], True, columns) for name in ("film", "staff")]
    answers = SimpleNamespace(execute=lambda _: SimpleNamespace(fetchall=lambda: rows))
    monkeypatch.setattr(sources, "connector", lambda *_: lambda: nullcontext(answers))
    infer = ("infer", "--schema", "public", "--folder", str(lake_folder(tmp_path / "lake", tmp_path).root))
    told = run(*infer, "--table", "film")
    assert told.exit_code == 0
    # The whole path of the folder would not fit into a terminal.
    assert " contracts/film.yaml " in told.stdout
    (tmp_path / "film.yaml").write_text("edited")
    with pytest.raises(UserError, match="found a contract, expected none: name the tables that lack one by --table"):
        run(*infer)
    assert run(*infer, "--table", "staff").exit_code == 0
    assert run(*infer, "--table", "staff", "--replace").exit_code == 0
    assert (tmp_path / "film.yaml").read_text() == "edited"
    assert "public.staff" in (tmp_path / "staff.yaml").read_text()
    with pytest.raises(UserError, match="--table: found 'staf', expected one of film, staff, of the schema public"):
        run(*infer, "--table", "staf")
    with pytest.raises(UserError, match="--table: found no --schema, expected it"):
        run("infer", "--from-dynamodb", "Accounts", "--table", "staff")
