"""Alarms on late or lost changes, a dashboard, a budget, and the topics that notify people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import aws_cdk as cdk
from aws_cdk import aws_budgets as budgets
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from headwater.contract.model import POSTGRESQL, Contract, lake_tables, of_database
from headwater.definitions.connectors import (
    GONE_TABLE,
    LOST_SLOT,
    UNCONFIRMED_COLUMN,
    UNREAD_TABLE,
    CaptureSettings,
    sink_group,
    sink_name,
    source_name,
    table_topics,
)
from headwater.environment.model import Environment
from headwater.lake.base import metrics
from headwater.lake.base.announcements import FAILING, INCOMPLETE, RECOVERED, UPKEEP_FAILING, event_source
from stacks.base import HeadwaterStack
from stacks.connect import ConnectStack
from stacks.emr import EmrStack
from stacks.emr_writer import EmrWriterStack
from stacks.glue_job import GlueJobStack
from stacks.key_value_sources import KeyValueSources
from stacks.lake import LakeStack
from stacks.relational_source import LogMetrics, RelationalSource
from stacks.stream import StreamStack

_MINUTE = 60
_MIB = 1024 * 1024
_NEVER_SENT = cloudwatch.TreatMissingData.BREACHING
_BELOW = cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD
_NOTHING_WRONG = cloudwatch.TreatMissingData.NOT_BREACHING

_Metric = cloudwatch.Metric | cloudwatch.MathExpression


@dataclass(frozen=True, kw_only=True)
class WatchedRelational:
    """The watched parts of the pipeline from PostgreSQL."""

    capture: CaptureSettings
    source: RelationalSource
    stream: StreamStack
    connect: ConnectStack
    emr: EmrStack
    emr_writer: EmrWriterStack


@dataclass(frozen=True)
class WatchedKeyValue:
    """The watched parts of the pipeline from DynamoDB."""

    sources: KeyValueSources
    glue_job: GlueJobStack


@dataclass(frozen=True)
class _Limit:
    """The condition under which a metric raises an alarm."""

    threshold: float
    of_periods: int = 5
    """How many of the most recent periods count."""
    enough: int | None = None
    """How many of these periods must be beyond the threshold; None for all."""
    comparison: cloudwatch.ComparisonOperator = cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD
    missing: cloudwatch.TreatMissingData = _NOTHING_WRONG


class MonitoringStack(HeadwaterStack):
    """Alarms on the resources of the other stacks, found by name. Thresholds come from the environment's file.

    Alarms about late or lost changes go to the topic ``urgent``; ``notices`` can wait. The text of an alarm names its
    page of ``docs/runbooks/``. ``relational`` and ``key_value`` are None if no contract needs them.
    """

    def __init__(
        self,
        scope: Construct,
        *,
        environment: Environment,
        lake: LakeStack,
        contracts: Sequence[Contract],
        relational: WatchedRelational | None,
        key_value: WatchedKeyValue | None,
    ) -> None:
        super().__init__(
            scope, environment=environment, part="monitoring", description="Headwater: alarms, dashboard, budget"
        )
        # Create the watched resources before their alarms.
        if relational is not None:
            for source in (relational.connect, relational.emr, relational.emr_writer):
                self.add_stack_dependency(source)
        if key_value is not None:
            self.add_stack_dependency(key_value.glue_job)
        self._graphs: list[cloudwatch.IWidget] = []
        # No stored data needs the key.
        key = self.encryption_key("Notifications", cdk.RemovalPolicy.DESTROY)
        self.notices = self._topic(key, "Topic", "")
        self.urgent = self._topic(key, "UrgentTopic", "-urgent")
        cdk.CfnOutput(self, "UrgentTopicArn", value=self.urgent.topic_arn)
        budgets_of_account = self.format_arn(service="budgets", region="", resource="*")
        self.notices.grant_publish(self.service_principal("budgets.amazonaws.com", budgets_of_account))
        self._watch_tables(lake, contracts)
        self._tell_of_tables(lake.database)
        if relational is not None:
            self._watch_relational(relational, of_database(contracts, POSTGRESQL))
        if key_value is not None:
            self._watch_key_value(key_value.sources)
        # The graphs of failures come last.
        if relational is not None:
            self._watch_emr(relational.emr, relational.emr_writer.step_name)
        if key_value is not None:
            self._watch_jobs(key_value.glue_job)
        cloudwatch.Dashboard(
            self,
            "Dashboard",
            dashboard_name=self.prefix,
            widgets=[self._graphs[at : at + 3] for at in range(0, len(self._graphs), 3)],
        )
        self._budget()

    def _topic(self, key: kms.Key, id_: str, ending: str) -> sns.Topic:
        topic = sns.Topic(
            self,
            id_,
            topic_name=f"{self.prefix}{ending}",
            display_name=f"Headwater {self.environment_settings.name}{ending}",
            master_key=key,
            enforce_ssl=True,
        )
        # CDK lets EventBridge use topic and key without a condition on the account. AWS's pages, as read in November
        # 2026, say that EventBridge supports no condition in either policy, and that a target with a role of its own
        # may not deliver to an encrypted topic:
        # https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-use-resource-based.html#eb-sns-permissions
        # https://docs.aws.amazon.com/sns/latest/dg/sns-key-management.html#compatibility-with-aws-services
        alarms = self.format_arn(
            service="cloudwatch",
            resource="alarm",
            resource_name=f"{self.prefix}-*",
            arn_format=cdk.ArnFormat.COLON_RESOURCE_NAME,
        )
        topic.grant_publish(self.service_principal("cloudwatch.amazonaws.com", alarms))
        for email in self.environment_settings.monitoring.emails:
            topic.add_subscription(subscriptions.EmailSubscription(email))
        return topic

    def _watch_tables(self, lake: LakeStack, contracts: Sequence[Contract]) -> None:
        settings = self.environment_settings.monitoring
        tables = [contract.table for contract in lake_tables(contracts)]

        def of(table: str, name: str, statistic: str, seconds: int = _MINUTE) -> cloudwatch.Metric:
            dimensions = {metrics.DATABASE: lake.database, metrics.TABLE: table}
            return _metric(metrics.NAMESPACE, name, dimensions, statistic, seconds)

        def differing(table: str) -> cloudwatch.MathExpression:
            # CloudWatch needs another id for each metric of a graph.
            differences, hindrances = f"differences_{table}", f"hindrances_{table}"
            return cloudwatch.MathExpression(
                expression=f"MAX([{differences}, {hindrances}])",
                using_metrics={
                    differences: of(table, metrics.DIFFERENCES, "Maximum"),
                    hindrances: of(table, metrics.HINDRANCES, "Maximum"),
                },
                period=cdk.Duration.seconds(_MINUTE),
            )

        self._graph(
            "Freshness, seconds from source to lake",
            {f"freshness-{table}": of(table, metrics.FRESHNESS, "Maximum") for table in tables},
            "Changes reach the lake late, so queries see an older state",
            _Limit(settings.freshness_seconds, enough=3),
            runbook="freshness",
        )
        self._graph(
            "Reports of the writers a minute",
            {f"writer-{table}": of(table, metrics.CHANGES, "SampleCount") for table in tables},
            "The table's writer does not run or is stuck, so the table's changes wait",
            _Limit(1, of_periods=10, comparison=_BELOW, missing=_NEVER_SENT),
            runbook="writer",
        )
        self._graph(
            "Quarantined records",
            {f"quarantine-{table}": of(table, metrics.QUARANTINED, "Sum", 5 * _MINUTE) for table in tables},
            "Records could not be decoded and went into quarantine, so their rows keep their former state",
            _Limit(settings.quarantined_records, of_periods=1),
            runbook="quarantine",
            urgent=False,
        )
        self._graph(
            "Values that do not fit",
            {f"unfit-{table}": of(table, metrics.UNFIT, "Sum", 5 * _MINUTE) for table in tables},
            "Values do not fit their columns. The column is null, _rest has the value, and _unfit names the column",
            _Limit(settings.unfit_values, of_periods=1),
            runbook="unfit",
            urgent=False,
        )
        hiding = [contract.table for contract in lake_tables(contracts) if contract.hidden_inside]
        if hiding:
            self._graph(
                "Attributes left out",
                {f"left-out-{table}": of(table, metrics.LEFT_OUT, "Sum", 5 * _MINUTE) for table in hiding},
                "The lake lacks an attribute of items: the contract hides a path inside it, but it is no map",
                _Limit(0, of_periods=1),
                runbook="left-out",
                urgent=False,
            )
        self._graph(
            "Rows that differ from their source, or failed comparisons",
            {f"differs-{contract.table}": differing(contract.table) for contract in contracts},
            "headwater verify --watch has found rows that differ from their source, or has long been unable to compare "
            "them; headwater status says which of the two",
            # Without data the alarm keeps its state: rows still differ after the comparing process has ended.
            _Limit(0, of_periods=1, missing=cloudwatch.TreatMissingData.IGNORE),
            runbook="differs",
        )
        if settings.comparison_minutes is not None:
            self._graph(
                "Reports of running comparisons a minute",
                {f"compared-{each.table}": of(each.table, metrics.COMPARISONS, "SampleCount") for each in contracts},
                "Nobody compares the table with its source: headwater verify --watch does not run or hangs, so "
                "wrong rows would go unnoticed",
                _Limit(1, of_periods=settings.comparison_minutes, comparison=_BELOW, missing=_NEVER_SENT),
                runbook="differs",
                urgent=False,
            )
        for title, name, statistic in (
            ("Changes committed a minute", metrics.CHANGES, "Sum"),
            ("Seconds a commit", metrics.COMMIT_SECONDS, "Maximum"),
        ):
            self._graphs.append(_widget(title, {table: of(table, name, statistic) for table in tables}))

    def _tell_of_tables(self, database: str) -> None:
        """Send a mail when a writer reports that a table fails, works again or lacks rows, or that its upkeep fails.

        The alarm writer-TABLE also rings ten minutes after a failure, but it does not know the reason.
        """
        table = events.EventField.from_path("$.detail.table")
        error, message, next_step = (
            events.EventField.from_path(f"$.detail.{name}") for name in ("error", "message", "next_step")
        )
        name = f"Headwater {self.environment_settings.name}"
        for kind, topic, text, page in (
            (
                FAILING,
                self.urgent,
                f"the table {table} is not written, and its changes wait ({error}). {message} Next: {next_step}",
                "writer",
            ),
            (RECOVERED, self.urgent, f"the table {table} is written again; its waiting changes follow.", "writer"),
            (INCOMPLETE, self.notices, f"the table {table} lacks rows. {message} Next: {next_step}", "unread-table"),
            (
                UPKEEP_FAILING,
                self.notices,
                f"the upkeep of the table {table} fails, and old files stay ({error}). {message} Next: {next_step}",
                "writer",
            ),
        ):
            events.Rule(
                self,
                kind.replace(" ", ""),
                event_pattern=events.EventPattern(source=[event_source(database)], detail_type=[kind]),
                targets=[
                    targets.SnsTopic(
                        topic, message=events.RuleTargetInput.from_text(f"{name}: {text} {self._runbook(page)}")
                    )
                ],
            )

    def _watch_relational(self, watched: WatchedRelational, contracts: Sequence[Contract]) -> None:
        settings, capture = self.environment_settings.monitoring, watched.capture
        if watched.source.log_metrics is not None:
            self._watch_log(watched.source.log_metrics)
        group = {"Cluster Name": watched.stream.cluster.cluster_name, "Consumer Group": sink_group(capture)}
        self._graph(
            "Consumer lag of the sink, records",
            {
                f"consumer-lag-{topic}": _metric("AWS/Kafka", "SumOffsetLag", {**group, "Topic": topic}, "Maximum")
                for topic in table_topics(contracts, capture)
            },
            "The sink does not keep up with the topic. Changes are late, and lost after Kafka's retention",
            _Limit(settings.consumer_lag_records),
            runbook="consumer-lag",
        )
        connectors = {name: {"ConnectorName": name} for name in (source_name(capture), sink_name(capture))}
        self._graph(
            "Connectors: tasks running",
            {
                f"running-{name}": _metric("AWS/KafkaConnect", "RunningTaskCount", dimensions, "Minimum")
                for name, dimensions in connectors.items()
            },
            "The connector has no running task, so no changes pass through it",
            _Limit(1, comparison=_BELOW, missing=_NEVER_SENT),
            runbook="connector",
        )
        self._graph(
            "Connectors: tasks failed",
            {
                f"failed-{name}": _metric("AWS/KafkaConnect", "ErroredTaskCount", dimensions, "Maximum")
                for name, dimensions in connectors.items()
            },
            "A task of the connector has failed, so its changes wait; the worker's log has the reason",
            _Limit(0),
            runbook="connector",
        )
        said_by_connector = [
            ("lost-slot", "LostSlot", LOST_SLOT, True),
            ("unread-table", "UnreadTable", UNREAD_TABLE, False),
            ("gone-table", "GoneTable", GONE_TABLE, True),
        ]
        if any(contract.hides_columns for contract in contracts):
            said_by_connector.append(("unconfirmed-column", "UnconfirmedColumn", UNCONFIRMED_COLUMN, True))
        for alarm, id_, said, is_urgent in said_by_connector:
            found = logs.MetricFilter(
                self,
                id_,
                log_group=watched.connect.source_logs,
                filter_pattern=logs.FilterPattern.literal(f'"{said}"'),
                metric_namespace=metrics.NAMESPACE,
                metric_name=f"{id_}-{self.environment_settings.name}",
                default_value=0,
            )
            self._graph(
                f"Source connector: {said}",
                {alarm: found.metric(statistic="Sum", period=cdk.Duration.minutes(5))},
                f"{said}; the connector's log names it and the reason",
                # The connector logs some of these lines once, others until the cause is gone.
                _Limit(0, of_periods=1, missing=cloudwatch.TreatMissingData.IGNORE),
                runbook=alarm,
                urgent=is_urgent,
            )
        if watched.source.role_rotation is not None:
            self._watch_rotation(watched.source.role_rotation.function_name)

    def _watch_rotation(self, function: str) -> None:
        rotation = {"FunctionName": function}
        self._graph(
            "Rotation of the roles' passwords, errors",
            {"rotation-failed": _metric("AWS/Lambda", "Errors", rotation, "Sum", 5 * _MINUTE)},
            "The rotation of a database role's password has failed, and new logins of the role may fail; the "
            "function's log has the reason",
            _Limit(0, of_periods=1),
            runbook="rotation-failed",
        )

    def _watch_log(self, sent: LogMetrics) -> None:
        """Watch the replication slot and the WAL that the server retains."""
        settings = self.environment_settings.monitoring
        # RDS's documentation has two names for the metric, and nobody has seen which one Aurora sends. If both are
        # missing, the alarm rings, because nothing would watch the slot.
        lag = cloudwatch.MathExpression(
            expression="MAX([oldest, oldestLogical])",
            using_metrics={
                "oldest": _metric("AWS/RDS", "OldestReplicationSlotLag", sent.dimensions, "Maximum"),
                "oldestLogical": _metric("AWS/RDS", "OldestLogicalReplicationSlotLag", sent.dimensions, "Maximum"),
            },
            period=cdk.Duration.seconds(_MINUTE),
        )
        self._graph(
            "Replication slot, bytes not yet read",
            {"slot-lag": lag},
            f"The source connector does not keep up, so {sent.sender} retains WAL for it and its disk fills. Or "
            f"{sent.sender} reports no metrics of the slot",
            _Limit(settings.slot_lag_mib * _MIB, missing=_NEVER_SENT),
            runbook="slot-lag",
        )
        self._graph(
            "WAL, bytes",
            {"wal": _metric("AWS/RDS", "TransactionLogsDiskUsage", sent.dimensions, "Maximum")},
            "WAL grows and fills the disk, because of a slot that nobody reads or a transaction that does not end. Or "
            f"{sent.sender} reports no size of its WAL",
            _Limit(settings.wal_mib * _MIB, missing=_NEVER_SENT),
            runbook="slot-lag",
        )

    def _watch_key_value(self, sources: KeyValueSources) -> None:
        settings = self.environment_settings.monitoring
        self._graph(
            "Kinesis iterator age, milliseconds",
            {
                f"iterator-age-{table}": _metric(
                    "AWS/Kinesis",
                    "GetRecords.IteratorAgeMilliseconds",
                    {"StreamName": stream},
                    "Maximum",
                )
                for table, stream in sources.streams.items()
            },
            "The Glue job does not keep up. Changes are late, and lost once they are older than the stream's retention",
            _Limit(settings.iterator_age_seconds * 1000),
            runbook="iterator-age",
        )
        self._graph(
            "DynamoDB to Kinesis, milliseconds not yet replicated",
            {
                f"replication-age-{table}": _replication("MAX(AgeOfOldestUnreplicatedRecord)", source)
                for table, source in sources.tables.items()
            },
            "DynamoDB does not get its changes into Kinesis, so they reach the lake late",
            _Limit(settings.replication_age_seconds * 1000),
            runbook="replication",
        )
        self._graph(
            "DynamoDB to Kinesis, changes lost",
            {
                f"replication-failed-{table}": _replication("SUM(FailedToReplicateRecordCount)", source)
                for table, source in sources.tables.items()
            },
            "DynamoDB gave up on changes, such as those over 1 MB, so the lake lacks them",
            _Limit(0, of_periods=1),
            runbook="replication",
        )

    # These mails leave out the error's message: EventBridge inserts a field into a text unescaped, and a quotation mark
    # would end the text.

    def _watch_emr(self, emr: EmrStack, step_name: str) -> None:
        self._watch_failure(
            "step",
            events.EventPattern(
                source=["aws.emr"],
                detail_type=["EMR Step Status Change"],
                # A step's name ends with a hash of its command.
                detail={"name": [{"prefix": f"{step_name}-"}], "state": ["FAILED"]},
            ),
            f"the step {_told('stepId')} of the cluster {_told('clusterId')} has failed, so changes wait. "
            "The next step starts within ten minutes.",
        )
        self._watch_failure(
            "cluster",
            events.EventPattern(
                source=["aws.emr"],
                detail_type=["EMR Cluster State Change"],
                detail={"name": [emr.cluster.name], "state": ["TERMINATED_WITH_ERRORS"]},
            ),
            f"the cluster {_told('clusterId')} has ended with errors, so PostgreSQL's changes wait.",
            urgent=True,
        )

    def _watch_jobs(self, glue_job: GlueJobStack) -> None:
        self._watch_failure(
            "job",
            events.EventPattern(
                source=["aws.glue"],
                detail_type=["Glue Job State Change"],
                detail={"jobName": list(glue_job.job_names.values()), "state": ["FAILED", "ERROR"]},
            ),
            f"the run {_told('jobRunId')} of the job {_told('jobName')} has failed, so changes wait. "
            "The next run starts within five minutes.",
        )

    def _watch_failure(self, part: str, pattern: events.EventPattern, said: str, *, urgent: bool = False) -> None:
        """Mail when EventBridge reports that ``part`` has failed, and raise an alarm."""
        text = f"Headwater {self.environment_settings.name}: {said} {self._runbook('ended')}"
        topic = self.urgent if urgent else self.notices
        rule = events.Rule(
            self,
            f"{part.capitalize()}Failed",
            event_pattern=pattern,
            targets=[targets.SnsTopic(topic, message=events.RuleTargetInput.from_text(text))],
        )
        failed = _metric("AWS/Events", "TriggeredRules", {"RuleName": rule.rule_name}, "Sum", 5 * _MINUTE)
        self._graph(
            f"Failures of the {part}",
            {f"{part}-failed": failed},
            f"The {part} has failed, so changes wait",
            _Limit(0, of_periods=1),
            runbook="ended",
            urgent=urgent,
        )

    def _graph(
        self,
        title: str,
        watched: Mapping[str, _Metric],
        description: str,
        limit: _Limit,
        *,
        runbook: str,
        urgent: bool = True,
    ) -> None:
        """Draw a graph of metrics, and add an alarm for each of them.

        ``watched`` holds the metrics by the names of their alarms. Without metrics there is no graph, because
        CloudWatch refuses an empty one.
        """
        if not watched:
            return
        for name, metric in watched.items():
            alarm = cloudwatch.Alarm(
                self,
                f"Alarm-{name}",
                alarm_name=f"{self.prefix}-{name}",
                alarm_description=f"{description}. {self._runbook(runbook)}",
                metric=metric,
                threshold=limit.threshold,
                comparison_operator=limit.comparison,
                evaluation_periods=limit.of_periods,
                datapoints_to_alarm=limit.enough,
                treat_missing_data=limit.missing,
            )
            action = actions.SnsAction(self.urgent if urgent else self.notices)
            alarm.add_alarm_action(action)
            alarm.add_ok_action(action)
        self._graphs.append(_widget(title, watched, limit.threshold))

    def _runbook(self, page: str) -> str:
        address = self.environment_settings.monitoring.runbooks or ""
        return f"Runbook: {address}docs/runbooks/{page}.md"

    def _budget(self) -> None:
        settings = self.environment_settings.monitoring
        subscriber = budgets.CfnBudget.SubscriberProperty(address=self.notices.topic_arn, subscription_type="SNS")
        budgets.CfnBudget(
            self,
            "Budget",
            # The budget covers the whole account: a filter on a tag counts nothing until somebody activates the tag for
            # billing.
            budget=budgets.CfnBudget.BudgetDataProperty(
                budget_name=self.prefix,
                budget_type="COST",
                time_unit="MONTHLY",
                budget_limit=budgets.CfnBudget.SpendProperty(amount=settings.monthly_budget_usd, unit="USD"),
            ),
            notifications_with_subscribers=[
                budgets.CfnBudget.NotificationWithSubscribersProperty(
                    notification=budgets.CfnBudget.NotificationProperty(
                        comparison_operator="GREATER_THAN",
                        notification_type=kind,
                        threshold=percent,
                        threshold_type="PERCENTAGE",
                    ),
                    subscribers=[subscriber],
                )
                for kind, percent in (("ACTUAL", 80), ("FORECASTED", 100))
            ],
        )


def _told(path: str) -> str:
    """A placeholder for a field of an event's detail in the text of a mail."""
    return events.EventField.from_path(f"$.detail.{path}")


def _metric(
    namespace: str, name: str, dimensions: Mapping[str, str], statistic: str, seconds: int = _MINUTE
) -> cloudwatch.Metric:
    return cloudwatch.Metric(
        namespace=namespace,
        metric_name=name,
        dimensions_map=dict(dimensions),
        statistic=statistic,
        period=cdk.Duration.seconds(seconds),
    )


def _replication(value: str, source: str) -> cloudwatch.MathExpression:
    """A metric of DynamoDB's Kinesis destination.

    A query selects the metric, because AWS documents no value for its dimension DelegatedOperation.
    """
    return cloudwatch.MathExpression(
        expression=(
            f"SELECT {value} FROM SCHEMA(\"AWS/DynamoDB\", DelegatedOperation, TableName) WHERE TableName = '{source}'"
        ),
        period=cdk.Duration.seconds(_MINUTE),
    )


def _widget(title: str, watched: Mapping[str, _Metric], threshold: float | None = None) -> cloudwatch.GraphWidget:
    """A graph of a third of the dashboard's width. Its legend has the names."""
    annotations = [cloudwatch.HorizontalAnnotation(value=threshold, label="alarm")] if threshold is not None else []
    return cloudwatch.GraphWidget(
        title=title,
        left=[metric.with_(label=name) for name, metric in watched.items()],
        left_annotations=annotations,
        width=8,
    )
