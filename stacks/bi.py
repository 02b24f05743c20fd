"""Bi: QuickSight over Athena, where the environment asks for it."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import aws_iam as iam
from aws_cdk import aws_quicksight as quicksight
from constructs import Construct

from headwater.contract.model import Contract
from headwater.definitions.published_view import published_view_name
from headwater.deployment.environment import Bi, Environment
from headwater.errors import UserError
from stacks.base import HeadwaterStack
from stacks.lake import LakeStack

_READ_SOURCE = ("DescribeDataSource", "DescribeDataSourcePermissions", "PassDataSource")
_READ_SET = ("DescribeDataSet", "DescribeDataSetPermissions", "PassDataSet", "DescribeIngestion", "ListIngestions")
_COLUMNS = {
    "customer_id": "STRING",
    "company_name": "STRING",
    "orders": "INTEGER",
    "revenue": "DECIMAL",
    "average_item_revenue": "DECIMAL",
    "average_quantity": "DECIMAL",
}


class BiStack(HeadwaterStack):
    """A data source, and the data of the two charts in a run's report: each customer's share of the revenue, and an
    item's average revenue against its average quantity."""

    def __init__(
        self,
        scope: Construct,
        *,
        environment: Environment,
        lake: LakeStack,
        contracts: Sequence[Contract],
        settings: Bi,
    ) -> None:
        super().__init__(scope, environment=environment, part="bi", description="Headwater: QuickSight")
        # It refers to views and workgroup by name only, which tells CDK of no dependency.
        self.add_stack_dependency(lake)
        role = iam.Role(
            self,
            "Role",
            description="QuickSight's queries of Headwater's tables",
            assumed_by=iam.ServicePrincipal("quicksight.amazonaws.com"),
        )
        lake.grant_query(role)
        source = quicksight.CfnDataSource(
            self,
            "Source",
            aws_account_id=self.account,
            data_source_id=self.prefix,
            name=f"Headwater {environment.name}",
            type="ATHENA",
            data_source_parameters=quicksight.CfnDataSource.DataSourceParametersProperty(
                athena_parameters=quicksight.CfnDataSource.AthenaParametersProperty(
                    work_group=lake.work_group, role_arn=role.role_arn
                )
            ),
            permissions=[
                quicksight.CfnDataSource.ResourcePermissionProperty(
                    principal=settings.principal, actions=[f"quicksight:{action}" for action in _READ_SOURCE]
                )
            ],
        )
        # QuickSight tries the role when it creates the source.
        source.node.add_dependency(role)
        quicksight.CfnDataSet(
            self,
            "RevenueByCustomer",
            aws_account_id=self.account,
            data_set_id=f"{self.prefix}-revenue-by-customer",
            name="Revenue by customer",
            import_mode="DIRECT_QUERY",
            physical_table_map={
                "revenue": quicksight.CfnDataSet.PhysicalTableProperty(
                    custom_sql=quicksight.CfnDataSet.CustomSqlProperty(
                        name="Revenue by customer",
                        data_source_arn=source.attr_arn,
                        sql_query=revenue_sql(contracts, lake.database),
                        columns=[
                            quicksight.CfnDataSet.InputColumnProperty(name=name, type=type_)
                            for name, type_ in _COLUMNS.items()
                        ],
                    )
                )
            },
            permissions=[
                quicksight.CfnDataSet.ResourcePermissionProperty(
                    principal=settings.principal, actions=[f"quicksight:{action}" for action in _READ_SET]
                )
            ],
        )


def revenue_sql(contracts: Sequence[Contract], database: str) -> str:
    """Athena's SQL for each customer's revenue, with the columns of ``_COLUMNS``.

    An item's revenue is quantity × unit_price × (1 − discount). Orders without a customer are left out, as in a run's
    report. Raises UserError where no contract describes the orders.
    """
    orders = next((contract for contract in contracts if contract.table == "orders"), None)
    if orders is None:
        raise UserError(
            "bi: found no contract of a table orders, expected one: add it, or set bi: null in the environment's file"
        )
    item = "items[position]"
    revenue = f"{item}.quantity * {item}.unit_price * (1 - {item}.discount)"
    # The filter is for empty lists: sequence(1, 0) counts down.
    positions = "filter(sequence(1, cardinality(items)), position -> position BETWEEN 1 AND cardinality(items))"
    return f"""SELECT
  customer.customer_id AS customer_id,
  max(customer.company_name) AS company_name,
  count(DISTINCT order_id) AS orders,
  CAST(sum({revenue}) AS double) AS revenue,
  avg(CAST({revenue} AS double)) AS average_item_revenue,
  avg(CAST({item}.quantity AS double)) AS average_quantity
FROM "{database}"."{published_view_name(orders)}"
CROSS JOIN UNNEST({positions}) AS item (position)
WHERE customer.customer_id IS NOT NULL
GROUP BY customer.customer_id"""
