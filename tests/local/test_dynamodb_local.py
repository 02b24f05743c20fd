"""A table's changes reach Kinesis through the relay as DynamoDB's own destination would write them."""

import itertools
import json
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from headwater.cli import app
from headwater.contract.reading import from_document, read_contract
from headwater.definitions import dynamodb_checks
from headwater.errors import UserError
from headwater.lake_folder import EXAMPLE
from headwater.verify.bunches import Pace
from headwater.verify.dynamodb_source import DynamoDbTable
from headwater.waiting import wait_until
from rig.local.aws import REGION, AwsApi, make_credentials
from rig.local.dynamodb_local import DynamoDbLocal, create_table
from rig.local.relay import TTL_IDENTITY, Misbehaviour, Relay
from rig.samples import dynamodb_tables, items, items_workload
from rig.samples.paced_workers import WorkloadPlan, WorkloadProgress
from tests.lake_folders import lake_folder

ITEM = {
    "id": {"S": "account-1"},
    "custName": {"S": "Ærø & Søn"},
    "text": {"S": ""},
    "number": {"N": "12345678901234567890123456789012345678"},
    "bytes": {"B": b"\x00\xff"},
    "yes": {"BOOL": True},
    "nothing": {"NULL": True},
    "map": {"M": {"a.b": {"M": {'"': {"B": b""}}}}},
    "list": {"L": [{"S": "x"}, {"N": "1"}]},
    "texts": {"SS": ["", "ß"]},
    "numbers": {"NS": ["-1.5", "2"]},
    "blobs": {"BS": [b"", b"\x01"]},
}
UNTOLD = {("warning", "an API without")}
KEY = {name: ITEM[name] for name in ("id", "custName")}


@pytest.fixture(scope="module")
def dynamodb(session_folder: Path, aws_api: AwsApi) -> Iterator[DynamoDbLocal]:
    with DynamoDbLocal(session_folder / "dynamodb", aws_api.credentials) as server:
        yield server


def test_a_table_of_the_local_run_fits_its_contract_as_far_as_it_tells(dynamodb: DynamoDbLocal) -> None:
    client, contract = dynamodb.client("dynamodb"), read_contract(EXAMPLE.contracts / "accounts.yaml")
    create_table(client, contract, "checked")
    found = dynamodb_checks.findings([contract], {"accounts": "checked"}, client)
    assert {(finding.level, finding.found.partition(" Describe")[0]) for finding in found} <= UNTOLD, found
    other = replace(contract, key=("id",), source=replace(contract.source, time_to_live="gone_at"))
    found = dynamodb_checks.findings([other], {"accounts": "checked"}, client)
    assert [finding.found for finding in found if finding.level != "warning"] == [
        "the key id (S), custName (S)",
        "a time to live by expires_at",
    ]


def test_a_contract_that_is_inferred_of_a_table_passes_its_check(
    dynamodb: DynamoDbLocal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in dynamodb.credentials.items():
        monkeypatch.setenv(name, value)
    client, contract = dynamodb.client("dynamodb"), read_contract(EXAMPLE.contracts / "accounts.yaml")
    create_table(client, contract, "inferred")
    filled = dynamodb_tables.fill(client, replace(contract, source=replace(contract.source, table="inferred")), 0.1, 1)

    folder = lake_folder(tmp_path / "lake", tmp_path)

    def run(*arguments: str) -> Result:
        where = ["--folder", str(folder.root), "--dynamodb-endpoint", dynamodb.endpoint, "--region", REGION]
        given = ["contract", *arguments, *where]
        return CliRunner().invoke(app, given)

    done = run("infer", "--from-dynamodb", "inferred")
    assert done.exit_code == 0, done.output
    made = read_contract(tmp_path / "inferred.yaml")
    assert (made.source.table, made.source.time_to_live) == ("inferred", contract.source.time_to_live)
    assert len(made.key) == len(contract.key)
    assert {column.path for column in contract.columns if column.name in made.key} <= {
        column.path for column in made.columns
    }
    assert re.search(rf"# .*seen in \d+ of {filled} items", (tmp_path / "inferred.yaml").read_text())
    done = run("check", "--live")
    assert done.exit_code == 0, done.output


class Source:
    """A table of its own for each test, with its Kinesis stream."""

    def __init__(self, dynamodb: DynamoDbLocal, aws_api: AwsApi, folder: Path, name: str) -> None:
        self.dynamodb = dynamodb
        self.client = dynamodb.client("dynamodb")
        self.kinesis = aws_api.client("kinesis")
        self.name = name
        accounts = read_contract(EXAMPLE.contracts / "accounts.yaml")
        self.contract = replace(accounts, source=replace(accounts.source, table=name))
        create_table(self.client, self.contract, name)
        self.kinesis.create_stream(StreamName=name, ShardCount=2)
        self.relay = partial(Relay, folder / "relay", dynamodb, aws_api.endpoint, name)

    def put(self, item: dict[str, Any]) -> None:
        self.client.put_item(TableName=self.name, Item=item)

    def delete(self, key: dict[str, Any] = KEY) -> None:
        self.client.delete_item(TableName=self.name, Key=key)

    def update(self, expression: str, key: dict[str, Any] = KEY, **values: dict[str, Any]) -> None:
        self.client.update_item(
            TableName=self.name,
            Key=key,
            UpdateExpression=expression,
            ExpressionAttributeValues={f":{name}": value for name, value in values.items()},
        )

    def work(self, seconds: float, changes: int, progress: Callable[[WorkloadProgress], None]) -> int:
        """Run the workload over 40 items. Returns how many changes were made, including the loading of the items."""
        loaded = items.load(self.client, self.name, items.generate(self.contract, 40, seed=1))
        factory = partial(self.dynamodb.client, "dynamodb")
        plan = WorkloadPlan(seconds, changes, workers=3, seed=2)
        return loaded + items_workload.run(factory, self.contract, plan, progress).changes

    def shards(self) -> list[dict[str, Any]]:
        shards: list[dict[str, Any]] = self.kinesis.list_shards(StreamName=self.name)["Shards"]
        return shards

    def records(self) -> list[dict[str, Any]]:
        """The stream's records, a shard's after its parents', which must have an end."""
        records = []
        for shard in self.shards():
            iterator = self.kinesis.get_shard_iterator(
                StreamName=self.name, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
            )["ShardIterator"]
            answer = self.kinesis.get_records(ShardIterator=iterator, Limit=10_000)
            assert ("NextShardIterator" in answer) == ("EndingSequenceNumber" not in shard["SequenceNumberRange"])
            records += answer["Records"]
        return records

    def data(self) -> list[dict[str, Any]]:
        return [json.loads(record["Data"]) for record in self.records()]


@pytest.fixture
def source(
    dynamodb: DynamoDbLocal, aws_api: AwsApi, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Source]:
    source = Source(dynamodb, aws_api, tmp_path, re.sub(r"\W", "-", request.node.name))
    yield source
    # Deleting the table would wait for DynamoDB Local's search for expired items, which each table otherwise keeps.
    source.client.update_time_to_live(
        TableName=source.name, TimeToLiveSpecification={"Enabled": False, "AttributeName": "expires_at"}
    )


def by_item(records: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    changes = defaultdict(list)
    for record in records:
        changes[json.dumps(record["dynamodb"]["Keys"], sort_keys=True)].append(record)
    return changes


def creation(record: dict[str, Any]) -> int:
    return int(record["dynamodb"]["ApproximateCreationDateTime"])


def follow(records: list[dict[str, Any]]) -> None:
    """Fail unless each change of an item, in order of its time, begins where the one before it ended."""
    for changes in by_item(records).values():
        state = None
        for change in sorted(changes, key=creation):
            assert exact(change["dynamodb"].get("OldImage")) == state
            state = exact(change["dynamodb"].get("NewImage"))


def exact(value: Any) -> Any:
    """An image with its numbers as numbers: DynamoDB Local writes 1E-130 with all its zeros in some images."""
    match value:
        case {"N": str(text)}:
            return {"N": Decimal(text)}
        case {"NS": texts}:
            return {"NS": sorted(map(Decimal, texts))}
        case dict():
            return {name: exact(inside) for name, inside in value.items()}
        case list():
            return [exact(inside) for inside in value]
    return value


def test_a_record_has_the_fields_of_dynamodbs_own_destination(source: Source) -> None:
    before = time.time_ns() // 1000
    with source.relay() as relay:
        source.put(ITEM)
        source.update("SET email = :text REMOVE nothing", text={"S": "a@example.com"})
        source.put({**ITEM, "email": {"S": "a@example.com"}})
        source.delete()
        relay.await_caught_up()
    records = source.records()
    inserted, modified, put, removed = data = source.data()
    image = {
        **ITEM,
        "bytes": {"B": "AP8="},
        "map": {"M": {"a.b": {"M": {'"': {"B": ""}}}}},
        "blobs": {"BS": ["", "AQ=="]},
    }
    without = {name: value for name, value in image.items() if name != "nothing"} | {"email": {"S": "a@example.com"}}
    whole = {**image, "email": {"S": "a@example.com"}}
    for record, (name, new, old) in zip(
        data,
        [
            ("INSERT", image, None),
            ("MODIFY", without, image),
            ("MODIFY", whole, without),
            ("REMOVE", None, whole),
        ],
        strict=True,
    ):
        change = record["dynamodb"]
        assert list(record) == [
            *(
                "awsRegion",
                "eventID",
                "eventName",
                "userIdentity",
                "recordFormat",
                "tableName",
                "dynamodb",
                "eventSource",
            )
        ]
        assert record["awsRegion"] == "eu-central-1"
        assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", record["eventID"])
        assert (record["eventName"], record["userIdentity"]) == (name, None)
        assert (record["recordFormat"], record["tableName"]) == ("application/json", source.name)
        assert record["eventSource"] == "aws:dynamodb"
        assert list(change) == [
            "ApproximateCreationDateTime",
            "Keys",
            *(["NewImage"] if new else []),
            *(["OldImage"] if old else []),
            "SizeBytes",
            "ApproximateCreationDateTimePrecision",
        ]
        assert change["Keys"] == KEY
        assert (change.get("NewImage"), change.get("OldImage")) == (new, old)
        assert change["ApproximateCreationDateTimePrecision"] == "MICROSECOND"
        assert before - 60_000_000 < change["ApproximateCreationDateTime"] < time.time_ns() // 1000
    assert b'"custName":{"S":"\xc3\x86r\xc3\xb8 & S\xc3\xb8n"}' in records[0]["Data"]
    assert b": " not in records[0]["Data"]
    assert len({record["PartitionKey"] for record in records}) == 1
    assert re.fullmatch(r"[0-9A-F]{32}", records[0]["PartitionKey"])
    assert len({record["eventID"] for record in data}) == 4
    assert [creation(record) for record in data] == sorted({creation(record) for record in data})
    # Keys and images: names in UTF-8 and values; the delete's is that of the item it removed.
    assert (
        removed["dynamodb"]["SizeBytes"]
        == put["dynamodb"]["SizeBytes"] - modified["dynamodb"]["SizeBytes"] + (inserted["dynamodb"]["SizeBytes"])
    )


def test_a_time_is_never_later_than_its_change(source: Source) -> None:
    written: dict[str, int] = {}
    with source.relay() as relay:
        relay.await_caught_up()

        def put(worker: int) -> None:
            for number in range(60):
                name = f"{worker}-{number}"
                source.put({**KEY, "id": {"S": name}})
                written[name] = time.time_ns() // 1000

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(put, range(4)))
        relay.await_caught_up()
    times = {record["dynamodb"]["Keys"]["id"]["S"]: creation(record) for record in source.data()}
    assert len(times) == len(written) == len(set(times.values()))
    assert all(times[name] <= done for name, done in written.items())


def test_a_write_that_changes_nothing_or_is_refused_leaves_no_record(source: Source) -> None:
    source.put(ITEM)
    source.put(ITEM)
    source.delete({**KEY, "id": {"S": "not there"}})
    with pytest.raises(source.client.exceptions.ConditionalCheckFailedException):
        source.client.put_item(TableName=source.name, Item=KEY, ConditionExpression="attribute_not_exists(id)")
    with pytest.raises(source.client.exceptions.TransactionCanceledException):
        source.client.transact_write_items(
            TransactItems=[
                {"Put": {"TableName": source.name, "Item": {**KEY, "id": {"S": "new"}}}},
                {
                    "ConditionCheck": {
                        "TableName": source.name,
                        "Key": KEY,
                        "ConditionExpression": "attribute_not_exists(id)",
                    }
                },
            ]
        )
    with source.relay() as relay:
        relay.await_caught_up()
    assert [record["eventName"] for record in source.data()] == ["INSERT"]


def test_what_dynamodb_local_expires_has_the_identity_of_dynamodb(source: Source) -> None:
    source.put({**KEY, "expires_at": {"N": str(int(time.time()) - 60)}})
    count = partial(source.client.scan, TableName=source.name, Select="COUNT")
    wait_until("DynamoDB Local to delete an expired item", lambda: count()["Count"] == 0)
    with source.relay() as relay:
        relay.await_caught_up()
    assert [(record["eventName"], record["userIdentity"]) for record in source.data()] == [
        ("INSERT", None),
        ("REMOVE", TTL_IDENTITY),
    ]


def test_the_relay_expires_items_in_dynamodbs_name_and_no_others(source: Source) -> None:
    past, future, long_past = (str(int(time.time()) + ahead) for ahead in (-60, 3600, -6 * 365 * 24 * 3600))
    values = {
        "expired": {"N": past},
        "not yet": {"N": future},
        "a mistake": {"N": long_past},
        "no number": {"S": past},
        "deleted by hand": {"N": future},
    }
    for name, value in values.items():
        source.put({**KEY, "id": {"S": name}, "expires_at": value})
    source.delete({**KEY, "id": {"S": "deleted by hand"}})
    with source.relay() as relay:
        relay.await_caught_up()
        # The same key again is another item, which the client deletes.
        source.put({**KEY, "id": {"S": "expired"}})
        source.delete({**KEY, "id": {"S": "expired"}})
        relay.await_caught_up()
    removed = defaultdict(list)
    for record in source.data():
        if record["eventName"] == "REMOVE":
            removed[record["dynamodb"]["Keys"]["id"]["S"]].append(record["userIdentity"])
    assert removed == {"deleted by hand": [None], "expired": [TTL_IDENTITY, None]}


def test_a_change_that_no_relay_carries_is_told_by_its_age(source: Source) -> None:
    relay = source.relay()
    relay.start()
    try:
        relay.await_caught_up()
        assert relay.age() == 0
        relay.kill()
        source.put({**KEY, "balance": {"N": "1"}})
        wait_until("the change to be in the table's stream", lambda: relay.age() > 0)
        relay.start()
        relay.await_caught_up()
        assert relay.age() == 0
    finally:
        relay.stop()


def test_a_killed_relay_goes_on_where_it_was_and_loses_nothing(source: Source) -> None:
    relay = source.relay()
    relay.start()
    kills = itertools.count()

    def kill(progress: WorkloadProgress) -> None:
        if progress.changes > 100 * (next(kills) + 1) and progress.changes < progress.wanted:
            relay.kill()
            relay.start()

    try:
        changes = source.work(6, 600, kill)
        relay.await_caught_up()
    finally:
        relay.stop()
    data = source.data()
    bytes_by_event = defaultdict(set)
    for record in source.records():
        bytes_by_event[json.loads(record["Data"])["eventID"]].add(record["Data"])
    assert next(kills) > 3
    assert all(len(versions) == 1 for versions in bytes_by_event.values())
    once = list({record["eventID"]: record for record in data}.values())
    assert len([record for record in once if record["userIdentity"] is None]) == changes
    follow(once)


def test_the_workload_makes_every_kind_of_change_and_counts_its_records(source: Source) -> None:
    items.load(source.client, source.name, items.generate(source.contract, 100, seed=1))
    reports: list[WorkloadProgress] = []
    with source.relay() as relay:
        factory = partial(source.dynamodb.client, "dynamodb")
        plan = WorkloadPlan(seconds=2, changes=500, workers=4, seed=3)
        summary = items_workload.run(factory, source.contract, plan, reports.append)
        relay.await_caught_up()
    data = source.data()
    by_client = [record for record in data if record["userIdentity"] is None]
    assert len(by_client) == 100 + summary.changes
    assert len(data) - len(by_client) >= summary.expiring > 0
    assert summary.changes >= 500
    assert set(summary.by_kind) == set(items_workload.kinds_of(source.contract))
    assert summary.refused >= summary.by_kind["update_refused"]
    assert summary.cancelled == summary.by_kind["transact_cancelled"]
    assert (reports[-1].changes, reports[-1].wanted) == (summary.changes, 500)
    assert Counter(record["eventName"] for record in data).keys() == {"INSERT", "MODIFY", "REMOVE"}
    follow(data)
    images = [(record["dynamodb"].get("OldImage", {}), record["dynamodb"].get("NewImage", {})) for record in data]
    changed = [(old, new) for old, new in images if old and new]
    assert any(old.get("registrationDate", {}) != new.get("registrationDate", {}) for old, new in changed)
    both = [(old[name], new[name]) for old, new in changed for name in items.FREE_FORM if name in old and name in new]
    assert any(old.keys() != new.keys() for old, new in both)
    assert any(old.keys() - new.keys() for old, new in changed)


def test_a_stream_that_is_resharded_meanwhile_gets_every_record_once_and_in_order(source: Source) -> None:
    done: set[str] = set()

    def reshard(progress: WorkloadProgress) -> None:
        names = [shard["ShardId"] for shard in source.shards()]
        if progress.changes > 100 and "split" not in done:
            done.add("split")
            source.kinesis.split_shard(StreamName=source.name, ShardToSplit=names[0], NewStartingHashKey=str(2**126))
        elif progress.changes > 200 and "merge" not in done:
            done.add("merge")
            source.kinesis.merge_shards(StreamName=source.name, ShardToMerge=names[-1], AdjacentShardToMerge=names[1])

    with source.relay() as relay:
        changes = source.work(3, 400, reshard)
        relay.await_caught_up()
    assert done == {"split", "merge"}
    assert len(source.shards()) == 5
    data = source.data()
    assert len([record for record in data if record["userIdentity"] is None]) == changes
    assert len({record["eventID"] for record in data}) == len(data)
    for records in by_item(data).values():
        assert records == sorted(records, key=creation)
    numbers = {shard["ShardId"]: shard["SequenceNumberRange"] for shard in source.shards()}
    for shard in source.shards():
        for parent in {"ParentShardId", "AdjacentParentShardId"} & shard.keys():
            end = numbers[shard[parent]]["EndingSequenceNumber"]
            assert int(end) < int(numbers[shard["ShardId"]]["StartingSequenceNumber"])


def test_it_repeats_and_delays_as_the_real_destination_may(source: Source) -> None:
    with source.relay(Misbehaviour(repeated=0.2, delayed=0.2)) as relay:
        changes = source.work(1, 300, lambda progress: None)
        relay.await_caught_up()
    data = source.data()
    events = Counter(record["eventID"] for record in data)
    once = list({record["eventID"]: record for record in data}.values())
    assert max(events.values()) > 1
    assert any(records != sorted(records, key=creation) for records in by_item(once).values())
    assert len([record for record in once if record["userIdentity"] is None]) == changes
    follow(once)


def test_a_table_is_read_in_bunches_at_a_pace_and_goes_on_behind_an_item(source: Source) -> None:
    for number in range(5):
        source.put({**ITEM, "id": {"S": f"account-{number}"}})
    pace = Pace(lambda: 0.0)
    table = DynamoDbTable(
        read_contract(EXAMPLE.contracts / "accounts.yaml"), source.client, source.name, read_units=1, pace=pace
    )
    bunches, waits = [], []
    for bunch in table.bunches(2):
        bunches.append(bunch)
        waits.append(pace.wait)
    assert [len(bunch) for bunch in bunches[:3]] == [2, 2, 1]
    assert 0 < waits[0] < waits[1] < waits[2]
    all_found = {key: found for bunch in bunches for key, found in bunch.items()}
    assert set(all_found) == {(f"account-{number}", "Ærø & Søn") for number in range(5)}
    *_, last = bunches[0].values()
    behind = [key for bunch in table.bunches(2, last.asked) for key in bunch]
    assert set(behind) == set(all_found) - set(bunches[0])

    keys = [*all_found, ("account-9", "Ærø & Søn")]
    before = pace.wait
    (asked_again,) = table.rows_at([table.asked_of(key) for key in keys])
    assert asked_again == all_found
    assert pace.wait > before


def test_items_with_keys_of_bytes_and_numbers_are_found(dynamodb: DynamoDbLocal) -> None:
    columns = [
        {"name": "part", "type": "binary", "source_type": "B"},
        {"name": "number", "type": "decimal(38,9)", "source_type": "N"},
    ]
    document = {
        "table": "numbered",
        "description": "For a test.",
        "source": {"database": "dynamodb", "table": "numbered"},
        "key": ["number", "part"],
        "partition_by": [],
        "buckets": 1,
        "columns": columns,
    }
    contract, client = from_document(document, "numbered.yaml"), dynamodb.client("dynamodb")
    create_table(client, replace(contract, key=("part", "number")), "numbered")
    item = {"part": {"B": b"\x00\xff"}, "number": {"N": "12345678901234567890123456789.123456789"}}
    client.put_item(TableName="numbered", Item=item)
    table = DynamoDbTable(contract, client, "numbered")
    (bunch,) = table.bunches(10)
    ((key, found),) = bunch.items()
    assert table.asked_of(key) == found.asked == item
    assert list(table.rows_at([table.asked_of(key)])) == [bunch]


def test_a_part_that_was_not_started_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"^DynamoDB Local in {re.escape(str(tmp_path))} is not running: start it"):
        DynamoDbLocal(tmp_path, {}).check()


def test_dynamodb_answers_again_at_the_same_address(tmp_path: Path) -> None:
    with DynamoDbLocal(tmp_path, make_credentials()) as server:
        endpoint = server.endpoint
        server.client("dynamodb").list_tables()
        server.kill()
        server.start()
        assert server.endpoint == endpoint
        assert server.client("dynamodb").list_tables()["TableNames"] == []
