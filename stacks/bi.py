"""Bi: QuickSight over Athena, where the environment asks for it."""

from __future__ import annotations

from collections.abc import Sequence

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_quicksight as quicksight
from constructs import Construct

from headwater.contract.model import Contract
from headwater.definitions.dashboard import REVENUE_COLUMNS, charts
from headwater.definitions.named_queries import ORDERS, revenue_sql
from headwater.definitions.published_view import published_view_name
from headwater.environment.model import Bi, Environment
from headwater.errors import UserError
from stacks.base import HeadwaterStack
from stacks.lake import LakeStack

_READ_SOURCE = ("DescribeDataSource", "DescribeDataSourcePermissions", "PassDataSource")
_READ_SET = ("DescribeDataSet", "DescribeDataSetPermissions", "PassDataSet", "DescribeIngestion", "ListIngestions")
# QuickSight is known to take this set alone: an analysis is to be worked with.
_OWN_ANALYSIS = (
    "DeleteAnalysis",
    "DescribeAnalysis",
    "DescribeAnalysisPermissions",
    "QueryAnalysis",
    "RestoreAnalysis",
    "UpdateAnalysis",
    "UpdateAnalysisPermissions",
)
_READ_DASHBOARD = ("DescribeDashboard", "ListDashboardVersions", "QueryDashboard")


class BiStack(HeadwaterStack):
    """A data source, the data of the two charts in a run's report, and an analysis and a dashboard with these charts:
    each customer's share of the revenue, and an item's average revenue against its average quantity."""

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
        self._settings = settings
        # It refers to views and workgroup by name only, which tells CDK of no dependency.
        self.add_stack_dependency(lake)
        source = self._source(lake)
        orders = f'"{lake.database}"."{published_view_name(orders_contract(contracts))}"'
        revenue = self._data_set(source, revenue_sql(orders))
        self._charts(quicksight.CfnAnalysis.CFN_RESOURCE_TYPE_NAME, "Analysis", revenue, _OWN_ANALYSIS)
        self._charts(quicksight.CfnDashboard.CFN_RESOURCE_TYPE_NAME, "Dashboard", revenue, _READ_DASHBOARD)

    def _source(self, lake: LakeStack) -> quicksight.CfnDataSource:
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
            name=f"Headwater {self.environment_settings.name}",
            type="ATHENA",
            data_source_parameters=quicksight.CfnDataSource.DataSourceParametersProperty(
                athena_parameters=quicksight.CfnDataSource.AthenaParametersProperty(
                    work_group=lake.work_group, role_arn=role.role_arn
                )
            ),
            permissions=[
                quicksight.CfnDataSource.ResourcePermissionProperty(
                    principal=self._settings.principal, actions=_in_quicksight(_READ_SOURCE)
                )
            ],
        )
        # QuickSight tries the role when it creates the source.
        source.node.add_dependency(role)
        return source

    def _data_set(self, source: quicksight.CfnDataSource, query: str) -> quicksight.CfnDataSet:
        refresh = self._settings.refresh
        data_set = quicksight.CfnDataSet(
            self,
            "RevenueByCustomer",
            aws_account_id=self.account,
            data_set_id=f"{self.prefix}-revenue-by-customer",
            name="Revenue by customer",
            import_mode="DIRECT_QUERY" if refresh is None else "SPICE",
            # The tables may not be there yet, and a query that fails would fail the stack.
            ingestion_wait_policy=None
            if refresh is None
            else quicksight.CfnDataSet.IngestionWaitPolicyProperty(wait_for_spice_ingestion=False),
            physical_table_map={
                "revenue": quicksight.CfnDataSet.PhysicalTableProperty(
                    custom_sql=quicksight.CfnDataSet.CustomSqlProperty(
                        name="Revenue by customer",
                        data_source_arn=source.attr_arn,
                        sql_query=query,
                        columns=[
                            quicksight.CfnDataSet.InputColumnProperty(name=name, type=type_)
                            for name, type_ in REVENUE_COLUMNS.items()
                        ],
                    )
                )
            },
            permissions=[
                quicksight.CfnDataSet.ResourcePermissionProperty(
                    principal=self._settings.principal, actions=_in_quicksight(_READ_SET)
                )
            ],
        )
        if refresh is not None:
            schedule = quicksight.CfnRefreshSchedule(
                self,
                "Refresh",
                aws_account_id=self.account,
                data_set_id=data_set.data_set_id,
                schedule=quicksight.CfnRefreshSchedule.RefreshScheduleMapProperty(
                    schedule_id=refresh,
                    refresh_type="FULL_REFRESH",
                    schedule_frequency=quicksight.CfnRefreshSchedule.ScheduleFrequencyProperty(
                        interval=refresh.upper(),
                        time_zone="UTC",
                        time_of_the_day="04:00" if refresh == "daily" else None,
                    ),
                ),
            )
            schedule.add_resource_dependency(data_set)
        return data_set

    def _charts(self, type_: str, kind: str, data_set: quicksight.CfnDataSet, actions: Sequence[str]) -> None:
        """An analysis or a dashboard, by the form of QuickSight's API."""
        cdk.CfnResource(
            self,
            kind,
            type=type_,
            properties={
                "AwsAccountId": self.account,
                f"{kind}Id": self.prefix,
                "Name": f"Headwater {self.environment_settings.name}",
                "Definition": charts(data_set.attr_arn),
                "Permissions": [{"Principal": self._settings.principal, "Actions": _in_quicksight(actions)}],
            },
        )


def orders_contract(contracts: Sequence[Contract]) -> Contract:
    """The contract of the orders. Raises UserError where there is none."""
    orders = next((contract for contract in contracts if contract.table == ORDERS), None)
    if orders is None:
        raise UserError(
            "bi: found no contract of a table orders, expected one: add it, or set bi: null in the environment's file"
        )
    return orders


def _in_quicksight(actions: Sequence[str]) -> list[str]:
    return [f"quicksight:{action}" for action in actions]
