"""The same rows to every reader: Hudi 1.1.1 that wrote them, Hudi 0.15.0 that Athena has, and hudi-rs."""

from __future__ import annotations

import json
import os
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import Any

from headwater.local import spark as local_spark
from tests.lake.pipeline import Pipeline, account, event

READER = """
import json, sys
from pyspark.sql import SparkSession

table = SparkSession.builder.getOrCreate().read.format("hudi").load(sys.argv[1])
print(json.dumps([json.loads(row) for row in table.orderBy("id", "month").toJSON().collect()]))
"""


def without_nulls(row: dict[str, object]) -> Any:
    """A row as JSON tells it: Spark leaves nulls out, and has no other form of a decimal than a number."""
    return plain({name: row[name] for name in row if not name.startswith("_hoodie") and name != "_source_ts"})


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return float(value) if isinstance(value, Decimal) else value


def test_three_readers_see_the_same_rows(pipeline: Pipeline, endpoint: str, tmp_path: Path) -> None:
    pipeline.land(*(event("c", 10 + number, after=account(number)) for number in range(20)))
    pipeline.drain()
    pipeline.land(
        *(event("u", 100 + number, account(number), account(number, name="Bea")) for number in range(5)),
        event("d", 120, before=account(7)),
        event("u", 130, account(8), account(8, month="2024-02", balance="2.75")),
    )
    pipeline.drain()
    # An older delete after a newer row must not win, in a log file as little as in a base file.
    pipeline.land(event("d", 50, before=account(0)))
    pipeline.drain()
    by_rust = [without_nulls(row) for row in pipeline.stored()]
    written = pipeline.spark.read.format("hudi").load(f"{pipeline.lake}/accounts").orderBy("id", "month")
    by_writer = [without_nulls(json.loads(row)) for row in written.toJSON().collect()]
    by_athenas = [without_nulls(row) for row in read_by_hudi_015(f"{pipeline.lake}/accounts", endpoint, tmp_path)]
    assert by_writer == by_rust
    assert by_athenas == by_rust
    assert len(by_rust) == 21
    assert by_rust[0]["name"] == "Bea"


def read_by_hudi_015(uri: str, endpoint: str, folder: Path) -> list[dict[str, object]]:
    script = folder / "reader.py"
    script.write_text(READER)
    environment = local_spark.environment()
    argv = [str(Path(environment["SPARK_HOME"]) / "bin" / "spark-submit"), "--master", "local[1]"]
    for name, value in local_spark.configuration(folder / "spark", endpoint=endpoint, reader=True).items():
        argv += ["--conf", f"{name}={value}"]
    # A driver that this process started would be taken for its own by the new one.
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
    done = subprocess.run(
        [*argv, str(script), uri], env={**clean, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    rows: list[dict[str, object]] = json.loads(done.stdout.splitlines()[-1])
    return rows
