"""A table's first commit, in the driver: it makes the table that Spark would make."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame

from headwater.contract.model import Contract
from headwater.lake.progress import Progress
from headwater.lake.table import HudiTable
from tests.lake.pipeline import BUCKET, Pipeline, account, event

PROPERTIES = ".hoodie/hoodie.properties"


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


def first_schema(pipeline: Pipeline, folder: str) -> Any:
    prefix = f"{pipeline.prefix}/{folder}/accounts/"
    listed = pipeline.s3.list_objects_v2(Bucket=BUCKET, Prefix=f"{prefix}.hoodie/2")["Contents"]
    (name,) = (entry["Key"].removeprefix(prefix) for entry in listed if entry["Key"].endswith("commit"))
    return json.loads(read(pipeline, folder, name))["extraMetadata"]["schema"]


@pytest.mark.parametrize("partitions", [("month",), ()])
def test_the_driver_makes_the_table_that_spark_makes(pipeline: Pipeline, partitions: tuple[str, ...]) -> None:
    contract = replace(pipeline.contract, partition_by=partitions)
    rows = one_row(pipeline, contract)
    for folder in ("spark", "driver"):
        table = HudiTable(pipeline.spark, contract, f"s3://{BUCKET}/{pipeline.prefix}/{folder}", 2)
        written = table.insert(rows, Progress()) if folder == "spark" else table.upsert_few(rows, Progress())
        assert written is not None
        assert table.last_commit() == written
        assert table.read().count() == 1
        table.close()
    assert properties(pipeline, "driver") == properties(pipeline, "spark")
    assert first_schema(pipeline, "driver") == first_schema(pipeline, "spark")


def test_few_first_changes_take_no_job_of_spark(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    def insert(*_: object) -> None:
        raise AssertionError("a job of Spark")

    monkeypatch.setattr(HudiTable, "insert", insert)
    monkeypatch.setattr(HudiTable, "upsert_few", insert)
    pipeline.land(*(event("r", 10 + id_, after=account(id_), snapshot="true") for id_ in range(3)), event("t", 20))
    pipeline.land(event("c", 30, after=account(1)))
    pipeline.drain()
    assert pipeline.alive() == [account(1)]


def test_a_table_without_a_commit_follows_its_contract(pipeline: Pipeline) -> None:
    made = pipeline.table()
    made._opened()
    made.close()
    assert properties(pipeline, "lake")["hoodie.table.partition.fields"] == "month"
    pipeline.contract = replace(pipeline.contract, partition_by=())
    pipeline.land(event("c", 10, after=account(1)))
    pipeline.drain()
    assert properties(pipeline, "lake")["hoodie.table.partition.fields"] == ""
    assert pipeline.alive() == [account(1)]
