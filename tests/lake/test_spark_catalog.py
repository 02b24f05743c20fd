"""Spark, with the entries that a deployment makes in the catalog, answers as Athena does.

Its metastore is Hive's own, into which the entries are put as EMR's client of the Glue Data Catalog hands them on.
"""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from pathlib import Path
from random import Random

from headwater.contract.model import Contract, History, lake_tables
from headwater.contract.reading import read_contracts
from headwater.definitions.glue_table import table_input
from headwater.definitions.history_queries import history_views
from headwater.definitions.published_view import published_view
from headwater.lake.base.progress import Progress
from headwater.lake.table.hudi_table import HudiTable
from headwater.lake_folder import EXAMPLE
from tests.history_analyst import DATABASE, Analyst
from tests.lake.pipeline import Pipeline
from tests.lake.readers import spark_submit
from tests.lake.test_catalog_sync import one_row
from tests.lake.test_change_history import Source, land, read_history, with_history

_AT = "date_format({0}, 'yyyy-MM-dd HH:mm:ss.SSS') AS _{0}"
QUERIES = {
    "table": "SELECT id FROM lake.accounts",
    "current": "SELECT id, month, name FROM lake.accounts_current ORDER BY id",
    "versions": "SELECT id, name, _op, _valid_from, _valid_to FROM (SELECT *, "
    f"{_AT.format('valid_from')}, {_AT.format('valid_to')} FROM lake.accounts_versions) ORDER BY id, _order",
    "span": f"SELECT {_AT.format('begins')}, {_AT.format('complete_until')} FROM lake.accounts_history",
    "comments": "DESCRIBE lake.accounts",
    "comments of the view": "DESCRIBE lake.accounts_current",
    # Nested and binary columns, and the span of a history whose shards end.
    "nested": "SELECT order_id, items, customer.city FROM lake.orders_current",
    "items": "SELECT id, address, avatar, limits FROM lake.carts_current",
    "span of shards": "SELECT begins, complete_until FROM lake.carts_history",
}
# Fields of Hive's Thrift objects that are lists or maps are given to their constructors.
_SCRIPT = """
import json, sys
from pyspark.sql import SparkSession

entries, queries = json.loads(open(sys.argv[1]).read())
spark = SparkSession.builder.enableHiveSupport().getOrCreate()
jvm = spark._jvm
api = jvm.org.apache.hadoop.hive.metastore.api
spark.sql("CREATE DATABASE lake")
conf = jvm.org.apache.hadoop.hive.conf.HiveConf(spark._jsc.hadoopConfiguration(), spark._jsparkSession.getClass())
hive = jvm.org.apache.hadoop.hive.metastore.HiveMetaStoreClient(conf)


def columns(given):
    made = jvm.java.util.ArrayList()
    for column in given:
        made.add(api.FieldSchema(column["Name"], column["Type"], column.get("Comment")))
    return made


for entry in entries:
    given = entry["StorageDescriptor"]
    table, storage, serde = api.Table(), api.StorageDescriptor(), api.SerDeInfo()
    serde.setSerializationLib(given["SerdeInfo"].get("SerializationLibrary"))
    serde.setParameters(given["SerdeInfo"].get("Parameters", {}))
    storage.setCols(columns(given["Columns"]))
    # Those that AWS's client of the Glue Data Catalog hands on as they are.
    if "Location" in given:
        storage.setLocation(given["Location"].replace("s3://", "s3a://"))
    storage.setInputFormat(given.get("InputFormat"))
    storage.setOutputFormat(given.get("OutputFormat"))
    storage.setSerdeInfo(serde)
    table.setDbName("lake")
    table.setTableName(entry["Name"])
    table.setTableType(entry["TableType"])
    table.setParameters(entry["Parameters"])
    table.setPartitionKeys(columns(entry["PartitionKeys"]))
    table.setViewOriginalText(entry.get("ViewOriginalText"))
    table.setViewExpandedText(entry.get("ViewExpandedText"))
    table.setSd(storage)
    hive.createTable(table)
print(json.dumps({name: [list(row) for row in spark.sql(query).collect()] for name, query in queries.items()}))
"""


def test_spark_has_the_tables_views_and_comments_of_the_catalog(
    pipeline: Pipeline, endpoint: str, tmp_path: Path
) -> None:
    source = Source(Random(3))
    source.state = {1: ("2024-01", "Ann"), 2: ("2024-02", "Bea")}
    source.snapshot()
    for _ in range(30):
        source.happens()
    source._put("c", 500, ("2024-02", "Cleo"))
    source._record("d", before=source._image(500))
    source._gone(500)
    land(pipeline, source)
    pipeline.drain()
    contract = with_history(pipeline, keep_days=60)
    pipeline.drain()
    shipped = {contract.table: contract for contract in read_contracts(EXAMPLE.contracts)}
    carts = replace(shipped["accounts"], table="carts", history=History(3))
    others = [shipped["orders"], carts]
    for table in lake_tables(others):
        HudiTable(pipeline.spark, table, pipeline.lake, 1).insert(one_row(pipeline.spark, table), Progress())
    found = ask_spark([contract, *others], pipeline.lake, endpoint, tmp_path)
    assert found["nested"] == [[2024, None, None]]
    assert found["items"] == [["2024", None, None, None]]
    assert found["span of shards"] == [[None, None]]
    current = [[id_, month, name] for id_, (month, name) in sorted(source.state.items())]
    assert found["current"] == current
    assert [500] in found["table"]
    analyst = Analyst(contract, read_history(pipeline))
    versions = f"SELECT id, name, _op, valid_from, valid_to FROM {DATABASE}.accounts_versions ORDER BY id, _order"
    expected = analyst.connection.execute(versions).fetchall()
    assert found["versions"] == [[*row[:3], written(row[3]), written(row[4])] for row in expected]
    assert found["span"] == [[written(at) for at in analyst.span()]]
    comments = {name: comment for name, _, comment in found["comments"]}
    assert comments["_deleted"] == "Whether the row is deleted; views leave it out"
    assert {name: comment for name, _, comment in found["comments of the view"]}["_source_ts"] == comments["_source_ts"]


def written(at: dt.datetime | None) -> str | None:
    """An instant as the queries write it."""
    return None if at is None else at.replace(tzinfo=None).isoformat(" ", "milliseconds")


def ask_spark(contracts: list[Contract], lake: str, endpoint: str, folder: Path) -> dict[str, list[list[object]]]:
    """Spark's answers to the queries."""
    entries = [table_input(table, f"{lake}/{table.table}") for table in lake_tables(contracts)]
    for contract in contracts:
        views = (published_view(contract, DATABASE), *history_views(contract, DATABASE))
        entries += [view.table_input(DATABASE) for view in views]
    asked = folder / "asked.json"
    asked.write_text(json.dumps([entries, QUERIES]))
    answers: dict[str, list[list[object]]] = json.loads(
        spark_submit(_SCRIPT, [str(asked)], endpoint, folder).splitlines()[-1]
    )
    return answers
