"""Spark jobs on this machine, started by ``spark-submit`` as EMR starts them."""

import importlib.util
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headwater.definitions import spark_settings
from headwater.errors import UserError
from headwater.local import aws, java
from headwater.local.processes import Process, Program
from headwater.packaging import jars
from headwater.paths import BUILD

CORES = 2
DRIVER_MEMORY = "2g"
# Warnings only, since Spark and Hudi log much; a job's events go to standard output.
LOG4J = """rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %p %c{2}: %m%n
"""


def configuration(
    folder: Path, *, endpoint: str | None = None, reader: bool = False, memory: str = DRIVER_MEMORY
) -> dict[str, str]:
    """Return the Spark configuration of a local job.

    ``folder`` takes the warehouse, scratch files and the logging configuration. ``endpoint`` is the local AWS API's
    URL, for ``s3a://`` paths; None where the job reads local files only. ``reader`` chooses Hudi 0.15, with which
    Athena reads, instead of the writer's version. ``memory`` is the driver's heap, in which executors run too, as Spark
    writes sizes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log4j = folder / "spark-log4j2.properties"
    log4j.write_text(LOG4J)
    settings = {
        **spark_settings.shared(),
        **spark_settings.s3a(),
        "spark.driver.memory": memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraClassPath": os.pathsep.join(str(path) for path in driver_jars(reader=reader)),
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log4j.as_uri()} -Duser.timezone=UTC "
        f"-Djava.io.tmpdir={folder} -Dderby.system.home={folder} -XX:+UseParallelGC -XX:TieredStopAtLevel=1"
        " -Dorg.xml.sax.driver=com.sun.org.apache.xerces.internal.parsers.SAXParser",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": str(CORES),
        "spark.default.parallelism": str(CORES),
    }
    if endpoint is not None:
        settings |= {
            "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
            "spark.hadoop.fs.s3a.endpoint": endpoint,
            "spark.hadoop.fs.s3a.endpoint.region": aws.REGION,
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
            "spark.hadoop.fs.s3a.aws.credentials.provider": "com.amazonaws.auth.EnvironmentVariableCredentialsProvider",
        }
    return settings


def driver_jars(*, reader: bool = False) -> list[Path]:
    """Return the jars of the driver's class path, Hudi first. Raises ``UserError`` when one is missing."""
    hudi = [path for path in jars.class_path("spark-reader" if reader else "spark") if path.name.startswith("hudi-")]
    others = [path for path in jars.class_path("spark") if not path.name.startswith("hudi-")]
    return hudi + others


def environment() -> dict[str, str]:
    """Return the environment of a local Spark job: local credentials, and this Python for driver and workers.

    Raises ``UserError`` when PySpark or Java is missing.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise UserError("The package pyspark is not installed: run `make setup`")
    return {
        **aws.environment(),
        "SPARK_HOME": str(Path(spec.origin).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "JAVA_HOME": str(Path(java.java()).resolve().parent.parent),
    }


@dataclass(frozen=True)
class SparkJob:
    """A script with its arguments. ``name`` is what a person calls it, for errors; ``memory`` is the driver's heap."""

    script: Path
    arguments: Sequence[str]
    name: str = "the Spark driver"
    memory: str = DRIVER_MEMORY


def submit(job: SparkJob, folder: Path, endpoint: str) -> Process:
    """Return the process, not yet started, that runs a job by ``spark-submit`` against the AWS API at ``endpoint``.

    Its standard output (the job's events, one JSON object per line) goes to ``events.jsonl`` in ``folder``, its log to
    ``spark.log``. Raises ``UserError`` when the package, PySpark, Java or a jar is missing.
    """
    package = BUILD / "headwater.zip"
    if not package.exists():
        raise UserError(f"{package} is missing: make it with `make assets`")
    settings = configuration(folder.resolve(), endpoint=endpoint, memory=job.memory)
    environ = {**environment(), "AWS_ENDPOINT_URL": endpoint}
    argv = [str(Path(environ["SPARK_HOME"]) / "bin" / "spark-submit"), "--master", f"local[{CORES}]"]
    for key, value in settings.items():
        argv += ["--conf", f"{key}={value}"]
    argv += ["--py-files", str(package), str(job.script), *job.arguments]
    program = Program(
        job.name,
        argv,
        folder / "spark.log",
        stdout_path=folder / "events.jsonl",
        env=environ,
        cwd=folder,
    )
    return Process(program)
