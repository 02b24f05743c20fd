"""The key-value pipeline on real local parts, with records repeated and late, a reshard and kills in mid-batch."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from headwater.contract.model import DYNAMODB, of_database
from headwater.contract.reading import read_contracts
from headwater.local.aws import AwsApi
from headwater.local.key_value import STREAM, KeyValuePipeline
from headwater.local.pipeline import LAKE_BUCKET, create_lake
from headwater.local.processes import wait_until
from headwater.paths import CONTRACTS
from headwater.samples import accounts

ITEMS = 200
CHANGES = 3_000
SECONDS = 200.0


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyValuePipeline]:
    folder = tmp_path_factory.mktemp("key_value")
    (accounts_contract,) = of_database(read_contracts(CONTRACTS), DYNAMODB)
    with AwsApi(folder / "aws") as aws_api:
        create_lake(aws_api, [accounts_contract])
        with KeyValuePipeline(folder, accounts_contract, aws_api, repeated=0.2, delayed=0.2) as pipeline:
            pipeline.start_source()
            accounts.load(pipeline.dynamodb.client("dynamodb"), accounts.generate(ITEMS, seed=7))
            pipeline.start_writer()
            pipeline.drain()
            yield pipeline


def open_commits(pipeline: KeyValuePipeline) -> set[str]:
    """Instants of the accounts' timeline that are in flight."""
    found = pipeline.aws.client("s3").list_objects_v2(Bucket=LAKE_BUCKET, Prefix="lake/accounts/.hoodie/")
    names = [entry["Key"].rpartition("/")[2] for entry in found.get("Contents", ())]
    done = {name.partition(".")[0].partition("_")[0] for name in names if name.endswith(".deltacommit")}
    return {name.partition(".")[0] for name in names if name.endswith(".deltacommit.inflight")} - done


def kill_in_mid_batch(pipeline: KeyValuePipeline) -> None:
    wait_until("a commit in flight", lambda: bool(open_commits(pipeline)), timeout=120, poll=0.02)
    pipeline.writer.kill()
    assert open_commits(pipeline), "the commit was over before the kill"
    pipeline.start_writer()


def split(pipeline: KeyValuePipeline) -> None:
    """Split the stream's first open shard in the middle."""
    kinesis = pipeline.aws.client("kinesis")
    shards = kinesis.list_shards(StreamName=STREAM)["Shards"]
    shard = next(one for one in shards if "EndingSequenceNumber" not in one["SequenceNumberRange"])
    first, last = (int(shard["HashKeyRange"][end]) for end in ("StartingHashKey", "EndingHashKey"))
    kinesis.split_shard(StreamName=STREAM, ShardToSplit=shard["ShardId"], NewStartingHashKey=str((first + last) // 2))


def test_the_lake_equals_the_table_after_kills_and_a_reshard_with_records_repeated_and_late(
    pipeline: KeyValuePipeline,
) -> None:
    stop = threading.Event()
    results: list[accounts.AccountsSummary | BaseException] = []

    def work() -> None:
        try:
            client = lambda: pipeline.dynamodb.client("dynamodb")  # noqa: E731
            results.append(accounts.run(client, SECONDS, CHANGES, 2, seed=3, stop=stop))
        except BaseException as error:
            results.append(error)

    workload = threading.Thread(target=work)
    workload.start()
    try:
        time.sleep(3)
        kill_in_mid_batch(pipeline)
        split(pipeline)
        time.sleep(3)
        kill_in_mid_batch(pipeline)
    finally:
        stop.set()
        workload.join()
    (result,) = results
    assert isinstance(result, accounts.AccountsSummary), result
    assert result.changes > 50
    pipeline.drain()
    assert [table for table in pipeline.verify() if not table.equal] == []
    shards = {source.partition("/")[2] for source in pipeline.events.cursor()}
    assert len(shards) == 4, "the new shards were not read"
