"""The statements that prepare a database for capture."""

import subprocess
import sys
from dataclasses import replace

from headwater.contract.model import Source
from headwater.contract.reading import read_contracts
from headwater.definitions import source_checks
from headwater.definitions.source_database import capture_statements, created_statements, publication_statements
from headwater.lake_folder import EXAMPLE


def test_every_statement_can_run_again_by_itself() -> None:
    known = {"ALTER", "CALL", "CREATE", "DO", "DROP", "GRANT", "INSERT", "REVOKE"}
    assert {statement.split()[0] for statement in created_statements()} <= known
    assert created_statements()[: len(capture_statements())] == capture_statements()


def test_the_data_api_takes_every_statement_however_many_contracts_there_are() -> None:
    (contract,) = (entry for entry in read_contracts(EXAMPLE.contracts) if entry.table == "customers")
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
    program = "import sys, headwater.definitions.source_database; sys.exit('psycopg' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
