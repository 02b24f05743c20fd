"""An operator with a broken part: `headwater status` names it and its runbook, and what that page says mends it."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from headwater.contract.model import DYNAMODB, of_database
from headwater.contract.reading import read_contracts
from headwater.definitions.connectors import SLOT
from headwater.local.processes import wait_until
from headwater.local_aws.daemon import Running
from headwater.order_database.loading import load_folder
from headwater.paths import CONTRACTS
from headwater.samples import dynamodb_tables, orders
from tests.checkout import Checkout, succeeded
from tests.deployment import Deployment

pytestmark = pytest.mark.drill

ACCOUNTS = "headwater-local-accounts"
JOB = "headwater-local-key-value"
# Thresholds that a fault passes in a minute.
THRESHOLDS = {"consumer_lag_records": 100, "freshness_seconds": 60, "slot_lag_mib": 16}
# A writer that says nothing is told of after ten minutes.
FOUND_SECONDS = 780
MENDED_SECONDS = 420

Do = Callable[[Deployment], None]


@dataclass(frozen=True)
class Fault:
    """What breaks, and what status has to say of it: the part, the page, and a word of what was found. ``log`` is a
    part's log that tells the cause, and what stands there; ``alarm`` is one that rings for it within minutes."""

    bring: Do
    part: str
    page: str
    word: str
    mend: Do
    log: tuple[str, str] | None = None
    alarm: str = ""


def state(deployment: Deployment) -> dict[str, Any]:
    """What status says."""
    done = deployment.checkout.run_headwater("status", "local", "--json", **deployment.variables)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    assert (done.returncode == 0) == (said["state"] == "well")
    return said


def alarms(said: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Name, page and text of each alarm that rings."""
    return [(f"alarm {alarm['name']}", alarm["runbook"], alarm["text"]) for alarm in said["alarms"]]


def problems(said: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Part, page and text of each problem."""
    parts = [*said["parts"], *said["tables"]]
    return [(part["name"], each["runbook"], each["found"]) for part in parts for each in part["problems"]]


def sql(deployment: Deployment, *statements: str) -> None:
    with deployment.connect() as owner:
        for statement in statements:
            owner.execute(statement.encode())


def end_sessions_of_capture(deployment: Deployment) -> None:
    sql(deployment, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'headwater_cdc'")


def restart_connector(deployment: Deployment, part: str) -> None:
    connect = deployment.client("kafkaconnect")
    (found,) = connect.list_connectors(connectorNamePrefix=f"headwater-local-{part}")["connectors"]
    connect.restart_connector(connectorArn=found["connectorArn"])


def deploy(deployment: Deployment) -> None:
    succeeded(deployment.checkout.deploy())


def write_log(deployment: Deployment, mib: int) -> None:
    """Write that much into PostgreSQL's log."""
    with deployment.connect() as owner:
        for _ in range(mib):
            owner.execute("SELECT pg_logical_emit_message(false, 'faults', repeat('x', 1048576))")


def programs(deployment: Deployment, *words: str) -> list[psutil.Process]:
    """The programs with these words in their command line or working directory, and their children."""
    listed = psutil.Process(deployment.pid).children(recursive=True)
    told = [each for each in listed if all(f"{each.cwd()} {' '.join(each.cmdline())}".count(word) for word in words)]
    return list(dict.fromkeys(each for top in told for each in (top, *top.children(recursive=True))))


def freeze(*words: str) -> Do:
    def stop(deployment: Deployment) -> None:
        found = programs(deployment, *words)
        assert found
        for program in found:
            program.send_signal(signal.SIGSTOP)

    return stop


def thaw(*words: str) -> Do:
    def go_on(deployment: Deployment) -> None:
        for program in programs(deployment, *words):
            program.send_signal(signal.SIGCONT)

    return go_on


# --- What breaks, and what mends it ---------------------------------------------------------------------------------


def change_password(deployment: Deployment) -> None:
    sql(deployment, "ALTER ROLE headwater_cdc PASSWORD 'changed-by-hand'")
    end_sessions_of_capture(deployment)


def give_password_back(deployment: Deployment) -> None:
    sql(deployment, f"ALTER ROLE headwater_cdc PASSWORD '{deployment.login('cdc')['password']}'")
    restart_connector(deployment, "postgres")


def drop_slot(deployment: Deployment) -> None:
    def dropped() -> bool:
        end_sessions_of_capture(deployment)
        try:
            sql(deployment, f"SELECT pg_drop_replication_slot('{SLOT}')")
        except psycopg.errors.ObjectInUse:
            return False
        return True

    wait_until("the slot to go", dropped, 30, 0.05)


def raise_epoch(deployment: Deployment) -> None:
    succeeded(deployment.checkout.run_headwater("epoch", "local", "postgresql"))
    deploy(deployment)


def leave_a_slot_behind(deployment: Deployment) -> None:
    sql(deployment, "SELECT pg_create_logical_replication_slot('forgotten', 'pgoutput')")
    write_log(deployment, 20)


def drop_that_slot(deployment: Deployment) -> None:
    sql(deployment, "SELECT pg_drop_replication_slot('forgotten')")


def leave_a_transaction_open(deployment: Deployment) -> None:
    OPEN.append(deployment.connect())
    OPEN[-1].execute("BEGIN")
    OPEN[-1].execute("UPDATE northwind.products SET unit_price = unit_price WHERE product_id = 1")
    write_log(deployment, 20)


OPEN: list[psycopg.Connection] = []


def end_that_transaction(deployment: Deployment) -> None:
    sql(
        deployment,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction'",
    )
    OPEN.pop().close()


def unpublish(deployment: Deployment) -> None:
    sql(deployment, "ALTER PUBLICATION headwater DROP TABLE northwind.products")


def publish(deployment: Deployment) -> None:
    sql(deployment, "ALTER PUBLICATION headwater ADD TABLE northwind.products")


def refuse_connections(deployment: Deployment) -> None:
    with deployment.connect("postgres") as elsewhere:
        elsewhere.execute("ALTER DATABASE northwind ALLOW_CONNECTIONS false")
        elsewhere.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'northwind'")


def take_connections(deployment: Deployment) -> None:
    with deployment.connect("postgres") as elsewhere:
        elsewhere.execute("ALTER DATABASE northwind ALLOW_CONNECTIONS true")
    # What the page says where it does not go on by itself.
    restart_connector(deployment, "postgres")


def kill_the_step(deployment: Deployment) -> None:
    deployment.kill("SparkSubmit", "--landing")


def add_the_step(deployment: Deployment) -> None:
    call_schedule(deployment, "emr-writer-StepsRestart", {"detail-type": "Scheduled Event", "detail": {}})


def kill_the_run(deployment: Deployment) -> None:
    deployment.kill("SparkSubmit", "--stream-arn")


def start_the_run(deployment: Deployment) -> None:
    call_schedule(deployment, "glue-job-RunsRestart", {"job": JOB})


def call_schedule(deployment: Deployment, function: str, event: dict[str, Any]) -> None:
    """What EventBridge does every few minutes."""
    functions = deployment.client("lambda").list_functions()["Functions"]
    (name,) = [each["FunctionName"] for each in functions if function in each["FunctionName"]]
    deployment.client("lambda").invoke(FunctionName=name, Payload=json.dumps(event).encode())


def end_the_cluster(deployment: Deployment) -> None:
    cluster = deployment.running()["steps"][0][0]
    deployment.client("emr").terminate_job_flows(JobFlowIds=[cluster])


def make_a_new_cluster(deployment: Deployment) -> None:
    deployment.checkout.change("config/local.yaml", "  generation: 1\nkey_value:", "  generation: 2\nkey_value:")
    deploy(deployment)


def lose_what_landed(deployment: Deployment) -> None:
    """Delete an object that the writer has not read yet."""
    words = ("SparkSubmit", "--landing")
    freeze(*words)(deployment)
    s3, (bucket, prefix) = deployment.client("s3"), deployment.landing()
    folder = f"{prefix}/headwater.northwind.products/"
    before = {each["Key"] for each in s3.list_objects_v2(Bucket=bucket, Prefix=folder)["Contents"]}
    sql(deployment, "UPDATE northwind.products SET unit_price = unit_price + 1")

    def landed() -> list[str]:
        listed = s3.list_objects_v2(Bucket=bucket, Prefix=folder)["Contents"]
        return sorted(each["Key"] for each in listed if each["Key"] not in before)

    wait_until("the change to land", lambda: bool(landed()), 60)
    key = landed()[0]
    found = s3.get_object(Bucket=bucket, Key=key)
    LOST.append((bucket, key, found["Body"].read(), found["Metadata"]))
    s3.delete_object(Bucket=bucket, Key=key)
    # Another change, so that there is something behind the gap.
    sql(deployment, "UPDATE northwind.products SET unit_price = unit_price + 1")
    wait_until("the next change to land", lambda: bool(landed()), 60)
    thaw(*words)(deployment)


LOST: list[tuple[str, str, bytes, dict[str, str]]] = []


def restore_what_landed(deployment: Deployment) -> None:
    bucket, key, body, metadata = LOST.pop()
    deployment.client("s3").put_object(Bucket=bucket, Key=key, Body=body, Metadata=metadata)


def write_what_does_not_fit(deployment: Deployment) -> None:
    table = {"TableName": ACCOUNTS}
    item = deployment.client("dynamodb").scan(**table, Limit=1)["Items"][0]
    CHANGED.append(item)
    deployment.client("dynamodb").put_item(**table, Item={**item, "loyaltyPoints": {"S": "many"}})


CHANGED: list[dict[str, Any]] = []


def write_what_fits(deployment: Deployment) -> None:
    deployment.client("dynamodb").put_item(TableName=ACCOUNTS, Item=CHANGED.pop())


def stream_nonsense(deployment: Deployment) -> None:
    deployment.client("kinesis").put_record(StreamName=ACCOUNTS, Data=b"nonsense", PartitionKey="1")


def drop_nonsense(deployment: Deployment) -> None:
    endpoint = deployment.variables["AWS_ENDPOINT_URL"]
    options = ("--lake", deployment.lake(), "--endpoint", endpoint, "--yes")
    succeeded(deployment.checkout.run_headwater("quarantine", "drop", "accounts", *options, **deployment.variables))


def disable_the_destination(deployment: Deployment) -> None:
    stream = deployment.client("kinesis").describe_stream_summary(StreamName=ACCOUNTS)["StreamDescriptionSummary"]
    deployment.client("dynamodb").disable_kinesis_streaming_destination(
        TableName=ACCOUNTS, StreamArn=stream["StreamARN"]
    )


def enable_the_destination(deployment: Deployment) -> None:
    stream = deployment.client("kinesis").describe_stream_summary(StreamName=ACCOUNTS)["StreamDescriptionSummary"]
    deployment.client("dynamodb").enable_kinesis_streaming_destination(
        TableName=ACCOUNTS,
        StreamArn=stream["StreamARN"],
        EnableKinesisStreamingConfiguration={"ApproximateCreationDateTimePrecision": "MICROSECOND"},
    )


def delete_a_view(deployment: Deployment) -> None:
    deployment.client("glue").delete_table(DatabaseName="headwater_local", Name="orders_current")


def create_that_view(deployment: Deployment) -> None:
    template = deployment.checkout.folder / "cdk.out" / "headwater-local-lake.template.json"
    inputs = [
        resource["Properties"]["TableInput"]
        for resource in json.loads(template.read_text())["Resources"].values()
        if resource["Type"] == "AWS::Glue::Table"
    ]
    (view,) = [each for each in inputs if each["Name"] == "orders_current"]
    deployment.client("glue").create_table(DatabaseName="headwater_local", TableInput=view)


def deny_the_job(deployment: Deployment) -> None:
    deny(deployment, "glue-job-Rolekeyvalue", "kinesis:GetRecords")


def allow_the_job(deployment: Deployment) -> None:
    allow(deployment, "glue-job-Rolekeyvalue")
    start_the_run(deployment)


def deny(deployment: Deployment, role: str, action: str) -> None:
    policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Deny", "Action": action, "Resource": "*"}]}
    deployment.client("iam").put_role_policy(
        RoleName=role_name(deployment, role), PolicyName="fault", PolicyDocument=json.dumps(policy)
    )


def allow(deployment: Deployment, role: str) -> None:
    deployment.client("iam").delete_role_policy(RoleName=role_name(deployment, role), PolicyName="fault")


def role_name(deployment: Deployment, part: str) -> str:
    pages = deployment.client("iam").get_paginator("list_roles").paginate()
    (name,) = [role["RoleName"] for page in pages for role in page["Roles"] if part in role["RoleName"]]
    return str(name)


def forbid_to_read_a_table(deployment: Deployment) -> None:
    sql(deployment, "REVOKE SELECT ON northwind.products FROM headwater_cdc")
    read_again(deployment)


def allow_to_read_that_table(deployment: Deployment) -> None:
    sql(deployment, "GRANT SELECT ON northwind.products TO headwater_cdc")
    read_again(deployment)


def read_again(deployment: Deployment) -> None:
    owner = deployment.login("owner")
    at = ("--host", owner["host"], "--port", str(owner["port"]), "--user", owner["username"])
    done = deployment.checkout.run_headwater(
        "resync", "products", *at, **deployment.variables, HEADWATER_DB_PASSWORD=owner["password"]
    )
    succeeded(done)


SINK = ("ConnectDistributed", "headwater-local-landing")
FAULTS = {
    "password": Fault(
        change_password,
        "source connector",
        "connector",
        "password authentication failed",
        give_password_back,
        ("source", "password authentication failed"),
    ),
    "slot": Fault(
        drop_slot, "source connector", "lost-slot", "Changes of the source are lost", raise_epoch, alarm="lost-slot"
    ),
    "other-slot": Fault(leave_a_slot_behind, "PostgreSQL", "slot-lag", "forgotten", drop_that_slot),
    "transaction": Fault(leave_a_transaction_open, "PostgreSQL", "slot-lag", "is kept from", end_that_transaction),
    "publication": Fault(unpublish, "PostgreSQL", "connector", "northwind.products", publish),
    "connections": Fault(
        refuse_connections, "PostgreSQL", "connector", "not currently accepting connections", take_connections
    ),
    "kafka": Fault(freeze("kafka.Kafka"), "Kafka", "connector", "is HEALING", thaw("kafka.Kafka")),
    "step": Fault(kill_the_step, "EMR step", "ended", "is FAILED", add_the_step, alarm="step-failed"),
    "run": Fault(kill_the_run, "Glue job key-value", "ended", "is FAILED", start_the_run, alarm="job-failed"),
    "landing": Fault(
        lose_what_landed, "products", "writer", "are missing", restore_what_landed, ("writer", "LandingGap")
    ),
    "writer-hangs": Fault(
        freeze("SparkSubmit", "--landing"), "orders", "freshness", "landed and wait", thaw("SparkSubmit", "--landing")
    ),
    "job-hangs": Fault(
        freeze("SparkSubmit", "--stream-arn"),
        "accounts",
        "writer",
        "said nothing of accounts",
        thaw("SparkSubmit", "--stream-arn"),
    ),
    "unfit": Fault(write_what_does_not_fit, "accounts", "unfit", "do not fit", write_what_fits, alarm="unfit-accounts"),
    "nonsense": Fault(
        stream_nonsense, "accounts", "quarantine", "could not be decoded", drop_nonsense, alarm="quarantine-accounts"
    ),
    "destination": Fault(
        disable_the_destination, "DynamoDB accounts", "replication", "is DISABLED", enable_the_destination
    ),
    "view": Fault(delete_a_view, "orders", "catalog", "orders_current", create_that_view),
    "sink-hangs": Fault(freeze(*SINK), "sink", "consumer-lag", "have not landed", thaw(*SINK)),
    "right": Fault(deny_the_job, "Glue job key-value", "ended", "is FAILED", allow_the_job, ("job", "AccessDenied")),
    "unread": Fault(
        forbid_to_read_a_table, "alarm unread-table", "unread-table", "not read to its end", allow_to_read_that_table
    ),
    "cluster": Fault(end_the_cluster, "EMR step", "ended", "is TERMINATED", make_a_new_cluster),
}
# Seen where there is something to do alone.
CHANGES_FIRST = {"sink-hangs", "writer-hangs"}
CHANGES = ("UPDATE northwind.customers SET city = city", "UPDATE northwind.orders SET freight = freight + 1")


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    checkout = Checkout(tmp_path_factory.mktemp("checkout"))
    settings = checkout.folder / "config" / "local.yaml"
    lines = settings.read_text().splitlines(keepends=True)
    for name, value in THRESHOLDS.items():
        (at,) = [number for number, line in enumerate(lines) if line.startswith(f"  {name}:")]
        lines[at] = f"  {name}: {value}\n"
    settings.write_text("".join(lines))
    try:
        succeeded(checkout.deploy())
        deployment = Deployment(checkout)
        fill(deployment, tmp_path_factory.mktemp("data"))
        yield deployment
    finally:
        left = Running.find(checkout.account)
        if left is not None:
            left.stop(checkout.account)


def fill(deployment: Deployment, folder: Path) -> None:
    """Load both sources."""
    orders.generate(1, 1, folder)
    with deployment.connect() as owner:
        load_folder(owner, folder, lambda *_: None)
    for contract in of_database(read_contracts(CONTRACTS), DYNAMODB):
        table = replace(contract, source=replace(contract.source, table=f"headwater-local-{contract.table}"))
        dynamodb_tables.fill(deployment.client("dynamodb"), table, 1, 1)
    deployment.await_equality()


@pytest.mark.parametrize("name", FAULTS)
def test_status_names_the_part_and_its_page_and_that_mends_it(deployment: Deployment, name: str) -> None:
    fault = FAULTS[name]
    wait_until("all to be well", lambda: not problems(state(deployment)), MENDED_SECONDS, 2)
    try:
        fault.bring(deployment)
        if name in CHANGES_FIRST:
            sql(deployment, *CHANGES)
        wait_until(f"status to tell of {fault.word}", lambda: tells_of(deployment, fault), FOUND_SECONDS, 2)
        if fault.log is not None:
            part, text = fault.log
            wait_until(f"the log to tell of {text}", lambda: text in errors_of(deployment, part), FOUND_SECONDS, 2)
        if fault.alarm:
            wait_until(f"{fault.alarm} to ring", lambda: rings(deployment, fault.alarm), FOUND_SECONDS, 5)
    finally:
        fault.mend(deployment)
    wait_until("all to be well again", lambda: not problems(state(deployment)), MENDED_SECONDS, 2)
    # A table that failed rests before it begins anew.
    deployment.await_equality(900)


def tells_of(deployment: Deployment, fault: Fault) -> bool:
    said = state(deployment)
    return any(
        (part, page) == (fault.part, fault.page) and fault.word in text
        for part, page, text in (*problems(said), *alarms(said))
    )


def rings(deployment: Deployment, alarm: str) -> bool:
    return f"alarm {alarm}" in [name for name, _, _ in alarms(state(deployment))]


def errors_of(deployment: Deployment, part: str) -> str:
    """What `headwater logs` has of a part's errors."""
    return succeeded(deployment.checkout.run_headwater("logs", part, "local", "--errors", **deployment.variables))
