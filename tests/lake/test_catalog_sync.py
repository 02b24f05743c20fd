"""The catalog's tables are those that Hudi's own sync registers, but for the differences that are listed here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headwater.contract.model import Contract
from headwater.contract.reading import parse_contract, read_contracts
from headwater.definitions.glue_table import table_input
from headwater.lake.base.progress import Progress
from headwater.lake.table.hudi_table import HudiTable
from headwater.lake_folder import EXAMPLE
from headwater.packaging import jars
from rig.local.aws import REGION, AwsApi
from tests.lake.pipeline import BUCKET
from tests.lake.readers import spark_submit

SYNC = """
import json, sys
from concurrent.futures import ThreadPoolExecutor
from pyspark.sql import SparkSession

session = SparkSession.builder.getOrCreate()
configuration = session.sparkContext._jsc.hadoopConfiguration()


def sync(table):
    properties = session._jvm.java.util.Properties()
    for name, value in table.items():
        properties.setProperty(name, value)
    tool = session._jvm.org.apache.hudi.aws.sync.AwsGlueCatalogSyncTool(properties, configuration)
    tool.syncHoodieTable()
    tool.close()


# At once: AWS's client rests for two seconds before it is closed.
with ThreadPoolExecutor() as pool:
    list(pool.map(sync, json.loads(sys.argv[1])))
"""

# What only the contract's table has, and why.
OURS = {
    # Athena's reader of Hudi 0.15, where its default is 0.14.
    "athena_enable_native_hudi_connector_implementation": "true",
    # How Glue's own crawlers and jobs tell a Hudi table.
    "classification": "hudi",
}
# What only Hudi's table has, and why.
THEIRS = {
    # Where the sync took up again; nothing reads it but the sync, which does not run here.
    "last_commit_time_sync",
    "last_commit_completion_time_sync",
}


LAKE = f"s3://{BUCKET}/catalog-sync"
DATABASE = "catalog_sync"
# The project's, and one with types that those do not use.
TABLES = {contract.table: contract for contract in read_contracts(EXAMPLE.contracts)} | {
    "visits": parse_contract(
        """
        table: visits
        description: A table of the tests.
        source: {database: postgresql, table: shop.visits}
        key: [id]
        partition_by: [country]
        buckets: 1
        columns:
          - {name: id, type: bigint, source_type: bigint}
          - {name: country, type: string, source_type: text}
          - {name: day, type: date, source_type: date}
          - {name: photo, type: binary, source_type: bytea}
          - {name: seen, type: boolean, source_type: boolean}
          - {name: length, type: double, source_type: double precision}
          - {name: steps, type: "array<array<int>>", from: payload.steps}
        """,
        "visits.yaml",
    )
}


@pytest.fixture(scope="module")
def registered(
    spark: SparkSession, endpoint: str, aws_api: AwsApi, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """The catalog entry that Hudi's sync makes for each table, after one row was written to it."""
    for contract in TABLES.values():
        HudiTable(spark, contract, LAKE, 1).insert(one_row(spark, contract), Progress())
    glue = aws_api.client("glue")
    glue.create_database(DatabaseInput={"Name": DATABASE})
    sync(list(TABLES.values()), aws_api, tmp_path_factory.mktemp("sync"))
    return {name: glue.get_table(DatabaseName=DATABASE, Name=name)["Table"] for name in TABLES}


@pytest.mark.parametrize("name", TABLES)
def test_a_contracts_table_is_what_hudis_own_sync_registers(registered: dict[str, dict[str, Any]], name: str) -> None:
    theirs = registered[name]
    ours = table_input(TABLES[name], f"{LAKE}/{name}")
    assert columns(ours) == columns(theirs)
    assert [named(key) for key in ours["PartitionKeys"]] == [named(key) for key in theirs["PartitionKeys"]]
    assert ours["TableType"] == theirs["TableType"]
    for field in ("Location", "InputFormat", "OutputFormat"):
        assert ours["StorageDescriptor"][field] == theirs["StorageDescriptor"][field].replace("s3a://", "s3://"), field
    assert serde(ours) == serde(theirs)
    mine, hudis = dict(ours["Parameters"]), dict(theirs["Parameters"])
    assert spark_schema(mine) == spark_schema(hudis)
    assert {key: value for key, value in hudis.items() if mine.get(key) != value}.keys() <= THEIRS
    assert {key: value for key, value in mine.items() if key not in hudis} == OURS


def one_row(spark: SparkSession, contract: Contract) -> Any:
    """A row of a table with nothing but its key and its partition. Every column may be null, as a batch's may."""
    year = F.col("year")
    known = {*contract.key, *contract.partition_by, "_key", "_order"}
    return spark.createDataFrame([("2024",)], "year string").select(
        [
            (year if name in known else F.lit(None)).cast(type_.ddl()).alias(name)
            for name, type_ in contract.lake_columns()
        ]
    )


def sync(tables: Sequence[Contract], aws_api: AwsApi, folder: Path) -> None:
    """Run Hudi's AwsGlueCatalogSyncTool over tables."""
    properties = [
        {
            "hoodie.datasource.meta.sync.base.path": f"{LAKE}/{contract.table}",
            "hoodie.datasource.hive_sync.database": DATABASE,
            "hoodie.datasource.hive_sync.table": contract.table,
            "hoodie.datasource.hive_sync.partition_fields": ",".join(contract.partition_by),
            "hoodie.datasource.hive_sync.partition_extractor_class": "org.apache.hudi.hive."
            + ("MultiPartKeysValueExtractor" if contract.partition_by else "NonPartitionedExtractor"),
            "hoodie.datasource.hive_sync.support_timestamp": "true",
            # Of the tables that it makes, the one with every change in it.
            "hoodie.datasource.hive_sync.table.strategy": "RT",
            "hoodie.aws.glue.endpoint": aws_api.endpoint,
            "hoodie.aws.glue.region": REGION,
        }
        for contract in tables
    ]
    spark_submit(
        SYNC, [json.dumps(properties)], aws_api.s3_endpoint, folder, reader=True, jars=jars.class_path("hudi-sync")
    )


def named(column: dict[str, Any]) -> dict[str, str]:
    """A column without what it means, which Hudi's sync does not know."""
    return {"Name": column["Name"], "Type": column["Type"]}


def columns(table: dict[str, Any]) -> list[dict[str, str]]:
    return [named(column) for column in table["StorageDescriptor"]["Columns"]]


def serde(table: dict[str, Any]) -> tuple[str, dict[str, str]]:
    info = table["StorageDescriptor"]["SerdeInfo"]
    parameters = {name: value.replace("s3a://", "s3://") for name, value in info["Parameters"].items()}
    return info["SerializationLibrary"], parameters


def spark_schema(properties: dict[str, str]) -> Any:
    """Take the schema that Spark reads, split as it is, out of a table's properties, without what columns mean."""
    name = "spark.sql.sources.schema"
    count = int(properties.pop(f"{name}.numParts"))
    schema = json.loads("".join(properties.pop(f"{name}.part.{index}") for index in range(count)))
    for field in schema["fields"]:
        field["metadata"].pop("comment", None)
    return schema
