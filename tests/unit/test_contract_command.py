"""``headwater contract`` on files alone."""

import json
from pathlib import Path

from typer.testing import CliRunner, Result

from headwater.cli import compose
from headwater.paths import CONTRACTS

PRODUCTS = (CONTRACTS / "products.yaml").read_text()


def run(*arguments: str) -> Result:
    return CliRunner().invoke(compose(["contract"]), ["contract", *arguments], catch_exceptions=False)


def test_valid_contracts_end_with_0() -> None:
    result = run("check")
    assert result.exit_code == 0
    assert "valid contracts: 4, not compared with the sources" in result.stdout
    assert run("check", "dev").exit_code == 0


def test_every_invalid_file_is_named_and_the_status_is_1(tmp_path: Path) -> None:
    (tmp_path / "products.yaml").write_text(PRODUCTS.replace("type: int,", "type: integer,", 1))
    (tmp_path / "others.yaml").write_text(
        PRODUCTS.replace("table: products", "table: others").replace("buckets: 1", "")
    )
    keys = "key: [id, cust_name, email]"
    accounts = (CONTRACTS / "accounts.yaml").read_text().replace("key: [id, cust_name]", keys)
    (tmp_path / "accounts.yaml").write_text(accounts)
    result = run("check", "--contracts", str(tmp_path), "--json")
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
    result = run("check", "--contracts", str(tmp_path))
    assert result.exit_code == 1
    assert "is described by two contracts" in result.stdout
