"""What `headwater status` makes of what the parts answer, and which lines of a log `headwater logs` takes."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from botocore.exceptions import ClientError

from headwater.contract.model import POSTGRESQL, of_database
from headwater.contract.reading import read_contracts
from headwater.definitions.connectors import topic
from headwater.definitions.source_database import published_tables
from headwater.environment.rules import read_environment
from headwater.lake.base.command_lines import CommandLines
from headwater.lake.base.progress import NOTED_AS, Progress
from headwater.lake.base.quarantine import BadEntry, Quarantine
from headwater.lake_folder import EXAMPLE
from headwater.operations import connectors, database, kafka, key_value, tables, writers
from headwater.operations.deployed import Deployed
from headwater.operations.measurements import Measurements, Metric
from headwater.operations.observation import observe, speaks_of_the_part
from headwater.operations.part_logs import Wanted
from headwater.operations.state import UNASKED, WELL, WRONG, Alarm, Part, Problem, State
from headwater.operations.timeline import last_commit
from tests.command_line import understood
from tests.unit.conftest import BUCKET, EXISTING, write_dev

MIB = 1 << 20
RELATIONAL = of_database(read_contracts(EXAMPLE.contracts), POSTGRESQL)
TABLES = published_tables(RELATIONAL)
SLOT = {
    "active": True,
    "wal_status": "reserved",
    "unread_bytes": 100,
    "held_bytes": 200,
    "left_bytes": None,
    "position": "0/1",
}
DEPLOY = "headwater deploy --env dev"
_folders = itertools.count()


ANSWER = {
    "slot": SLOT,
    "other_slot": None,
    "published": TABLES,
    "present": TABLES,
    "misidentified": None,
    "sessions": 1,
    "heartbeat_seconds": 5.0,
}


def judged(slot: dict[str, Any] | None = None, **facts: Any) -> Part:
    return database.judge(
        {**ANSWER, "slot": {**SLOT, **(slot or {})}, **facts}, RELATIONAL, 10 * MIB, CommandLines("dev")
    )


def told(part: Part) -> list[tuple[str, str]]:
    return [(problem.runbook, problem.found) for problem in part.problems]


def test_a_database_that_is_read_is_well_and_says_how_far() -> None:
    part = judged({"unread_bytes": MIB, "held_bytes": 2 * MIB, "left_bytes": 100 * MIB})
    assert (part.state, part.says) == (
        WELL,
        "slot is read at 0/1, 1.0 MiB behind; log kept 2.0 MiB, 100.0 MiB left",
    )


@pytest.mark.parametrize(
    ("slot", "facts", "page", "found"),
    [
        ({"active": False}, {"sessions": 0}, "connector", "nobody reads"),
        (
            {"wal_status": "lost", "active": False, "unread_bytes": None, "held_bytes": None},
            {},
            "lost-slot",
            "changes are lost",
        ),
        ({}, {"heartbeat_seconds": None}, "connector", "capture.heartbeat has no row"),
        ({"unread_bytes": 11 * MIB, "held_bytes": 12 * MIB}, {}, "slot-lag", "yet to read"),
        ({"held_bytes": 11 * MIB}, {}, "slot-lag", "the connector has read it"),
        ({"left_bytes": 9 * MIB}, {}, "slot-lag", "after 9.0 MiB more"),
        ({"wal_status": "unreserved", "left_bytes": -5}, {}, "slot-lag", "after 0.0 MiB more"),
        ({}, {"heartbeat_seconds": 61.0}, "connector", "last heartbeat was 61 s ago"),
        ({}, {"published": [*TABLES[:-2], "capture.signal"]}, "connector", "lacks capture.heartbeat"),
        ({}, {"published": None}, "connector", "lacks capture.heartbeat, capture.signal, northwind.customers"),
        ({}, {"other_slot": {"name": "theirs", "held_bytes": 11 * MIB}}, "slot-lag", "the slot theirs"),
        ({}, {"present": TABLES[1:], "published": TABLES[1:]}, "gone-table", f"dropped or renamed: {TABLES[0]}"),
        (
            {},
            {"present": TABLES[1:], "published": [*TABLES[1:], "northwind.other"]},
            "gone-table",
            f"dropped or renamed: {TABLES[0]}; no contract names northwind.other, which the publication has",
        ),
        ({}, {"misidentified": ["northwind.a", "northwind.b"]}, "quarantine", "their contract, so that changes may"),
    ],
)
def test_what_is_wrong_with_the_database_has_its_page(
    slot: dict[str, Any], facts: dict[str, Any], page: str, found: str
) -> None:
    ((named, text),) = told(judged(slot, **facts))
    assert named == page
    assert found in text


def test_an_existing_database_is_captured_again_where_a_table_is_not_published(tmp_path: Path) -> None:
    write_dev(tmp_path, EXISTING["database"])
    asked = Deployed(read_environment("dev", tmp_path), RELATIONAL, lambda _: None)
    (problem,) = database.observe(asked, lambda _: json.dumps({**ANSWER, "published": TABLES[1:]})).problems
    command, rest = problem.next.split(", with the secret's password in HEADWATER_CDC_PASSWORD; ")
    at = "--host rental.example.com --port 5433 --database rental"
    assert command == f"headwater db capture {at} --user OWNER"
    assert rest.startswith("then headwater deploy --env dev")
    assert asked.commands.resync("orders") == "headwater resync orders --env dev"
    assert asked.commands.backfill("orders") == "headwater backfill --table orders --env dev"
    assert asked.commands.verify("--repair") == "headwater verify --env dev --repair"


def test_a_slot_that_is_not_there_is_lost() -> None:
    assert [
        page for page, _ in told(database.judge({**ANSWER, "slot": None}, RELATIONAL, 10 * MIB, CommandLines("dev")))
    ] == ["lost-slot"]


def test_a_slot_is_not_read_while_the_first_snapshot_is() -> None:
    part = judged({"active": False}, sessions=2, heartbeat_seconds=4000.0)
    assert part.state == WELL
    assert "while all rows are" in part.says


def test_the_newest_value_of_a_metric_counts_for_five_minutes() -> None:
    metric = Metric.of("AWS/Kafka", "SumOffsetLag", "Maximum", Cluster_Name="c")
    assert metric.dimensions == (("Cluster Name", "c"),)
    values = Measurements(1000.0, {metric: {640.0: 7.0, 880.0: 3.0, 700.0: 9.0}})
    assert values.last(metric) == 3.0
    assert Measurements(1181.0, values.values).last(metric) is None
    assert (values.most(metric, 300), values.most(metric, 130), values.most(metric, 60)) == (9.0, 3.0, None)
    assert (values.total(metric, 400), values.last_at(metric)) == (19.0, 880.0)
    other = Metric.of("AWS/Kafka", "Another", "Maximum")
    assert (values.last(other), values.last_at(other), values.total(other, 99)) == (None, None, 0)


def commit(s3: Any, name: str, body: bytes) -> None:
    s3.put_object(Bucket=BUCKET, Key=name, Body=body)


def test_the_last_commit_is_the_newest_that_tells_its_progress(s3: Any) -> None:
    folder = f"operations-{next(_folders)}/orders"
    assert last_commit(s3, f"s3://{BUCKET}/{folder}") is None

    def noted(offset: int) -> bytes:
        return json.dumps({"extraMetadata": {NOTED_AS: Progress({"t/0": offset}).to_json()}}).encode()

    timeline = f"{folder}/.hoodie"
    commit(s3, f"{timeline}/20261127010000000.deltacommit", noted(1))
    commit(s3, f"{timeline}/20261127020000000.deltacommit", noted(2))
    # A compaction, its plan, a write under way, an empty file, and what is below a folder of its own.
    commit(s3, f"{timeline}/20261127030000000.commit", b'{"extraMetadata": {"schema": "x"}}')
    commit(s3, f"{timeline}/20261127040000000.deltacommit", b"")
    commit(s3, f"{timeline}/20261127050000000.deltacommit.inflight", noted(5))
    commit(s3, f"{timeline}/metadata/20261127060000000.deltacommit", noted(6))
    found = last_commit(s3, f"s3://{BUCKET}/{folder}")
    assert found is not None
    assert (found.instant, found.progress.cursor) == ("20261127020000000", {"t/0": 2})
    assert abs((dt.datetime.now(dt.UTC) - found.completed).total_seconds()) < 60


@pytest.mark.parametrize(
    ("wanted", "line", "taken"),
    [
        (Wanted(0), "anything", True),
        (Wanted(0, errors=True), "2026 INFO all is well", False),
        (Wanted(0, errors=True), "2026 ERROR it is not", True),
        (Wanted(0, errors=True), "Caused by: java.io.IOException: no", True),
        (Wanted(0, errors=True), "2026 WARN it passes (java.io.IOException: no)", False),
        (Wanted(0, errors=True), "	at java.lang.Error.raise(Error.java:1)", False),
        (Wanted(0, errors=True), "ValueError: not this", True),
        (Wanted(0, errors=True), '{"event": "failed", "table": "orders"}', True),
        (Wanted(0, errors=True), '{"event": "idle", "table": "orders"}', False),
        (Wanted(0, table="orders"), '{"event": "idle", "table": "orders"}', True),
        (Wanted(0, table="orders"), '{"event": "idle", "table": "products"}', False),
        (Wanted(0, table="orders"), "orders", False),
        (Wanted(0, table="orders"), "{orders", False),
        (Wanted(0, text="lag"), "the lag grows", True),
        (Wanted(0, text="lag"), "it grows", False),
    ],
)
def test_a_log_gives_the_lines_that_are_wanted(wanted: Wanted, line: str, taken: bool) -> None:
    assert wanted.takes(line) == taken


class Answers:
    """Clients of AWS's services. Each operation returns the answer that the test gives it, or raises it. Page by page,
    an answer is one page."""

    def __init__(self, **answers: Any) -> None:
        self._answers = answers

    def __call__(self, service: str) -> Answers:
        return self

    def get_paginator(self, operation: str) -> Any:
        return SimpleNamespace(paginate=lambda **asked: [getattr(self, operation)(**asked)])

    def __getattr__(self, operation: str) -> Any:
        def answer(**asked: Any) -> Any:
            told = self._answers[operation]
            if isinstance(told, Exception):
                raise told
            return told

        return answer


def deployed(**answers: Any) -> Deployed:
    environment = read_environment("dev", EXAMPLE.config)
    identity = {"Account": "111111111111", "ResponseMetadata": {"HTTPHeaders": {}}}
    return Deployed(environment, read_contracts(EXAMPLE.contracts), Answers(get_caller_identity=identity, **answers))


def refused(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "no"}}, "Ask")


SOURCE, SINK = "headwater-dev-postgres", "headwater-dev-landing"
STEP = {"Id": "s-1", "Name": "headwater-dev-writer-1", "Status": {"State": "RUNNING", "Timeline": {}}}
NOW = 1_800_000_000.0
BEGAN = dt.datetime.fromtimestamp(NOW - 3600, dt.UTC)


def connector_parts(state: str, tasks: tuple[float, float] | None, *log: str, unasked: str = "") -> list[Part]:
    listed = [
        {"connectorName": name, "connectorState": is_in, "connectorArn": f"arn:{name}"}
        for name, is_in in ((SOURCE, state), (SINK, "RUNNING"))
    ]
    values = {}
    for name, numbers in ((SOURCE, tasks), (SINK, (1.0, 0.0))):
        for metric, statistic, value in zip(
            ("RunningTaskCount", "ErroredTaskCount"), ("Minimum", "Maximum"), numbers or (), strict=False
        ):
            values[Metric.of("AWS/KafkaConnect", metric, statistic, ConnectorName=name)] = {NOW - 60: value}
    events = [{"timestamp": 1000 * number, "message": line} for number, line in enumerate(log, 1)]
    asked = deployed(list_connectors={"connectors": listed}, filter_log_events={"events": events})
    return connectors.observe(asked, Measurements(NOW, values), Part("PostgreSQL", unasked=unasked))


@pytest.mark.parametrize(
    ("state", "tasks", "log", "found"),
    [
        ("RUNNING", (1.0, 0.0), ("ERROR long ago",), None),
        ("RUNNING", None, (), None),
        ("UPDATING", (0.0, 0.0), (), None),
        ("RUNNING", (0.0, 0.0), (), ("connector", "RUNNING, 0 tasks run")),
        ("RUNNING", (1.0, 1.0), (), ("connector", "RUNNING, 1 tasks run, 1 failed")),
        ("PAUSED", None, (), ("connector", "PAUSED")),
        ("FAILED", (0.0, 1.0), ("[Worker-0a1] 12:00 ERROR it broke",), ("connector", "1 failed: 12:00 ERROR it broke")),
        (
            "FAILED",
            (0.0, 1.0),
            ("[Worker-0a1] Caused by: E.Exception: Changes of the source are lost: gone", "[Worker-0a1] ERROR stops"),
            ("lost-slot", "Changes of the source are lost"),
        ),
    ],
)
def test_a_connector_is_as_its_state_and_its_tasks_say(
    state: str, tasks: tuple[float, float] | None, log: tuple[str, ...], found: tuple[str, str] | None
) -> None:
    source, sink = connector_parts(state, tasks, *log)
    assert sink.state == WELL
    assert [(page, text if found is None else found[1] in text) for page, text in told(source)] == (
        [] if found is None else [(found[0], True)]
    )


def test_a_source_that_cannot_be_asked_is_told_of_by_its_connector() -> None:
    line = "[Worker-0a1] [2026-11-28 18:00:00,000] ERROR A captured table is gone: {}: it was dropped (io.headwater)"
    names = ["northwind.products", "northwind.customers", "northwind.products"]
    source, _ = connector_parts("RUNNING", (1.0, 0.0), *map(line.format, names), unasked="it is your own")
    (problem,) = source.problems
    assert (problem.runbook, problem.found.partition(": ")[2]) == (
        "gone-table",
        "northwind.customers, northwind.products",
    )
    assert "headwater resync customers products --env dev" in problem.next
    assert connector_parts("RUNNING", (1.0, 0.0), line.format("northwind.products"))[0].state == WELL


def test_a_connector_that_is_paused_is_resumed() -> None:
    source, _ = connector_parts("PAUSED", None)
    (problem,) = source.problems
    assert problem.next.endswith(f"aws kafkaconnect resume-connector --connector-arn arn:{SOURCE}")


def test_a_connector_that_has_failed_has_done_so_though_its_log_cannot_be_read() -> None:
    listed = [{"connectorName": name, "connectorState": "FAILED"} for name in (SOURCE, SINK)]
    asked = deployed(list_connectors={"connectors": listed}, filter_log_events=refused("AccessDeniedException"))
    source, sink = connectors.observe(asked, Measurements(NOW, {}), Part("PostgreSQL"))
    assert [part.name for part in (source, sink) if part.state == WRONG] == ["source connector", "sink"]


@pytest.mark.parametrize(
    ("cluster", "steps", "state", "runs"),
    [
        ("RUNNING", [STEP | {"Status": {"State": "RUNNING", "Timeline": {"StartDateTime": BEGAN}}}], WELL, True),
        ("STARTING", [], WELL, False),
        ("WAITING", [STEP | {"Status": {"State": "PENDING", "Timeline": {}}}], WELL, False),
        ("WAITING", [STEP | {"Status": {"State": "FAILED", "Timeline": {"StartDateTime": BEGAN}}}], WRONG, False),
        ("WAITING", [STEP | {"Name": "another"}], WRONG, False),
        ("TERMINATED_WITH_ERRORS", [], WRONG, False),
    ],
)
def test_a_step_runs_or_not(cluster: str, steps: list[Any], state: str, runs: bool) -> None:
    asked = deployed(
        get_parameter={"Parameter": {"Value": "j-1"}},
        describe_cluster={"Cluster": {"Status": {"State": cluster}}},
        list_steps={"Steps": steps},
    )
    part = writers.observe_step(asked)
    assert (part.state, part.facts.get(writers.RUNS_SINCE) is not None) == (state, runs)


@pytest.mark.parametrize(
    ("destination", "behind", "found"),
    [
        ("ACTIVE", 0.0, None),
        ("ACTIVE", None, None),
        ("ENABLING", None, None),
        ("DISABLED", None, "the destination is DISABLED"),
        ("ACTIVE", 3_600_000.0, "after 23.0 h more the stream drops"),
    ],
)
def test_a_dynamodb_table_is_as_its_stream(destination: str, behind: float | None, found: str | None) -> None:
    name = "headwater-dev-accounts"
    stream = {"RetentionPeriodHours": 24, "StreamStatus": "ACTIVE", "OpenShardCount": 1}
    asked = deployed(
        describe_table={"Table": {"TableStatus": "ACTIVE"}},
        describe_kinesis_streaming_destination={
            "KinesisDataStreamDestinations": [{"StreamArn": f"arn:x/{name}", "DestinationStatus": destination}]
        },
        describe_stream_summary={"StreamDescriptionSummary": stream},
    )
    (metric,) = key_value.metrics(asked)
    measurements = Measurements(NOW, {} if behind is None else {metric: {NOW - 60: behind}})
    (contract,) = asked.key_value
    problems = told(key_value.observe(asked, measurements, contract))
    assert [found in text for _, text in problems if found] == ([] if found is None else [True])


def test_what_to_do_names_commands_that_can_be_run_as_they_are(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Deployed, "now", lambda _: time.time() + 1e5)
    lake = f"s3://{BUCKET}/operations-{next(_folders)}"
    outputs = [{"OutputKey": "LakeUri", "OutputValue": lake}, {"OutputKey": "LandingUri", "OutputValue": f"{lake}/l"}]
    answers = Answers(
        describe_stacks={"Stacks": [{"Outputs": outputs}]},
        get_parameter={"Parameter": {"Value": "j-1"}},
        describe_cluster={"Cluster": {"Status": {"State": "WAITING"}}},
        list_steps={"Steps": [STEP | {"Status": {"State": "FAILED", "Timeline": {}}}]},
        get_job_runs={"JobRuns": [{"Id": "r", "JobRunState": "FAILED", "StartedOn": BEGAN}]},
        list_clusters_v2={"ClusterInfoList": [{"ClusterName": "headwater-dev", "State": "HEALING"}]},
        describe_table={"Table": {"TableStatus": "ACTIVE"}},
        describe_kinesis_streaming_destination={"KinesisDataStreamDestinations": []},
        describe_stream_summary={
            "StreamDescriptionSummary": {"RetentionPeriodHours": 24, "StreamStatus": "ACTIVE", "OpenShardCount": 1}
        },
    )
    contracts = read_contracts(EXAMPLE.contracts)
    asked = Deployed(
        read_environment("dev", EXAMPLE.config), contracts, lambda service: s3 if service == "s3" else answers
    )
    accounts, orders = (next(each for each in contracts if each.table == name) for name in ("accounts", "orders"))
    Quarantine(s3, f"{lake}/_quarantine", "orders").store("t-0-1", [BadEntry("price", {}, 1)])
    landed = f"{lake.removeprefix(f's3://{BUCKET}/')}/l/{topic(orders)}/0/{0:020}.jsonl.gz"
    s3.put_object(Bucket=BUCKET, Key=landed, Body=b"", Metadata={"next-offset": "2"})
    measurements = Measurements(NOW, {})
    writer = Part("EMR step", facts={writers.RUNS_SINCE: NOW - 3600})
    told_by: list[tuple[Part, list[str]]] = [
        (judged(published=[]), ["headwater resync customers orders products --env dev", DEPLOY]),
        (
            judged(published=[table for table in TABLES if table != "northwind.order_events"]),
            ["headwater resync orders --env dev", DEPLOY],
        ),
        (judged(published=[table for table in TABLES if table != "capture.heartbeat"]), [DEPLOY]),
        (judged(published=TABLES[1:], present=TABLES[1:]), ["headwater resync customers --env dev"]),
        (judged(misidentified=["northwind.a"]), ["headwater contract check --env dev --live"]),
        (judged({"wal_status": "lost"}), ["headwater epoch --env dev postgresql"]),
        (kafka.observe(asked), ["headwater logs brokers --env dev"]),
        (connector_parts("FAILED", (0.0, 1.0))[0], ["headwater logs source --env dev"]),
        (writers.observe_step(asked), ["headwater logs writer --env dev --errors"]),
        (writers.observe_job(asked, asked.job_name(accounts)), ["headwater logs job --env dev --errors"]),
        (
            key_value.observe(asked, measurements, accounts),
            ["headwater resync accounts --env dev", "headwater verify --env dev --watch --once"],
        ),
        (
            tables.observe(asked, measurements, accounts, writer, None),
            ["headwater logs job --env dev --table accounts"],
        ),
        (
            tables.observe(asked, measurements, orders, writer, None),
            ["headwater logs writer --env dev --table orders"] * 2 + ["headwater quarantine show orders --env dev"],
        ),
    ]
    for part, commands in told_by:
        advice = "; ".join(problem.next for problem in part.problems)
        assert advice.count("headwater ") == len(commands), advice
        for command in commands:
            assert advice.count(command) == commands.count(command), (command, advice)
            assert "dev" in understood(*command.split()[1:]).values()


@pytest.mark.parametrize(
    ("code", "of_the_part"),
    [
        ("ResourceNotFoundException", True),
        ("NoSuchBucket", True),
        ("EntityNotFoundException", True),
        ("BadRequestException", True),
        ("DatabaseErrorException", True),
        ("AccessDeniedException", False),
        ("403", False),
        ("LimitExceededException", False),
        ("ThrottlingException", False),
        ("SlowDown", False),
        ("ExpiredTokenException", False),
        ("InvalidSignatureException", False),
    ],
)
def test_an_error_of_who_asks_says_nothing_of_the_part(code: str, of_the_part: bool) -> None:
    assert speaks_of_the_part(code) == of_the_part


def test_a_part_that_cannot_be_asked_leaves_the_others() -> None:
    outputs = [{"OutputKey": name, "OutputValue": f"s3://bucket/{name}"} for name in ("LakeUri", "LandingUri")]
    asked = deployed(describe_stacks={"Stacks": [{"Outputs": outputs}]})
    state = observe(asked, None)
    assert state.verdict == UNASKED
    assert {part.state for part in (*state.parts, *state.tables)} == {UNASKED}
    assert [table.name for table in state.tables] == [table.table for table in asked.tables]
    assert all("KeyError" in part.unasked for part in state.tables)


def test_a_state_is_as_its_worst_part() -> None:
    well, unasked = Part("a", "runs"), Part("b", unasked="denied")
    wrong = Part("c", problems=[Problem("it hangs", "kill it", "writer")], unasked="no metrics")
    alarm = Alarm("slot-lag", 0.0, "late", True, "slot-lag")

    def state(*parts: Part, alarms: tuple[Alarm, ...] = (), unasked: str = "") -> State:
        return State("dev", 1.0, parts, (), alarms, unasked)

    assert state(well).verdict == WELL
    assert state(well, unasked).verdict == UNASKED
    assert state(well, unasked="denied").verdict == UNASKED
    assert state(well, unasked, wrong).verdict == WRONG
    assert state(well, alarms=(alarm,)).verdict == WRONG
    document = state(well, wrong, alarms=(alarm,)).document()
    assert (document["state"], [part["state"] for part in document["parts"]]) == (WRONG, [WELL, WRONG])
    assert json.loads(json.dumps(document))["parts"][1]["problems"][0]["runbook"] == "writer"


def observed_table(s3: Any, kept: bytes | None) -> Part:
    """The table orders of a lake; ``kept`` is the stored record of its comparison."""
    lake = f"s3://{BUCKET}/operations-{next(_folders)}"
    outputs = [{"OutputKey": name, "OutputValue": f"{lake}/{name}"} for name in ("LakeUri", "LandingUri")]
    others = Answers(describe_stacks={"Stacks": [{"Outputs": outputs}]})
    environment, contracts = read_environment("dev", EXAMPLE.config), read_contracts(EXAMPLE.contracts)
    asked = Deployed(environment, contracts, lambda service: s3 if service == "s3" else others)
    if kept is not None:
        commit(s3, f"{asked.lake.removeprefix(f's3://{BUCKET}/')}/_verify/orders.json", kept)
    (orders,) = [contract for contract in contracts if contract.table == "orders"]
    return tables.observe(asked, Measurements(NOW, {}), orders, Part(writers.STEP), None)


def test_a_table_that_waits_for_its_sources_rows_says_by_which_command_they_come(s3: Any) -> None:
    environment, contracts = read_environment("dev", EXAMPLE.config), read_contracts(EXAMPLE.contracts)
    connect = msgspec.structs.replace(environment.postgresql.connect, snapshot_mode="no_data")
    lake = f"s3://{BUCKET}/operations-{next(_folders)}"
    outputs = [{"OutputKey": name, "OutputValue": f"{lake}/{name}"} for name in ("LakeUri", "LandingUri")]
    others = Answers(describe_stacks={"Stacks": [{"Outputs": outputs}]})
    waiting = {}
    for each in (environment, msgspec.structs.replace(environment, connect=connect)):
        asked = Deployed(each, contracts, lambda service: s3 if service == "s3" else others)
        for table in asked.tables:
            part = tables.observe(asked, Measurements(NOW, {}), table, Part(writers.STEP), None)
            waiting[each.postgresql.connect.snapshot_mode, table.table] = [problem.next for problem in part.problems]
    advice = {name: f"headwater backfill --table {name} --env dev" for name in ("customers", "orders")}
    assert waiting["no_data", "orders"] == [advice["orders"]]
    assert waiting["no_data", "customers_changes"] == waiting["no_data", "customers"] == [advice["customers"]]
    assert waiting["no_data", "accounts"] == waiting["initial", "orders"] == []


def test_a_table_says_which_way_has_lost_attributes(s3: Any) -> None:
    environment, contracts = read_environment("dev", EXAMPLE.config), read_contracts(EXAMPLE.contracts)
    (accounts,) = [replace(each, exclude=(("users", "ssn"),)) for each in contracts if each.table == "accounts"]
    lake = f"s3://{BUCKET}/operations-{next(_folders)}"
    outputs = [{"OutputKey": name, "OutputValue": f"{lake}/{name}"} for name in ("LakeUri", "LandingUri")]
    others = Answers(describe_stacks={"Stacks": [{"Outputs": outputs}]})
    asked = Deployed(environment, [accounts], lambda service: s3 if service == "s3" else others)
    (metric,) = [each for each in tables.metrics(asked) if each.name == "LeftOutAttributes"]
    values = {metric: {NOW - 60: 3.0, NOW - 600: 2.0}}
    part = tables.observe(asked, Measurements(NOW, values), accounts, Part(writers.STEP), None)
    assert told(part) == [("left-out", "3 attributes of the last minutes are not stored: no maps lead to users.ssn")]


def test_a_table_has_no_problem_that_nobody_compares(s3: Any) -> None:
    part = observed_table(s3, None)
    assert (told(part), part.facts["rows_that_differ"], part.facts["comparison_said_at"]) == ([], None, None)


def test_a_table_says_what_its_comparison_knows(s3: Any) -> None:
    known = {"table": "orders", "at": NOW - 5, "round_at": NOW - 60, "missing": 1, "of_a_newer_release": {}}
    part = observed_table(s3, json.dumps(known).encode())
    ((page, text),) = told(part)
    assert (page, "1 missing" in text, part.facts["compared_at"]) == ("differs", True, NOW - 60)
    assert part.facts["rows_that_differ"] == 1


def test_what_cannot_be_read_of_a_comparison_hides_nothing_else_of_its_table(s3: Any) -> None:
    part = observed_table(s3, b"nonsense")
    ((page, text),) = told(part)
    assert (page, "_verify/orders.json: found JSON is malformed" in text) == ("differs", True)
    assert (part.facts["waiting_objects"], part.facts["quarantine_objects"], part.unasked) == (0, 0, "")
