"""What each reader sees of a Hudi table: Hudi 1.1.1 that wrote it, Hudi 0.15.0 that Athena has, and hudi-rs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from rig.local import spark as local_spark
from tests.lake.pipeline import Pipeline

# A line with the tables' URIs comes in, one with their rows goes out.
_READER = """
import json, sys
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[1]")
for name, value in json.loads(sys.argv[1]).items():
    builder = builder.config(name, value)
session = builder.getOrCreate()
for line in sys.stdin:
    tables = [session.read.format("hudi").load(uri).orderBy("id", "month").toJSON() for uri in json.loads(line)]
    print(json.dumps([[json.loads(row) for row in table.collect()] for table in tables]), flush=True)
"""


class Hudi015:
    """Hudi 0.15.0 in a Spark of its own, which starts with the first table to read and serves a session. ``folder``
    takes what it needs."""

    def __init__(self, endpoint: str, folder: Path) -> None:
        self._settings = local_spark.configuration(folder / "spark", endpoint=endpoint, reader=True)
        self._log = folder / "spark.log"
        self._process: subprocess.Popen[str] | None = None

    def read(self, uris: Sequence[str]) -> list[list[dict[str, Any]]]:
        """All rows of each table, tombstones included, in ``comparable`` form, by id and month."""
        process = self._process = self._process or self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        print(json.dumps(list(uris)), file=process.stdin, flush=True)
        # Hudi prints warnings there too.
        answer = next((line for line in process.stdout if line.startswith("[[")), None)
        if answer is None:
            self.close()
        assert answer is not None, self._log.read_text()[-3000:]
        return [[comparable(row) for row in rows] for rows in json.loads(answer)]

    def close(self) -> None:
        """End it; it starts again with the next table."""
        process, self._process = self._process, None
        if process is not None:
            process.communicate()

    def _started(self) -> subprocess.Popen[str]:
        argv = [sys.executable, "-c", _READER, json.dumps(self._settings)]
        with self._log.open("a") as log:
            return subprocess.Popen(
                argv, env=_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )


def assert_same_to_every_reader(pipeline: Pipeline, hudi_015: Hudi015) -> None:
    """All three readers see the same rows of the pipeline's table."""
    uri = f"{pipeline.lake}/accounts"
    by_rust = [comparable(row) for row in pipeline.stored()]
    assert read_by_writer(pipeline.spark, uri) == by_rust
    assert hudi_015.read([uri]) == [by_rust]


def read_by_writer(spark: SparkSession, uri: str) -> list[dict[str, Any]]:
    """All rows, tombstones included, in ``comparable`` form, by id and month."""
    rows = spark.read.format("hudi").load(uri).orderBy("id", "month").toJSON().collect()
    return [comparable(json.loads(row)) for row in rows]


def spark_submit(
    script: str,
    arguments: Sequence[str],
    endpoint: str,
    folder: Path,
    *,
    reader: bool = False,
    jars: Sequence[Path] = (),
) -> str:
    """The output of a script in a Spark of its own. A ``reader`` has Hudi 0.15.0. ``jars`` come behind the driver's
    own."""
    path = folder / "script.py"
    path.write_text(script)
    environment = _environment()
    argv = [str(Path(environment["SPARK_HOME"]) / "bin" / "spark-submit"), "--master", "local[1]"]
    settings = local_spark.configuration(folder / "spark", endpoint=endpoint, reader=reader)
    class_path = [settings["spark.driver.extraClassPath"], *map(str, jars)]
    settings["spark.driver.extraClassPath"] = os.pathsep.join(class_path)
    for name, value in settings.items():
        argv += ["--conf", f"{name}={value}"]
    done = subprocess.run([*argv, str(path), *arguments], env=environment, capture_output=True, text=True, check=False)
    # Python's own errors are among what it prints.
    assert done.returncode == 0, f"{done.stderr[-1000:]}\n{done.stdout[-3000:]}"
    return done.stdout


def _environment() -> dict[str, str]:
    """The environment of a Spark of its own, without variables that would lead it to this process's driver."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
    return {**clean, **local_spark.environment()}


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
