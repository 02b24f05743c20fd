"""QuickSight, where an environment asks for it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest
import sqlglot

from headwater.contract.model import Contract
from headwater.definitions.named_queries import revenue_sql
from headwater.demo import report
from headwater.errors import UserError
from stacks.bi import orders_contract
from tests.synth.conftest import PRINCIPAL, WITH_BI

if TYPE_CHECKING:
    from tests.synth.conftest import Synthesized


@pytest.fixture(scope="module")
def resources(synthesize: Callable[[str], "Synthesized"]) -> dict[str, dict[str, dict[str, Any]]]:
    """The properties of dev's QuickSight resources by type and logical id."""
    properties: dict[str, dict[str, dict[str, Any]]] = {}
    for name, resource in synthesize(WITH_BI).template("bi")["Resources"].items():
        properties.setdefault(resource["Type"], {})[name] = resource["Properties"]
    return properties


def test_no_environment_has_it_unasked(every: "Synthesized") -> None:
    assert every.environment.bi is None
    assert "bi" not in every.parts()


def test_the_source_queries_the_workgroup_in_a_role_of_its_own(resources: dict[str, Any]) -> None:
    (source,) = resources["AWS::QuickSight::DataSource"].values()
    (role,) = resources["AWS::IAM::Role"]
    assert source["DataSourceParameters"]["AthenaParameters"] == {
        "WorkGroup": "headwater-dev",
        "RoleArn": {"Fn::GetAtt": [role, "Arn"]},
    }


def test_the_principal_may_read_and_change_nothing(resources: dict[str, Any]) -> None:
    for type_ in ("AWS::QuickSight::DataSource", "AWS::QuickSight::DataSet"):
        (resource,) = resources[type_].values()
        (permission,) = resource["Permissions"]
        assert permission["Principal"] == PRINCIPAL
        assert not [action for action in permission["Actions"] if "Update" in action or "Delete" in action]


def test_the_data_set_has_the_columns_of_its_query(resources: dict[str, Any]) -> None:
    (data_set,) = resources["AWS::QuickSight::DataSet"].values()
    query = data_set["PhysicalTableMap"]["revenue"]["CustomSql"]
    select = sqlglot.parse_one(query["SqlQuery"], read="athena", into=sqlglot.exp.Select)
    assert [column["Name"] for column in query["Columns"]] == select.named_selects


def test_the_query_gives_what_the_report_of_a_run_gives(contracts: list[Contract]) -> None:
    orders = pa.table(
        {
            "order_id": [1, 2, 3, 4],
            "customer": [
                {"customer_id": "ALFKI", "company_name": "Alfreds"},
                {"customer_id": "ALFKI", "company_name": "Alfreds"},
                {"customer_id": "BERGS", "company_name": "Berglunds"},
                {"customer_id": None, "company_name": None},
            ],
            "items": [
                [
                    {"quantity": 3, "unit_price": 14.0, "discount": 0.25},
                    {"quantity": 5, "unit_price": 2.5, "discount": 0.0},
                ],
                [],
                [{"quantity": 1, "unit_price": 100.0, "discount": 0.5}],
                [{"quantity": 9, "unit_price": 9.0, "discount": 0.0}],
            ],
        }
    )
    with duckdb.connect() as connection:
        connection.execute("CREATE SCHEMA headwater_dev")
        connection.register("given", orders)
        connection.execute("CREATE TABLE headwater_dev.orders_current AS SELECT * FROM given")
        (sql,) = sqlglot.transpile(
            revenue_sql(orders_contract(contracts), "headwater_dev"), read="athena", write="duckdb"
        )
        rows = sorted(connection.execute(sql).fetchall())
    expected = sorted(
        (
            customer.customer_id,
            customer.company_name,
            customer.orders,
            pytest.approx(customer.revenue),
            pytest.approx(customer.average_item_revenue),
            pytest.approx(customer.average_quantity),
        )
        for customer in report.revenue_by_customer(orders)
    )
    assert rows == expected
    assert [row[0] for row in rows] == ["ALFKI", "BERGS"]


def test_it_needs_the_orders(contracts: list[Contract]) -> None:
    with pytest.raises(UserError, match="found no contract of a table orders"):
        orders_contract([contract for contract in contracts if contract.table != "orders"])
