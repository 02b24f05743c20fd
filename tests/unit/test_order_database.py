"""The statements that make the order database's content."""

import subprocess
import sys
from dataclasses import replace

from headwater.contract.model import Source
from headwater.contract.reading import read_contracts
from headwater.definitions import source_checks
from headwater.definitions.order_database import SQL_FOLDER, content_statements, publication_statements, split
from headwater.paths import CONTRACTS


def test_a_script_is_split_into_statements() -> None:
    script = """
    -- a comment; with a semicolon
    SELECT ';' AS "a;b";  /* another; */
    DO $$ BEGIN PERFORM 1; END $$;
    CREATE FUNCTION f() AS $body$ SELECT $$;$$; $body$
    """
    assert split(script) == [
        "SELECT ';' AS \"a;b\"",
        "DO $$ BEGIN PERFORM 1; END $$",
        "CREATE FUNCTION f() AS $body$ SELECT $$;$$; $body$",
    ]


def test_comments_alone_are_no_statement() -> None:
    assert split("-- only this") == split("/* and; this */;\n") == split("") == []


def test_a_comment_inside_a_statement_stays() -> None:
    assert split("SELECT 1 -- the first;\n  + 2; -- the end\n") == ["SELECT 1 -- the first;\n  + 2"]


def test_the_projects_scripts_hold_121_statements_and_between_them_only_comments() -> None:
    assert len(content_statements()) == 121
    for script in sorted(SQL_FOLDER.glob("*.sql")):
        rest = script.read_text(encoding="utf-8")
        for statement in split(rest):
            before, whole, rest = rest.partition(statement)
            assert whole == statement
            assert _has_only_comments(before), (script.name, before)
            assert statement.split()[0] in {"ALTER", "COMMENT", "CREATE", "DO", "DROP", "GRANT", "INSERT", "REVOKE"}
        assert _has_only_comments(rest), (script.name, rest)


def _has_only_comments(text: str) -> bool:
    lines = (line.strip() for line in text.removeprefix(";").splitlines())
    return all(line == "" or line.startswith("--") for line in lines)


def test_the_data_api_takes_every_statement_however_many_contracts_there_are() -> None:
    (contract,) = (entry for entry in read_contracts(CONTRACTS) if entry.table == "customers")
    contracts = [
        replace(contract, table=f"customers_{number}", source=Source("postgresql", f"northwind.customers_{number}"))
        for number in range(200)
    ]
    statements = publication_statements(contracts)
    assert max(len(statement.encode()) for statement in statements) <= 65_536
    checks = [statement for statement in statements if "do not fit their contracts" in statement]
    assert len(checks) == 2 * len(source_checks.refusals(contracts, "headwater_cdc")) > 2
    for number in range(200):
        assert sum(f"'customers_{number}'," in statement for statement in checks) == 2


def test_the_cdk_app_gets_the_statements_without_a_database_driver() -> None:
    program = "import sys, headwater.definitions.order_database; sys.exit('psycopg' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
