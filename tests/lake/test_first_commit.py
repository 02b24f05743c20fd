"""A table's first commit, in the driver: it makes the table that Spark would make."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame

from headwater.contract.model import Contract
from headwater.lake.base.progress import NOTED_AS, Progress
from headwater.lake.base.s3_deletion import delete_below
from headwater.lake.table import hudi_table as lake_table
from headwater.lake.table.hudi_table import HudiTable
from tests.lake.pipeline import BUCKET, Pipeline, account, event
from tests.lake.readers import Hudi015, assert_same_to_every_reader

PROPERTIES = ".hoodie/hoodie.properties"
MADE_BY = ("spark", "bulk insert", "driver")


def one_row(pipeline: Pipeline, contract: Contract) -> DataFrame:
    columns = ", ".join(f"`{name}` {type_.ddl()}" for name, type_ in contract.lake_columns())
    values: dict[str, Any] = {"id": 1, "month": "2024-01", "_key": "1", "_order": "1", "_deleted": False}
    return pipeline.spark.createDataFrame([tuple(values.get(name) for name, _ in contract.lake_columns())], columns)


def read(pipeline: Pipeline, folder: str, name: str) -> str:
    key = f"{pipeline.prefix}/{folder}/accounts/{name}"
    text: str = pipeline.s3.get_object(Bucket=BUCKET, Key=key)["Body"].read().decode()
    return text


def properties(pipeline: Pipeline, folder: str) -> dict[str, str]:
    lines = [line for line in read(pipeline, folder, PROPERTIES).splitlines() if not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def first_instant(pipeline: Pipeline, folder: str) -> tuple[str, Any]:
    """The action of a table's only commit, and the schema that it names."""
    prefix = f"{pipeline.prefix}/{folder}/accounts/"
    listed = pipeline.s3.list_objects_v2(Bucket=BUCKET, Prefix=f"{prefix}.hoodie/2")["Contents"]
    (name,) = (entry["Key"].removeprefix(prefix) for entry in listed if entry["Key"].endswith("commit"))
    return name.rpartition(".")[2], json.loads(read(pipeline, folder, name))["extraMetadata"]["schema"]


@pytest.mark.parametrize("partitions", [("month",), ()])
def test_the_driver_makes_the_table_that_spark_makes(pipeline: Pipeline, partitions: tuple[str, ...]) -> None:
    contract = replace(pipeline.contract, partition_by=partitions)
    rows = one_row(pipeline, contract)
    made = {name: HudiTable(pipeline.spark, contract, f"s3://{BUCKET}/{pipeline.prefix}/{name}", 2) for name in MADE_BY}
    options = {**made["spark"]._options, "hoodie.datasource.write.operation": "bulk_insert"}
    writer = rows.write.format("hudi").options(**options).option(NOTED_AS, Progress().to_json())
    writer.mode("append").save(made["spark"].uri)
    for table, write in ((made["driver"], HudiTable.upsert_few), (made["bulk insert"], HudiTable.insert)):
        assert write(table, rows, Progress()) == table.last_commit()
        table.close()
    assert made["spark"].last_commit() is not None  # which names the ordering field for Hudi 0.15
    for name, table in made.items():
        assert table.read().count() == 1
        assert properties(pipeline, name) == properties(pipeline, "spark")
        assert first_instant(pipeline, name)[1] == first_instant(pipeline, "spark")[1]
    # Where Hudi's bulk insert creates the table, it calls the commit as in a table without log files.
    assert [first_instant(pipeline, name)[0] for name in MADE_BY] == ["commit", "deltacommit", "deltacommit"]


@pytest.mark.parametrize("few", [True, False])
def test_every_reader_reads_a_table_after_its_first_commit(
    pipeline: Pipeline, hudi_015: Hudi015, monkeypatch: pytest.MonkeyPatch, *, few: bool
) -> None:
    if not few:
        # More bytes than the driver takes: the table is created already when Spark writes it.
        monkeypatch.setattr(lake_table, "_FEW_BYTES", 1)
        monkeypatch.setattr(HudiTable, "upsert_held", lambda *_, **__: None)
    pipeline.land(event("c", 10, after=account(1)), event("c", 11, after=account(2, month="2024-02")))
    pipeline.drain()
    assert pipeline.alive() == [account(1), account(2, month="2024-02")]
    assert_same_to_every_reader(pipeline, hudi_015)


def test_few_first_changes_take_no_job_of_spark(pipeline: Pipeline) -> None:
    pipeline.land(*(event("r", 10 + id_, after=account(id_), snapshot="true") for id_ in range(3)), event("t", 20))
    pipeline.land(event("c", 30, after=account(1)))
    context = pipeline.spark.sparkContext
    context.setJobGroup(pipeline.prefix, "the first commit")
    try:
        pipeline.drain()
    finally:
        for name in ("jobGroup.id", "job.description", "job.interruptOnCancel"):
            context.setLocalProperty(f"spark.{name}", None)  # type: ignore[arg-type]
    assert context.statusTracker().getJobIdsForGroup(pipeline.prefix) == []
    assert pipeline.alive() == [account(1)]


def test_a_writer_that_slept_writes_nothing_into_anothers_new_table(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    asleep = pipeline.table()
    assert asleep.last_commit() is None
    pipeline.land(event("c", 10, after=account(1)))
    pipeline.drain()
    before = properties(pipeline, "lake")
    asleep.contract = replace(pipeline.contract, partition_by=())
    with pytest.raises(Exception, match="another writer has committed"):
        asleep.upsert_few(one_row(pipeline, pipeline.contract), Progress())
    # Or it falls asleep when it has looked.
    asleep._has_commit = False
    monkeypatch.setattr(asleep, "_ensure_created", lambda: None)
    with pytest.raises(Exception, match="another writer has committed"):
        asleep.upsert_few(one_row(pipeline, pipeline.contract), Progress())
    assert properties(pipeline, "lake") == before
    assert pipeline.alive() == [account(1)]


def test_a_table_whose_last_commit_could_not_be_read_stays(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.land(event("c", 10, after=account(1)))
    pipeline.drain()
    table = pipeline.table()

    def fails(*_: object) -> None:
        raise OSError("S3 does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(HudiTable, "_with_ordered_compactions", fails)
        with pytest.raises(OSError, match="S3 does not answer"):
            table.last_commit()
        with pytest.raises(OSError, match="S3 does not answer"):
            table.upsert_few(table.read().limit(0), Progress())
    written = table.upsert_few(table.read().limit(0), Progress())
    table.close()
    assert written is not None
    assert pipeline.alive() == [account(1)]


def test_a_table_without_a_commit_and_of_another_contract_is_refused(pipeline: Pipeline) -> None:
    made = pipeline.table()
    made._opened()
    made.close()
    pipeline.contract = replace(pipeline.contract, partition_by=())
    pipeline.land(event("c", 10, after=account(1)))
    with pytest.raises(ValueError, match=r"without a commit and with .*month.* Delete the table's folder"):
        pipeline.drain()
    delete_below(pipeline.s3, BUCKET, f"{pipeline.prefix}/lake/accounts/")
    pipeline.drain()
    assert properties(pipeline, "lake")["hoodie.table.partition.fields"] == ""
    assert pipeline.alive() == [account(1)]
