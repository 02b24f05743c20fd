"""Faults for a running environment, one at a time, with the signs of each fault and its repair."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import psutil
import psycopg

from headwater.definitions.connectors import SLOT
from tests.checkout import succeeded
from tests.deployment import Deployment

ACCOUNTS = "headwater-local-accounts"
JOB = "headwater-local-key-value"
ROTATED = "headwater/local/cdc"
# Thresholds that a fault exceeds within a minute.
THRESHOLDS = {
    "consumer_lag_records": 100,
    "freshness_seconds": 45,
    "iterator_age_seconds": 30,
    "replication_age_seconds": 20,
    "slot_lag_mib": 16,
    "wal_mib": 64,
}
# Programs stand still for longer than the thresholds on ages. Both times together stay below seven fifths of a minute,
# because an alarm needs five bad values within seven minutes.
STARVED_SECONDS, FED_SECONDS = 52, 8

Do = Callable[[Deployment], None]


@dataclass(frozen=True)
class Fault:
    """A fault to bring about, and the report of it that `headwater status` must give."""

    bring: Do
    """Brings the fault about."""
    part: str
    """The part that status names."""
    page: str
    """The runbook that status names."""
    word: str
    """A word of the problem that status shows."""
    mend: Do
    """Mends the fault."""
    log: tuple[str, str] | None = None
    """A part's log that holds the cause, and a text in it."""
    alarms: Mapping[str, str] = field(default_factory=dict)
    """The alarms that ring for it, each with the page that its text names."""
    meanwhile: Do = lambda deployment: None
    """Called again and again until status and alarms show the fault."""


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
    """Write this many MiB into PostgreSQL's log."""
    with deployment.connect() as owner:
        for _ in range(mib):
            owner.execute("SELECT pg_logical_emit_message(false, 'faults', repeat('x', 1048576))")


def compare(deployment: Deployment, *options: str) -> None:
    """Compare all tables while they are written, once."""
    done = deployment.checkout.run_headwater("verify", "--env", "local", "--watch", "--once", *options)
    assert done.returncode in (0, 1), done.stdout + done.stderr


def lose_a_row(deployment: Deployment) -> None:
    sql(deployment, "INSERT INTO northwind.customers (customer_id, company_name) VALUES ('GONE', 'Gone')")
    deployment.await_equality()
    with deployment.connect() as owner, owner.transaction():
        owner.execute("ALTER PUBLICATION headwater DROP TABLE northwind.customers")
        owner.execute("DELETE FROM northwind.customers WHERE customer_id = 'GONE'")
    sql(deployment, "ALTER PUBLICATION headwater ADD TABLE northwind.customers")
    compare(deployment)


def read_again_what_differs(deployment: Deployment) -> None:
    compare(deployment, "--repair")
    deployment.await_equality()
    # The greatest value of a minute counts.
    time.sleep(60)
    compare(deployment)


def want_a_comparison(deployment: Deployment) -> None:
    """Require a comparison from now on, and run none."""
    deployment.checkout.set_field("monitoring.comparison_minutes", "5")
    deploy(deployment)


def begin_to_compare(deployment: Deployment) -> None:
    """Run the comparison as the runbook says, until the alarm has seen the difference."""
    command = deployment.checkout.headwater("verify", "--env", "local", "--watch")
    comparing = subprocess.Popen(command, cwd=deployment.checkout.folder, env=deployment.checkout.environment())

    def is_seen() -> bool:
        return not [name for name, state in deployment.alarms().items() if "-compared-" in name and state == "ALARM"]

    try:
        deployment.wait_until("the comparison to be seen", is_seen)
    finally:
        comparing.terminate()
        comparing.wait()
        # Otherwise the comparison would be reported as missing.
        compare(deployment)
        deployment.checkout.set_field("monitoring.comparison_minutes", "null")
        deploy(deployment)


def programs(deployment: Deployment, *words: str) -> list[psutil.Process]:
    """The programs with these words in their command line or working directory, and their children."""
    found: list[psutil.Process] = []
    for each in psutil.Process(deployment.pid).children(recursive=True):
        # A program may have ended by now.
        with suppress(psutil.Error):
            told = f"{each.cwd()} {' '.join(each.cmdline())}"
            if all(word in told for word in words):
                found += [each, *each.children(recursive=True)]
    return list(dict.fromkeys(found))


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


# --- Faults and their repairs ---------------------------------------------------------------------------------


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

    deployment.wait_until("the slot to go", dropped, poll=0.05)


def raise_epoch(deployment: Deployment) -> None:
    succeeded(deployment.checkout.run_headwater("epoch", "--env", "local", "postgresql"))
    deploy(deployment)


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


def rename_a_table(deployment: Deployment) -> None:
    """Rename a table. The owner may create no event trigger here, so nothing refuses the rename."""
    sql(deployment, "ALTER TABLE northwind.products RENAME TO wares")


def give_its_name_back(deployment: Deployment) -> None:
    """Rename the table back by the steps of the runbook."""
    sql(deployment, "ALTER TABLE northwind.wares RENAME TO products")
    read_again(deployment)


def refuse_connections(deployment: Deployment) -> None:
    with deployment.connect("postgres") as elsewhere:
        elsewhere.execute("ALTER DATABASE northwind ALLOW_CONNECTIONS false")
        elsewhere.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'northwind'")


def take_connections(deployment: Deployment) -> None:
    with deployment.connect("postgres") as elsewhere:
        elsewhere.execute("ALTER DATABASE northwind ALLOW_CONNECTIONS true")
    # The runbook's step for a connector that does not go on by itself.
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
    """Call the scheduled function, as EventBridge does every few minutes."""
    functions = deployment.client("lambda").list_functions()["Functions"]
    (name,) = [each["FunctionName"] for each in functions if function in each["FunctionName"]]
    deployment.client("lambda").invoke(FunctionName=name, Payload=json.dumps(event).encode())


def make_a_new_cluster(deployment: Deployment) -> None:
    deployment.checkout.set_field("emr.generation", "2")
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

    deployment.wait_until("the change to land", lambda: bool(landed()))
    key = landed()[0]
    found = s3.get_object(Bucket=bucket, Key=key)
    LOST.append((bucket, key, found["Body"].read(), found["Metadata"]))
    s3.delete_object(Bucket=bucket, Key=key)
    # Another change, so that there is an object after the gap.
    sql(deployment, "UPDATE northwind.products SET unit_price = unit_price + 1")
    deployment.wait_until("the next change to land", lambda: bool(landed()))
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
    """Drop the records by the step of the runbook."""
    drop = ("quarantine", "drop", "accounts", "--env", "local", "--yes")
    succeeded(deployment.checkout.run_headwater(*drop, **deployment.variables))


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
    succeeded(deployment.checkout.run_headwater("resync", "products", "--env", "local"))


def keep_much_log(deployment: Deployment) -> None:
    sql(deployment, "SELECT pg_create_logical_replication_slot('forgotten', 'pgoutput')")
    write_log(deployment, 80)


def deny_the_sink(deployment: Deployment) -> None:
    deny(deployment, SINK_ROLE, "s3:PutObject")
    # Records in all partitions, so that both tasks get some.
    sql(deployment, *CHANGES)


def allow_the_sink(deployment: Deployment) -> None:
    allow(deployment, SINK_ROLE)
    restart_connector(deployment, "landing")


def change_an_account(deployment: Deployment) -> None:
    """Change an item as any client does."""
    set_attribute(deployment, "balance", {"N": str(time.time_ns() % 1_000_000)})


def set_attribute(deployment: Deployment, name: str, value: Mapping[str, Any]) -> None:
    deployment.client("dynamodb").update_item(
        TableName=ACCOUNTS,
        Key=deployment.any_key(ACCOUNTS),
        UpdateExpression="SET #name = :value",
        ExpressionAttributeNames={"#name": name},
        ExpressionAttributeValues={":value": value},
    )


def starve(*words: str) -> Do:
    """Let programs run only for some seconds of each minute, and give them work in these."""

    def starve_once(deployment: Deployment) -> None:
        freeze(*words)(deployment)
        change_an_account(deployment)
        time.sleep(STARVED_SECONDS)
        thaw(*words)(deployment)
        time.sleep(FED_SECONDS)

    return starve_once


def delay_replication(deployment: Deployment) -> None:
    """Let DynamoDB write nothing into its stream for a while, and change an item."""
    freeze(*RELAY)(deployment)
    change_an_account(deployment)


def write_what_kinesis_does_not_take(deployment: Deployment) -> None:
    """Change an item of nearly 400 KB: the record with the item before and after is too large for Kinesis."""
    for byte in (b"a", b"b"):
        set_attribute(deployment, "avatar", {"B": byte * 400_000})


def read_accounts_again(deployment: Deployment) -> None:
    """Read the table again by the step of the runbook. Its items have the order of a minute ago among the changes."""
    time.sleep(61)
    succeeded(deployment.checkout.run_headwater("resync", "accounts", "--env", "local", **deployment.variables))
    deployment.await_equality()
    set_attribute(deployment, "avatar", {"B": b"c"})


def deny_the_rotation(deployment: Deployment) -> None:
    deny(deployment, ROTATION_ROLE, "rds-data:BeginTransaction")
    deployment.client("secretsmanager").rotate_secret(SecretId=ROTATED)


def allow_the_rotation(deployment: Deployment) -> None:
    """Allow the rotation by the runbook's steps for a rotation that is not complete."""
    allow(deployment, ROTATION_ROLE)
    secrets = deployment.client("secretsmanager")
    stages = secrets.describe_secret(SecretId=ROTATED)["VersionIdsToStages"]
    (left,) = [version for version, labels in stages.items() if labels == ["AWSPENDING"]]
    former = deployment.login("cdc")["password"]
    secrets.update_secret_version_stage(SecretId=ROTATED, VersionStage="AWSPENDING", RemoveFromVersionId=left)
    secrets.rotate_secret(SecretId=ROTATED)
    deployment.wait_until("the password to be rotated", lambda: deployment.login("cdc")["password"] != former)


def take_the_node_back(deployment: Deployment) -> None:
    deployment.kill("spark.deploy.master.Master", "/emr/")


SINK = ("ConnectDistributed", "headwater-local-landing")
RELAY = ("rig.local.relay", ACCOUNTS)
SINK_ROLE, ROTATION_ROLE = "connect-Sink", "RoleRotation"
STEP_PROGRAM, JOB_PROGRAM = ("SparkSubmit", "--landing"), ("SparkSubmit", "--stream-arn")
# This fault shows only while there are changes to read.
CHANGES_FIRST = {"sink-hangs", "writer-hangs"}
CHANGES = ("UPDATE northwind.customers SET city = city", "UPDATE northwind.orders SET freight = freight + 1")
# Faults whose alarms ring on for a quarter of an hour come first.
FAULTS = {
    "step": Fault(kill_the_step, "EMR step", "ended", "is FAILED", add_the_step, alarms={"step-failed": "ended"}),
    "run": Fault(
        kill_the_run, "Glue job key-value", "ended", "is FAILED", start_the_run, alarms={"job-failed": "ended"}
    ),
    "unfit": Fault(
        write_what_does_not_fit, "accounts", "unfit", "do not fit", write_what_fits, alarms={"unfit-accounts": "unfit"}
    ),
    "nonsense": Fault(
        stream_nonsense,
        "accounts",
        "quarantine",
        "could not be decoded",
        drop_nonsense,
        alarms={"quarantine-accounts": "quarantine"},
    ),
    "slot": Fault(
        drop_slot,
        "source connector",
        "lost-slot",
        "Changes of the source are lost",
        raise_epoch,
        alarms={"lost-slot": "lost-slot"},
    ),
    "rotation": Fault(
        deny_the_rotation,
        "alarm rotation-failed",
        "rotation-failed",
        "was not rotated",
        allow_the_rotation,
        ("rotation", "AccessDenied"),
        {"rotation-failed": "rotation-failed"},
    ),
    "unread": Fault(
        forbid_to_read_a_table,
        "alarm unread-table",
        "unread-table",
        "not read to its end",
        allow_to_read_that_table,
        alarms={"unread-table": "unread-table"},
    ),
    "cluster": Fault(
        take_the_node_back,
        "EMR step",
        "ended",
        "is TERMINATED_WITH_ERRORS",
        make_a_new_cluster,
        alarms={"cluster-failed": "ended"},
    ),
    "password": Fault(
        change_password,
        "source connector",
        "connector",
        "password authentication failed",
        give_password_back,
        ("source", "password authentication failed"),
    ),
    "other-slot": Fault(
        keep_much_log,
        "PostgreSQL",
        "slot-lag",
        "forgotten",
        drop_that_slot,
        alarms={"slot-lag": "slot-lag", "wal": "slot-lag"},
    ),
    "transaction": Fault(
        leave_a_transaction_open, "PostgreSQL", "slot-lag", "although the connector has read it", end_that_transaction
    ),
    "publication": Fault(
        unpublish, "PostgreSQL", "connector", "northwind.products", publish, alarms={"gone-table": "gone-table"}
    ),
    "gone-table": Fault(
        rename_a_table,
        "PostgreSQL",
        "gone-table",
        "northwind.products",
        give_its_name_back,
        alarms={"gone-table": "gone-table"},
    ),
    "connections": Fault(
        refuse_connections, "PostgreSQL", "connector", "not currently accepting connections", take_connections
    ),
    "kafka": Fault(freeze("kafka.Kafka"), "Kafka", "connector", "is HEALING", thaw("kafka.Kafka")),
    "landing": Fault(
        lose_what_landed, "products", "writer", "are missing", restore_what_landed, ("writer", "LandingGap")
    ),
    "writer-hangs": Fault(freeze(*STEP_PROGRAM), "orders", "freshness", "landed and wait", thaw(*STEP_PROGRAM)),
    "destination": Fault(
        disable_the_destination, "DynamoDB accounts", "replication", "is DISABLED", enable_the_destination
    ),
    "large-change": Fault(
        write_what_kinesis_does_not_take,
        "alarm replication-failed-accounts",
        "replication",
        "gave up on changes",
        read_accounts_again,
        alarms={"replication-failed-accounts": "replication"},
    ),
    "replication-hangs": Fault(
        delay_replication,
        "alarm replication-age-accounts",
        "replication",
        "does not get its changes into Kinesis",
        thaw(*RELAY),
        alarms={"replication-age-accounts": "replication"},
    ),
    "view": Fault(delete_a_view, "orders", "catalog", "orders_current", create_that_view),
    "lost-row": Fault(
        lose_a_row,
        "customers",
        "differs",
        "differ from their source: 1 too many",
        read_again_what_differs,
        alarms={"differs-customers": "differs"},
    ),
    "nobody-compares": Fault(
        want_a_comparison,
        "alarm compared-customers",
        "differs",
        "Nobody compares",
        begin_to_compare,
        alarms={"compared-customers": "differs"},
    ),
    "sink-hangs": Fault(freeze(*SINK), "sink", "consumer-lag", "have not landed", thaw(*SINK)),
    "sink-right": Fault(
        deny_the_sink,
        "sink",
        "connector",
        "not authorized",
        allow_the_sink,
        ("sink", "Status Code: 403"),
        {
            "consumer-lag-headwater.northwind.order_events": "consumer-lag",
            "running-headwater-local-landing": "connector",
            "failed-headwater-local-landing": "connector",
        },
    ),
    "right": Fault(deny_the_job, "Glue job key-value", "ended", "is FAILED", allow_the_job, ("job", "AccessDenied")),
    "job-starves": Fault(
        lambda deployment: None,
        "DynamoDB accounts",
        "iterator-age",
        "s behind",
        thaw(*JOB_PROGRAM),
        alarms={"iterator-age-accounts": "iterator-age", "freshness-accounts": "freshness"},
        meanwhile=starve(*JOB_PROGRAM),
    ),
    "job-hangs": Fault(
        freeze(*JOB_PROGRAM),
        "accounts",
        "writer",
        "said nothing of accounts",
        thaw(*JOB_PROGRAM),
        alarms={"writer-accounts": "writer"},
    ),
}
