"""Bi: QuickSight over Athena, where the environment asks for it."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import aws_iam as iam
from aws_cdk import aws_quicksight as quicksight
from constructs import Construct

from headwater.contract.model import Contract
from headwater.definitions.named_queries import ORDERS, revenue_sql
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
                        sql_query=revenue_sql(orders_contract(contracts), lake.database),
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


def orders_contract(contracts: Sequence[Contract]) -> Contract:
    """The contract of the orders. Raises UserError where there is none."""
    orders = next((contract for contract in contracts if contract.table == ORDERS), None)
    if orders is None:
        raise UserError(
            "bi: found no contract of a table orders, expected one: add it, or set bi: null in the environment's file"
        )
    return orders
