"""The catalog's table is the one that Hudi's own sync registers, but for the differences that are listed here."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from headwater import jars
from headwater.glue_table import table_input
from headwater.local import spark as local_spark
from headwater.local.aws import REGION
from tests.lake.pipeline import Pipeline, account, event

SYNC = """
import json, sys
from pyspark.sql import SparkSession

session = SparkSession.builder.getOrCreate()
properties = session._jvm.java.util.Properties()
for name, value in json.loads(sys.argv[1]).items():
    properties.setProperty(name, value)
configuration = session.sparkContext._jsc.hadoopConfiguration()
tool = session._jvm.org.apache.hudi.aws.sync.AwsGlueCatalogSyncTool(properties, configuration)
tool.syncHoodieTable()
tool.close()
"""

# What the contract's table has and Hudi's has not, and why.
OURS = {
    # Athena's reader of Hudi 0.15, where its default is 0.14.
    "athena_enable_native_hudi_connector_implementation": "true",
    # How Glue's own crawlers and jobs tell a Hudi table.
    "classification": "hudi",
}
# What Hudi's table has and the contract's has not, and why.
THEIRS = {
    # Where the sync took up again; nothing reads it but the sync, which does not run here.
    "last_commit_time_sync",
    "last_commit_completion_time_sync",
}


def test_the_contracts_table_is_what_hudis_own_sync_registers(
    pipeline: Pipeline, endpoint: str, tmp_path: Path
) -> None:
    pipeline.land(event("c", 10, after=account(1)), event("c", 11, after=account(2, month="2024-02")))
    pipeline.drain()
    uri = f"{pipeline.lake}/accounts"
    database = f"{pipeline.database}_sync"
    pipeline.glue.create_database(DatabaseInput={"Name": database})
    sync(uri, database, pipeline.contract.partition_by, endpoint, tmp_path)

    # Of the three tables that it makes, this is the one with every change in it.
    theirs = pipeline.glue.get_table(DatabaseName=database, Name="accounts_rt")["Table"]
    ours = table_input(pipeline.contract, uri)
    assert columns(ours) == columns(theirs)
    assert ours["PartitionKeys"] == [named(one) for one in theirs["PartitionKeys"]]
    assert ours["TableType"] == theirs["TableType"]
    for field in ("Location", "InputFormat", "OutputFormat"):
        assert ours["StorageDescriptor"][field] == theirs["StorageDescriptor"][field].replace("s3a://", "s3://"), field
    assert serde(ours) == serde(theirs)
    properties = dict(theirs["Parameters"])
    assert set(properties) - set(ours["Parameters"]) <= THEIRS
    assert {name: value for name, value in ours["Parameters"].items() if name not in properties} == OURS
    for name, value in properties.items():
        if name not in THEIRS:
            assert schema(ours["Parameters"][name]) == schema(value), name


def sync(uri: str, database: str, partition_by: tuple[str, ...], endpoint: str, folder: Path) -> None:
    """Run Hudi's AwsGlueCatalogSyncTool over a table."""
    script = folder / "sync.py"
    script.write_text(SYNC)
    properties = {
        "hoodie.datasource.meta.sync.base.path": uri,
        "hoodie.datasource.hive_sync.database": database,
        "hoodie.datasource.hive_sync.table": "accounts",
        "hoodie.datasource.hive_sync.partition_fields": ",".join(partition_by),
        "hoodie.datasource.hive_sync.partition_extractor_class": "org.apache.hudi.hive.MultiPartKeysValueExtractor",
        "hoodie.datasource.hive_sync.support_timestamp": "true",
        "hoodie.aws.glue.endpoint": endpoint,
        "hoodie.aws.glue.region": REGION,
    }
    environment = local_spark.environment()
    argv = [str(Path(environment["SPARK_HOME"]) / "bin" / "spark-submit"), "--master", "local[1]"]
    settings = local_spark.configuration(folder / "spark", endpoint=endpoint, reader=True)
    class_path = [settings["spark.driver.extraClassPath"], *map(str, jars.class_path("hudi-sync"))]
    settings["spark.driver.extraClassPath"] = os.pathsep.join(class_path)
    for name, value in settings.items():
        argv += ["--conf", f"{name}={value}"]
    # A driver that this process started would be taken for its own by the new one.
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
    done = subprocess.run(
        [*argv, str(script), json.dumps(properties)],
        env={**clean, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]


def named(column: dict[str, Any]) -> dict[str, str]:
    return {"Name": column["Name"], "Type": column["Type"]}


def columns(table: dict[str, Any]) -> list[dict[str, str]]:
    return [named(column) for column in table["StorageDescriptor"]["Columns"]]


def serde(table: dict[str, Any]) -> tuple[str, dict[str, str]]:
    found = table["StorageDescriptor"]["SerdeInfo"]
    parameters = {name: value.replace("s3a://", "s3://") for name, value in found["Parameters"].items()}
    return found["SerializationLibrary"], parameters


def schema(text: str) -> Any:
    """A property as JSON where it is that: the order of keys means nothing."""
    try:
        return json.loads(text)
    except ValueError:
        return text
