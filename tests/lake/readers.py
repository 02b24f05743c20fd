"""What each reader sees of a Hudi table: Hudi 1.1.1 that wrote it, Hudi 0.15.0 that Athena has, and hudi-rs."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from headwater.local import spark as local_spark
from tests.lake.pipeline import Pipeline

_READER = """
import json, sys
from pyspark.sql import SparkSession

for uri in sys.argv[1:]:
    table = SparkSession.builder.getOrCreate().read.format("hudi").load(uri)
    print(json.dumps([json.loads(row) for row in table.orderBy("id", "month").toJSON().collect()]))
"""


def assert_same_to_every_reader(pipeline: Pipeline, endpoint: str, folder: Path) -> None:
    """All three readers see the same rows of the pipeline's table. ``folder`` takes what Hudi 0.15.0 needs."""
    uri = f"{pipeline.lake}/accounts"
    by_rust = [comparable(row) for row in pipeline.stored()]
    assert read_by_writer(pipeline.spark, uri) == by_rust
    assert read_by_hudi_015([uri], endpoint, folder) == [by_rust]


def read_by_writer(spark: SparkSession, uri: str) -> list[dict[str, Any]]:
    """All rows, tombstones included, in ``comparable`` form, by id and month."""
    rows = spark.read.format("hudi").load(uri).orderBy("id", "month").toJSON().collect()
    return [comparable(json.loads(row)) for row in rows]


def read_by_hudi_015(uris: Sequence[str], endpoint: str, folder: Path) -> list[list[dict[str, Any]]]:
    """The same of several tables, by a Spark of its own."""
    printed = spark_submit(_READER, uris, endpoint, folder, reader=True)
    # Hudi prints warnings there too, between the tables.
    tables = [json.loads(line) for line in printed.splitlines() if line.startswith("[")]
    assert len(tables) == len(uris), printed[-3000:]
    return [[comparable(row) for row in rows] for rows in tables]


def spark_submit(
    script: str,
    arguments: Sequence[str],
    endpoint: str,
    folder: Path,
    *,
    reader: bool = False,
    jars: Sequence[Path] = (),
) -> str:
    """What a script prints that a Spark of its own runs: Hudi 0.15.0's where it is to be the ``reader``. ``jars`` come
    behind the driver's own."""
    path = folder / "script.py"
    path.write_text(script)
    environment = local_spark.environment()
    argv = [str(Path(environment["SPARK_HOME"]) / "bin" / "spark-submit"), "--master", "local[1]"]
    settings = local_spark.configuration(folder / "spark", endpoint=endpoint, reader=reader)
    class_path = [settings["spark.driver.extraClassPath"], *map(str, jars)]
    settings["spark.driver.extraClassPath"] = os.pathsep.join(class_path)
    for name, value in settings.items():
        argv += ["--conf", f"{name}={value}"]
    # A driver that this process started would be taken for its own by the new one.
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
    done = subprocess.run(
        [*argv, str(path), *arguments], env={**clean, **environment}, capture_output=True, text=True, check=False
    )
    # Python's own errors are among what it prints.
    assert done.returncode == 0, f"{done.stderr[-1000:]}\n{done.stdout[-3000:]}"
    return done.stdout


def comparable(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as JSON tells it: Spark leaves nulls out, and has no other form of a decimal than a number. Dates are
    text, and Hudi's own columns and the time of the change are left out."""
    plain: dict[str, Any] = _plain(
        {name: row[name] for name in row if not name.startswith("_hoodie") and name != "_source_ts"}
    )
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return float(value) if isinstance(value, Decimal) else value
