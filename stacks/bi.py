"""QuickSight over Athena, if the environment has a section ``bi``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_quicksight as quicksight
from constructs import Construct

from headwater.contract.model import Contract
from headwater.definitions import charts
from headwater.definitions.charts import Charts, Data
from headwater.definitions.lake_content import LakeContent
from headwater.environment.model import Bi, Environment
from headwater.errors import UserError
from stacks.base import HeadwaterStack
from stacks.lake import LakeStack

_READ_SOURCE = ("DescribeDataSource", "DescribeDataSourcePermissions", "PassDataSource")
_READ_SET = ("DescribeDataSet", "DescribeDataSetPermissions", "PassDataSet", "DescribeIngestion", "ListIngestions")
# QuickSight accepts only this complete set of actions for users who may edit an analysis.
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
# Release 0.2.0 gave this query's data set and schedule ids of their own. With other ids CloudFormation would create
# both a second time, under the same names, and the deploy would fail.
_OF_0_2_0 = "revenue-by-customer"


class BiStack(HeadwaterStack):
    """A QuickSight data source, the data sets of the lake folder's charts, and an analysis and a dashboard of them.

    Raises UserError if the lake folder has no charts.
    """

    def __init__(
        self,
        scope: Construct,
        *,
        environment: Environment,
        lake: LakeStack,
        contracts: Sequence[Contract],
        content: LakeContent,
        settings: Bi,
    ) -> None:
        super().__init__(scope, environment=environment, part="bi", description="Headwater: QuickSight")
        self._settings = settings
        # The stack names views and workgroup by plain text, so CDK sees no dependency.
        self.add_stack_dependency(lake)
        source = self._source(lake)
        shown = _charts(content)
        queries = {query.name: query.named(contracts, lake.database).sql for query in content.queries}
        sets = {data.query: self._data_set(source, data, queries[data.query]).attr_arn for data in shown.data}
        definition = charts.definition(shown, sets)
        self._sheet(quicksight.CfnAnalysis.CFN_RESOURCE_TYPE_NAME, "Analysis", definition, _OWN_ANALYSIS)
        self._sheet(quicksight.CfnDashboard.CFN_RESOURCE_TYPE_NAME, "Dashboard", definition, _READ_DASHBOARD)

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
        # QuickSight tests the role when it creates the data source.
        source.node.add_dependency(role)
        return source

    def _data_set(self, source: quicksight.CfnDataSource, data: Data, query: str) -> quicksight.CfnDataSet:
        refresh = self._settings.refresh
        released = data.query == _OF_0_2_0
        # One scope per query: the ids of a query's resources depend only on its name, and differ from all others.
        scope = self if released else Construct(self, f"Query-{data.query}")
        data_set = quicksight.CfnDataSet(
            scope,
            "RevenueByCustomer" if released else "DataSet",
            aws_account_id=self.account,
            data_set_id=f"{self.prefix}-{data.query}",
            name=data.title,
            import_mode="DIRECT_QUERY" if refresh is None else "SPICE",
            # The tables may not exist yet. A query that fails would fail the stack.
            ingestion_wait_policy=None
            if refresh is None
            else quicksight.CfnDataSet.IngestionWaitPolicyProperty(wait_for_spice_ingestion=False),
            physical_table_map={
                data.query: quicksight.CfnDataSet.PhysicalTableProperty(
                    custom_sql=quicksight.CfnDataSet.CustomSqlProperty(
                        name=data.title,
                        data_source_arn=source.attr_arn,
                        sql_query=query,
                        columns=[
                            quicksight.CfnDataSet.InputColumnProperty(name=name, type=type_.upper())
                            for name, type_ in data.columns.items()
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
                scope,
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

    def _sheet(self, type_: str, kind: str, definition: Mapping[str, Any], actions: Sequence[str]) -> None:
        """The definition of an analysis or a dashboard, in the form of QuickSight's API."""
        cdk.CfnResource(
            self,
            kind,
            type=type_,
            properties={
                "AwsAccountId": self.account,
                f"{kind}Id": self.prefix,
                "Name": f"Headwater {self.environment_settings.name}",
                "Definition": definition,
                "Permissions": [{"Principal": self._settings.principal, "Actions": _in_quicksight(actions)}],
            },
        )


def _charts(content: LakeContent) -> Charts:
    if content.charts is None:
        raise UserError(
            f"bi: found no queries/{charts.FILE} in the lake folder, expected the charts: write it, or set bi: null in "
            "the environment's file"
        )
    return content.charts


def _in_quicksight(actions: Sequence[str]) -> list[str]:
    return [f"quicksight:{action}" for action in actions]
