"""`headwater deploy` and `headwater destroy` of local, as their user runs them: CDK's command line deploys the shipped
templates to the local AWS. The services there are real programs."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
import pytest
from kafka.admin import ConfigResource, ConfigResourceType

from headwater.contract.model import DYNAMODB, of_database
from headwater.contract.reading import read_contracts
from headwater.definitions.connectors import broker_config, topic_config
from headwater.environment import rds_authority
from headwater.lake.sources.kinesis import KinesisStream
from headwater.lake_folder import EXAMPLE
from headwater.yaml_files import set_value
from rig.local_aws.daemon import Running
from rig.samples import dynamodb_tables, orders
from rig.samples.loading import load_folder
from tests.checkout import Checkout, succeeded
from tests.deployment import Deployment
from tests.listening import listening_programs
from tests.local.strangers import Run, attack

pytestmark = pytest.mark.drill

REMOVED_RIGHT = "kafkaconnect:CreateConnector"
# A change by which a part fails, and what the deploy has to say then.
BROKEN = {
    "bootstrap": (
        (
            "headwater/definitions/sql/6_created_roles.sql",
            "GRANT USAGE ON SCHEMA capture TO headwater_reader",
            "GRANT USAGE ON SCHEMA capture TO headwater_nobody",
        ),
        'role "headwater_nobody" does not exist',
    ),
    "plugin": (
        ("stacks/connect.py", 'content_type="ZIP"', 'content_type="JAR"'),
        "ContentType: found JAR, expected ZIP",
    ),
    "right": (
        ("stacks/connect.py", f'    "{REMOVED_RIGHT}",\n', ""),
        f"is not authorized to perform: {REMOVED_RIGHT}",
    ),
    "secret": (
        ("stacks/database.py", 'self.secret_name("cdc")', 'self.secret_name("reader")'),
        "is not authorized to perform: secretsmanager:GetSecretValue",
    ),
    "order": (
        (
            "stacks/connect.py",
            "source.node.add_dependency(*database.publish(self, contracts, assets))",
            "database.publish(self, contracts, assets)[0].node.add_dependency(source)",
        ),
        "Publication autocreation is disabled",
    ),
    "connector": (
        ("headwater/definitions/connectors.py", '"plugin.name": "pgoutput"', '"plugin.name": "pgoutputs"'),
        "Value must be one of",
    ),
    "zip": (
        ("stacks/connect.py", "path=str(assets.connect_plugin())", "path=str(assets.package())"),
        "Invalid value io.headwater.connect.",
    ),
    "step": (
        ("stacks/emr_writer.py", "--idle-seconds-max", "--idle-hours-max"),
        "unrecognized arguments: --idle-hours-max",
    ),
}
# What an update does not meet: a handler needs the right for a new connector alone, and the publication is there.
OF_A_FIRST_DEPLOY = {"right", "order"}
# What the tests here take from a role: the handler's right, a password that is not its own, and the writers' leases;
# and the lease of a removed table, which the step that is to go still holds.
TAKEN = (REMOVED_RIGHT, "headwater/local/reader", "/_leases/")
# These say what an event was, and before the first one nothing.
OF_EVENTS = {"gone-table", "lost-slot", "unread-table"}
ONLY_WHEN_IT_HAPPENS = {
    "Errors",
    "GoneTable-local",
    "LostSlot-local",
    "TriggeredRules",
    "UnfitValues",
    "UnreadTable-local",
}
FROM_SNS = {
    "Statement": [
        {"Effect": "Allow", "Principal": {"Service": "sns.amazonaws.com"}, "Action": "sqs:SendMessage", "Resource": "*"}
    ]
}
VISITS = """
table: visits
description: One row a visit.
source: {database: dynamodb, table: headwater-visits}
key: [id]
partition_by: []
buckets: 1
columns:
  - {name: id, type: string, source_type: S}
  - {name: page, type: string, source_type: S}
"""
SHIPPERS = """
table: shippers
description: One row a shipper.
source: {database: postgresql, table: northwind.shippers}
key: [shipper_id]
partition_by: []
buckets: 1
columns:
  - {name: shipper_id, type: int, source_type: integer}
  - {name: company_name, type: string, source_type: character varying(40)}
"""
PHONE = "  - {name: phone, type: string, source_type: character varying(24)}\n"


def runs(program: psutil.Process) -> bool:
    """Whether a program has not ended, whoever still has to ask for its status."""
    try:
        return program.is_running() and program.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@contextmanager
def a_checkout(folder: Path) -> Iterator[Checkout]:
    """A checkout that has deployed nothing yet, and of whose local AWS nothing is left at the end."""
    checkout = Checkout(folder)
    try:
        yield checkout
    finally:
        left = Running.find(checkout.account)
        if left is not None:
            left.stop(checkout.account)


@pytest.fixture(scope="module")
def undeployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """A checkout whose deploys all fail."""
    with a_checkout(tmp_path_factory.mktemp("undeployed")) as checkout:
        yield checkout


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """An environment whose sources have rows. When all tests have had it, no role was refused but what a test had taken
    from it, and `make destroy` leaves nothing."""
    with a_checkout(tmp_path_factory.mktemp("checkout")) as checkout:
        succeeded(checkout.deploy())
        deployment = Deployment(checkout)
        fill(deployment, tmp_path_factory.mktemp("data"))
        yield deployment
        assert unexpected_refusals(deployment) == []
        destroy(deployment)


def fill(deployment: Deployment, folder: Path) -> None:
    """Load both sources."""
    orders.generate(0.2, 1996, folder)
    with deployment.connect() as owner:
        load_folder(owner, folder)
    for contract in of_database(read_contracts(EXAMPLE.contracts), DYNAMODB):
        named = replace(contract, source=replace(contract.source, table=f"headwater-local-{contract.table}"))
        dynamodb_tables.fill(deployment.client("dynamodb"), named, 0.2, 1996)
    deployment.await_equality()


def unexpected_refusals(deployment: Deployment) -> list[str]:
    """The refused calls of roles, without the rights that a test had taken from them."""
    refused = deployment.refused()
    for line in deployment.expected:
        refused.remove(line)
    return [line for line in refused if not any(taken in line for taken in TAKEN)]


def destroy(deployment: Deployment) -> None:
    """Destroy the environment, which leaves nothing."""
    programs = [psutil.Process(deployment.pid), *psutil.Process(deployment.pid).children(recursive=True)]
    # What the stacks delete by themselves, before the local AWS goes with whatever is left.
    said = succeeded(deployment.checkout.run_cdk("local", "destroy", "--all", "--force", **deployment.variables))
    assert "FAILED" not in said
    assert deployment.stores("local") == []
    assert "FAILED" not in succeeded(deployment.checkout.run_headwater("destroy", "--env", "local"))
    assert [program for program in programs if runs(program)] == []
    assert not deployment.checkout.account.exists()
    assert Running.find(deployment.checkout.account) is None


def test_a_stream_is_read_on_from_where_a_reader_that_ended_had_come(tmp_path: Path) -> None:
    running = Running.start(tmp_path / "account")
    try:
        kinesis = running.client("kinesis")
        kinesis.create_stream(StreamName="items", ShardCount=1)
        arn = kinesis.describe_stream_summary(StreamName="items")["StreamDescriptionSummary"]["StreamARN"]
        kinesis.put_record(StreamName="items", Data=b"before", PartitionKey="key")
        before, cursor = KinesisStream(kinesis, arn).read({}, 1_000_000)
        kinesis.put_record(StreamName="items", Data=b"after", PartitionKey="key")
        after, _ = KinesisStream(kinesis, arn).read(cursor, 1_000_000)
    finally:
        running.stop(tmp_path / "account")
    assert [[record.data for record in records] for records in (before, after)] == [[b"before"], [b"after"]]


@pytest.mark.parametrize("part", BROKEN)
def test_a_first_deploy_that_fails_says_why_and_is_rolled_back(undeployed: Checkout, part: str) -> None:
    change, word = BROKEN[part]
    said = undeployed.deploy_broken(*change)
    assert word in said, said[-4000:]
    assert "ROLLBACK_FAILED" not in said
    assert "DELETE_FAILED" not in said


def test_both_pipelines_run_and_the_lake_equals_its_sources(deployment: Deployment) -> None:
    running = deployment.running()
    assert running["steps"][0][-1] == "RUNNING"
    assert running["runs"][0][-1] == "RUNNING"
    assert [state for _, state in running["connectors"]] == ["RUNNING", "RUNNING"]
    deployment.await_equality()
    assert [table["name"] for table in deployment.verified()["tables"] if table["source_rows"] == 0] == []


def test_verbs_find_all_that_they_need_by_the_environment(deployment: Deployment, tmp_path: Path) -> None:
    deployment.await_equality()
    headwater = partial(verb_of, deployment)
    assert json.loads(headwater("contract", "check", "--live", "--json"))["fits"]
    (counted,) = json.loads(headwater("sql", "SELECT count(*) AS rows FROM orders_current", "--json"))
    with deployment.connect() as owner:
        assert owner.execute("SELECT count(*) FROM northwind.orders").fetchall() == [(counted["rows"],)]
        owner.execute("INSERT INTO northwind.customers (customer_id, company_name) VALUES ('GONE', 'Gone')")
        deployment.await_equality()
        owner.execute("DELETE FROM northwind.customers WHERE customer_id = 'GONE'")
    deployment.await_equality()
    assert "Forgotten: a row of customers" in headwater("forget", "customers", "GONE")
    assert "the source connector reads now" in headwater("resync", "customers")
    # The way to the server has another name than its certificate.
    port = str(deployment.login("owner")["port"])
    assert "customers" in headwater("verify", "--repair", "--host", "localhost", "--port", port)
    refused = deployment.checkout.run_headwater("verify", "--env", "local", HEADWATER_DB_PASSWORD="another")
    assert "Check host, port, database and user, and HEADWATER_DB_PASSWORD" in refused.stderr
    other = tmp_path / "other.pem"
    other.write_text(rds_authority.root("eu-central-1"))
    refused = deployment.checkout.run_headwater("verify", "--env", "local", PGSSLROOTCERT=str(other))
    assert "certificate verify failed" in refused.stderr


def verb_of(deployment: Deployment, *arguments: str) -> str:
    """The output of a verb that gets the environment, but no variables."""
    done = deployment.checkout.run_headwater(*arguments, "--env", "local")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_everything_listens_on_the_loopback_alone(deployment: Deployment) -> None:
    listening, reachable = listening_programs(deployment.pid)
    assert len(listening) > 10
    assert reachable == []


def test_a_stranger_gets_nothing_of_what_is_deployed(deployment: Deployment) -> None:
    client = deployment.client("secretsmanager")
    names = [
        secret["Name"] for page in client.get_paginator("list_secrets").paginate() for secret in page["SecretList"]
    ]
    kept = {name: json.loads(client.get_secret_value(SecretId=name)["SecretString"]) for name in names}
    secrets = {
        f"{field} of {name}": value
        for name, fields in kept.items()
        for field, value in fields.items()
        if field in ("password", "key")
    }
    secrets["the account's key"] = deployment.variables["AWS_SECRET_ACCESS_KEY"]
    secrets |= {str(path): path.read_text().strip() for path in deployment.checkout.account.glob("msk/*/password")}
    assert len(secrets) > 5
    key_id = deployment.variables["AWS_ACCESS_KEY_ID"]
    stored = [*names, *deployment.stores("local")]
    problems = attack(Run(deployment.pid, [deployment.checkout.account], secrets, key_id=key_id, names=stored))
    assert not problems, "\n".join(problems)


def test_a_deploy_of_the_same_replaces_and_restarts_nothing_and_needs_no_network(deployment: Deployment) -> None:
    before = deployment.running(), deployment.programs()
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nowhere = f"http://127.0.0.1:{closed.getsockname()[1]}"
    offline = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), nowhere)
    local = dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")
    succeeded(deployment.checkout.deploy(**offline, **local))
    assert (deployment.running(), deployment.programs()) == before


def test_what_a_log_group_is_for_gets_the_log(deployment: Deployment) -> None:
    assert "HeadwaterPostgres" in deployment.log("connect/source")


def test_an_alarm_rings_for_what_it_watches_alone_and_tells_the_topic(deployment: Deployment) -> None:
    def all_well() -> bool:
        # Nobody compares the tables all the time here.
        watched = {name: state for name, state in deployment.alarms().items() if not name.startswith("differs-")}
        return {state for name, state in watched.items() if name not in OF_EVENTS} == {"OK"}

    deployment.wait_until("all alarms to be OK", all_well)
    unsent = deployment.watched() - deployment.metrics()
    assert {name for _, name in unsent} <= ONLY_WHEN_IT_HAPPENS
    sqs, sns = deployment.client("sqs"), deployment.client("sns")
    queue = sqs.create_queue(QueueName="operators", Attributes={"Policy": json.dumps(FROM_SNS)})["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    (topic,) = [
        each["TopicArn"] for each in sns.list_topics()["Topics"] if each["TopicArn"].endswith("headwater-local")
    ]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    table = {"TableName": "headwater-local-accounts"}
    dynamodb = deployment.client("dynamodb")
    item = dynamodb.scan(**table, Limit=1)["Items"][0]
    dynamodb.put_item(**table, Item={**item, "loyaltyPoints": {"S": "many"}})
    deployment.wait_until("the alarm", lambda: deployment.alarms()["unfit-accounts"] == "ALARM")
    assert [name for name, state in deployment.alarms().items() if state == "ALARM"] == ["unfit-accounts"]
    (message,) = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10, WaitTimeSeconds=5)["Messages"]
    told = json.loads(json.loads(message["Body"])["Message"])
    assert (told["AlarmName"], told["NewStateValue"]) == ("headwater-local-unfit-accounts", "ALARM")
    dynamodb.put_item(**table, Item=item)
    deployment.await_equality()


def cancel_step(deployment: Deployment) -> None:
    """Cancel the step that runs, and wait until the rule has added the next one, which runs."""
    cluster, step, _ = deployment.running()["steps"][0]
    deployment.client("emr").cancel_steps(ClusterId=cluster, StepIds=[step])

    def next_runs() -> bool:
        (_, newest, state), (_, former, former_state), *_ = deployment.running()["steps"]
        return (former, state, former_state) == (step, "RUNNING", "CANCELLED") and newest != step

    deployment.wait_until("the next step", lambda: len(deployment.states("steps")) > 1 and next_runs())


def test_a_step_that_is_cancelled_is_added_again_by_the_rule(deployment: Deployment) -> None:
    cancel_step(deployment)


def test_a_run_that_is_stopped_is_followed_by_the_next_one(deployment: Deployment) -> None:
    ((run, _), *_) = deployment.running()["runs"]
    job = {"JobName": "headwater-local-key-value"}
    glue = deployment.client("glue")
    # A run that ends sooner is left to the schedule.
    deployment.wait_until(
        "the run to be two minutes old",
        lambda: glue.get_job_run(**job, RunId=run)["JobRun"]["ExecutionTime"] >= 120,
    )
    glue.batch_stop_job_run(**job, JobRunIds=[run])
    deployment.wait_until("the next run", lambda: deployment.states("runs")[:2] == ["RUNNING", "STOPPED"])


def test_a_step_that_ends_is_told_to_what_adds_it_again_and_the_schedule_does(deployment: Deployment) -> None:
    said = "failed soon after its start"

    def times_said() -> int:
        return deployment.log("custom-resources/steps").count(said)

    before = times_said()
    # One that has run for long would be added at once.
    cancel_step(deployment)
    deployment.kill("SparkSubmit", "--landing")
    deployment.wait_until("the step to have failed", lambda: deployment.states("steps")[0] == "FAILED")
    deployment.wait_until("the rule to call the function", lambda: times_said() > before)
    functions = deployment.client("lambda").list_functions()["Functions"]
    (restart,) = [each["FunctionName"] for each in functions if "emr-writer-StepsRestart" in each["FunctionName"]]
    regularly = {"detail-type": "Scheduled Event", "detail": {}}
    deployment.client("lambda").invoke(FunctionName=restart, Payload=json.dumps(regularly).encode())
    deployment.wait_until("the step to run", lambda: deployment.states("steps")[0] == "RUNNING")
    deployment.wait_until("the alarm", lambda: deployment.alarms()["step-failed"] == "ALARM")


def test_a_worker_that_is_killed_is_replaced_and_changes_go_on(deployment: Deployment) -> None:
    deployment.kill("ConnectDistributed", "headwater-local-landing")
    with deployment.connect() as owner:
        owner.execute("UPDATE northwind.customers SET city = 'Ghent' WHERE city IS NOT NULL")
    deployment.await_equality()


def test_a_changed_setting_of_a_connector_is_updated_in_place(deployment: Deployment) -> None:
    before = deployment.running()
    deployment.checkout.set_field("connect.flush_ms", "500")
    deployment.checkout.set_field("stream.partitions", "4")
    succeeded(deployment.checkout.deploy())
    assert deployment.running() == before
    (sink,) = [arn for arn, _ in before["connectors"] if "headwater-local-landing" in arn]
    described = deployment.client("kafkaconnect").describe_connector(connectorArn=sink)
    assert described["connectorConfiguration"]["flush.interval.ms"] == "500"
    assert "flush.interval.ms = 500" in deployment.log("connect/sink")
    assert deployment.partitions("headwater.northwind.customers") == 4


def test_contracts_come_change_and_go_beside_the_others(deployment: Deployment) -> None:
    add_shippers(deployment)
    add_a_column_to_shippers(deployment)
    add_visits(deployment)
    remove_shippers_and_visits(deployment)


def add_shippers(deployment: Deployment) -> None:
    """A contract that is added brings its table's history."""
    before = deployment.running()
    (deployment.checkout.folder / "contracts" / "shippers.yaml").write_text(SHIPPERS)
    succeeded(deployment.checkout.deploy())
    after = deployment.running()
    assert after["connectors"] == before["connectors"]
    assert after["runs"] == before["runs"]
    # Its arguments name the contract.
    assert [state for *_, state in after["steps"]][:2] == ["RUNNING", "CANCELLED"]
    deployment.await_equality()
    (shippers,) = [table for table in deployment.verified()["tables"] if table["name"] == "shippers"]
    assert shippers["source_rows"] == shippers["lake_rows"] > 1
    assert "shippers" in deployment.captured()
    (topic,) = [name for name in deployment.topics() if name.endswith(".shippers")]
    with deployment.kafka() as kafka:
        configured = kafka.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])["topic"][topic]
    # What the template gives the topic, and what the cluster's configuration gives the broker.
    assert deployment.partitions(topic) == deployment.partitions("headwater.northwind.customers") > 1
    assert configured["max.message.bytes"]["value"] == topic_config()["max.message.bytes"]
    assert f"message.max.bytes={broker_config()['message.max.bytes']}\n" in broker_properties(deployment)


def broker_properties(deployment: Deployment) -> str:
    """The configuration of the environment's broker."""
    return (deployment.checkout.account / "msk" / "headwater-local" / "server.properties").read_text()


def add_a_column_to_shippers(deployment: Deployment) -> None:
    """A column that is added comes with the next change of a row."""
    before = deployment.running()
    with (deployment.checkout.folder / "contracts" / "shippers.yaml").open("a") as contract:
        contract.write(PHONE)
    succeeded(deployment.checkout.deploy())
    assert deployment.running()["connectors"] == before["connectors"]
    assert deployment.running()["runs"] == before["runs"]
    described = deployment.client("glue").get_table(DatabaseName="headwater_local", Name="shippers")["Table"]
    assert "phone" in [column["Name"] for column in described["StorageDescriptor"]["Columns"]]

    def without() -> int:
        (shippers,) = [table for table in deployment.verified()["tables"] if table["name"] == "shippers"]
        return int(shippers["different"])

    rows = without()
    assert rows > 1
    first = "(SELECT min(shipper_id) FROM northwind.shippers)"
    with deployment.connect() as owner:
        owner.execute(f"UPDATE northwind.shippers SET phone = phone WHERE shipper_id = {first}")
    # It is null in old rows.
    deployment.wait_until("the row", lambda: without() == rows - 1)
    with deployment.connect() as owner:
        owner.execute(f"UPDATE northwind.shippers SET phone = phone WHERE shipper_id > {first}")
    deployment.await_equality()


def add_visits(deployment: Deployment) -> None:
    """A contract of DynamoDB that is added makes table and stream, and its changes arrive."""
    before = deployment.running()
    (deployment.checkout.folder / "contracts" / "visits.yaml").write_text(VISITS)
    succeeded(deployment.checkout.deploy())
    after = deployment.running()
    assert after["connectors"] == before["connectors"]
    assert after["steps"] == before["steps"]
    visit = {"id": {"S": "1"}, "page": {"S": "/"}}
    deployment.client("dynamodb").put_item(TableName="headwater-local-visits", Item=visit)
    deployment.wait_until("the item", lambda: deployment.verified()["equal"])
    (visits,) = [table for table in deployment.verified()["tables"] if table["name"] == "visits"]
    assert visits["source_rows"] == visits["lake_rows"] == 1


def remove_shippers_and_visits(deployment: Deployment) -> None:
    """Contracts that are removed leave the others as they are."""
    before = deployment.running()
    for name in ("shippers", "visits"):
        (deployment.checkout.folder / "contracts" / f"{name}.yaml").unlink()
    succeeded(deployment.checkout.deploy())
    assert deployment.running()["connectors"] == before["connectors"]
    assert "shippers" not in deployment.captured()
    assert [name for name in deployment.topics() if name.endswith(".shippers")] == []
    assert [name for name in deployment.stores("local") if name.endswith("-visits")] == []
    streams = deployment.client("kinesis").list_streams()["StreamNames"]
    assert [name for name in streams if name.startswith("headwater-local-")] == ["headwater-local-accounts"]
    with deployment.connect() as owner:
        owner.execute("UPDATE northwind.customers SET city = 'Bruges' WHERE city IS NOT NULL")
    deployment.await_equality()


def test_plugin_workers_and_writers_are_replaced_under_load_and_nothing_is_lost(deployment: Deployment) -> None:
    before = deployment.running()
    stop = threading.Event()
    written: list[str] = []

    def write() -> None:
        with deployment.connect() as owner:
            while not stop.wait(0.1):
                row = f"{len(written)}"
                owner.execute(
                    "UPDATE northwind.customers SET city = %s WHERE customer_id = (SELECT min(customer_id) FROM"
                    " northwind.customers)",
                    (row,),
                )
                written.append(row)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        deployment.checkout.append("NOTICE", "Another release.\n")
        deployment.checkout.change(
            "headwater/definitions/connectors.py",
            '"offset.flush.interval.ms": "1000"',
            '"offset.flush.interval.ms": "2000"',
        )
        for code in ("emr_steps/write_hudi.py", "glue_scripts/write_hudi.py", "headwater/lake/table/writer.py"):
            deployment.checkout.append(code, "# Another release.\n")
        succeeded(deployment.checkout.deploy())
    finally:
        stop.set()
        writer.join()
    assert len(written) > 50
    deployment.await_equality()
    after = deployment.running()
    for kind in ("steps", "runs"):
        assert after[kind][0][-1] == "RUNNING"
        assert after[kind][0] != before[kind][0]
    # The connectors keep their names, and by them their positions, with another plugin and other workers.
    names = [[arn.split("/")[1] for arn, _ in running["connectors"]] for running in (before, after)]
    assert names[0] == names[1]
    for name in ("headwater-local-postgres", "headwater-local-landing"):
        properties = (deployment.worker(name) / "worker.properties").read_text()
        assert "offset.flush.interval.ms=2000" in properties
        (plugins,) = [line.partition("=")[2] for line in properties.splitlines() if line.startswith("plugin.path=")]
        assert [found.read_text() for found in Path(plugins).rglob("RELEASE")] == ["another\n"]
    # The step has read what came since the last commit of the one before, and not from the beginning.
    read = [commit["changes"] for commit in deployment.commits() if commit["table"] == "customers"]
    assert 0 < sum(read) <= len(written)


def test_a_raised_cluster_and_broker_take_over_and_a_new_file_runs(deployment: Deployment) -> None:
    before = deployment.running()
    deployment.checkout.set_field("emr.generation", "2")
    deployment.checkout.set_field("stream.kafka_version", "4.0.x.kraft")
    create = '"auto.create.topics.enable": "false",'
    deployment.checkout.change("stacks/stream.py", create, f'{create} "num.io.threads": "4",')
    deployment.checkout.append("database/7_comment.sql", "COMMENT ON SCHEMA northwind IS 'Another release';\n")
    brokers = deployment.brokers()
    succeeded(deployment.checkout.deploy())
    after = deployment.running()
    # Another environment's may go on beside it.
    assert (len(deployment.brokers() - brokers), len(brokers - deployment.brokers())) == (1, 1)
    assert "num.io.threads=4\n" in broker_properties(deployment)
    assert after["steps"][0][0] != before["steps"][0][0]
    assert [state for *_, state in after["steps"]] == ["RUNNING"]
    described = deployment.client("emr").describe_cluster(ClusterId=before["steps"][0][0])["Cluster"]
    assert described["Status"]["State"] == "TERMINATED"
    assert after["connectors"] == before["connectors"]
    with deployment.connect() as owner:
        said = owner.execute("SELECT obj_description('northwind'::regnamespace)").fetchone()
        owner.execute("UPDATE northwind.customers SET city = 'Namur' WHERE city IS NOT NULL")
    assert said == ("Another release",)
    deployment.await_equality()


def test_a_second_environment_comes_and_goes_beside_the_first_and_leaves_its_data(deployment: Deployment) -> None:
    before = deployment.running()
    local = (deployment.checkout.folder / "config" / "local.yaml").read_text()
    second = set_value(local, ("data", "delete_with_stacks_of"), "null")
    (deployment.checkout.folder / "config" / "second.yaml").write_text(second)
    succeeded(deployment.checkout.deploy("second"))
    assert deployment.running() == before
    stores = deployment.stores("second")
    assert len(stores) > 3
    said = succeeded(deployment.checkout.run_headwater("destroy", "--env", "second"))
    assert "The local AWS runs on for the stacks headwater-local-" in said
    assert deployment.running() == before
    assert deployment.stores("second") == stores
    stacks = deployment.client("cloudformation").describe_stacks()["Stacks"]
    assert [stack["StackName"] for stack in stacks if "-second-" in stack["StackName"]] == []


def test_a_right_that_a_writer_loses_is_refused_in_s3_and_in_kinesis(deployment: Deployment) -> None:
    may_write = ('self.lake, _WRITE, f"{LAKE_PREFIX}/{lease}"', 'self.lake, _READ, f"{LAKE_PREFIX}/{lease}"')
    may_read = ('"kinesis:GetRecords",\n', '"kinesis:ListTagsForStream",\n')
    before = len(deployment.refused())
    deployment.checkout.change("stacks/lake.py", *may_write)
    deployment.checkout.change("stacks/key_value_sources.py", *may_read)
    succeeded(deployment.checkout.deploy())

    def refused(action: str, resource: str) -> bool:
        return any(f" {action} " in line and resource in line for line in deployment.refused()[before:])

    for asked in (("s3:PutObject", "/_leases/orders.json"), ("kinesis:GetRecords", "stream/headwater-local-accounts")):
        deployment.wait_until(f"{asked} to be refused", partial(refused, *asked))
    deployment.checkout.change("stacks/lake.py", *reversed(may_write))
    deployment.checkout.change("stacks/key_value_sources.py", *reversed(may_read))
    succeeded(deployment.checkout.deploy())
    deployment.expected += [line for line in deployment.refused()[before:] if " kinesis:GetRecords " in line]
    # A run that has ended over it would wait for the schedule.
    if deployment.states("runs")[0] not in ("STARTING", "RUNNING"):
        deployment.client("glue").start_job_run(JobName="headwater-local-key-value")
    deployment.client("dynamodb").delete_item(
        TableName="headwater-local-accounts", Key=deployment.any_key("headwater-local-accounts")
    )
    with deployment.connect() as owner:
        owner.execute("UPDATE northwind.customers SET city = 'Liège' WHERE city IS NOT NULL")
    deployment.await_equality()


@pytest.mark.parametrize("part", [part for part in BROKEN if part not in OF_A_FIRST_DEPLOY])
def test_an_update_that_fails_is_rolled_back_and_what_ran_goes_on(deployment: Deployment, part: str) -> None:
    change, word = BROKEN[part]
    said = deployment.checkout.deploy_broken(*change)
    assert word in said, said[-4000:]
    assert "ROLLBACK_FAILED" not in said
    with deployment.connect() as owner:
        owner.execute("UPDATE northwind.customers SET city = %s WHERE city IS NOT NULL", (part,))
    deployment.await_equality()
    running = deployment.running()
    assert [state for *_, state in running["steps"]].count("RUNNING") == 1
    assert running["steps"][0][-1] == "RUNNING"
    assert [state for _, state in running["connectors"]] == ["RUNNING", "RUNNING"]
    # A deploy after one that failed succeeds.
    succeeded(deployment.checkout.deploy())
