"""Spark jobs on this machine, started by ``spark-submit`` as EMR starts them."""

import os
import platform
import secrets
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headwater.console import say
from headwater.definitions import spark_settings
from headwater.errors import UserError
from headwater.packaging import class_archive, jars, jdk, python_archives, wheels
from headwater.paths import BUILD
from headwater.private_files import make_private
from rig.local import aws
from rig.local.processes import Process, Program

CORES = 2
DRIVER_MEMORY = "2g"
_EXECUTOR_MIB = 1024
# Log only warnings, because Spark and Hudi log much; a job's events go to standard output. S3A of Hadoop 3.3.6 warns
# about each object that it writes.
LOG4J = """rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %p %c{2}: %m%n
logger.statistics.name = org.apache.hadoop.fs.s3a.S3AInstrumentation
logger.statistics.level = error
"""


def configuration(
    folder: Path,
    *,
    endpoint: str | None = None,
    reader: bool = False,
    memory: str = DRIVER_MEMORY,
    optimized: bool = False,
    shared: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the Spark configuration of a local job.

    ``folder`` takes the warehouse, scratch files and the logging configuration. ``endpoint`` is the local object
    store's URL, for ``s3a://`` paths; None if the job reads local files only. ``reader`` chooses Hudi 0.15, with which
    Athena reads, instead of the writer's version.

    ``memory`` is the driver's heap in Spark's notation; executors run in it too. ``optimized`` lets Java compile as on
    a cluster, which is worth it for a job of minutes. ``shared`` replaces the settings that Headwater's jobs share.
    """
    make_private(folder)
    log4j = folder / "spark-log4j2.properties"
    log4j.write_text(LOG4J)
    settings = {
        **(spark_settings.shared() if shared is None else shared),
        "spark.driver.memory": memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraClassPath": os.pathsep.join(str(path) for path in driver_jars(reader=reader)),
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log4j.as_uri()} -Duser.timezone=UTC "
        f"-Djava.io.tmpdir={folder} -Dderby.system.home={folder}"
        # With Java's default sizes, garbage collections take a sixth of a driver's CPU time.
        " -XX:+UseSerialGC -XX:NewSize=256m -XX:MetaspaceSize=192m"
        # With only the first compiler, Java keeps 48 MB of compiled code. A driver that runs for minutes has more. It
        # would spend a tenth of its CPU time on discarding code, and more on compiling it again.
        f"{'' if optimized else ' -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m'}"
        " -Dorg.xml.sax.driver=com.sun.org.apache.xerces.internal.parsers.SAXParser"
        # Hudi measures the sizes of objects by JOL, which first tries for seconds to attach to its own JVM, in vain.
        " -Djol.skipDynamicAttach=true -Djol.skipHotspotSAAttach=true " + " ".join(class_archive.flags()),
        "spark.ui.enabled": "false",
        # Otherwise any client that reaches Spark's ports can read the data that tasks exchange. A job on one machine
        # makes its own secret.
        "spark.authenticate": "true",
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
            # One hash of an object's content, instead of a signature of each of its chunks.
            "spark.hadoop.fs.s3a.s3.signing-algorithm": "AWS4UnsignedPayloadSignerType",
            "spark.hadoop.fs.s3a.aws.credentials.provider": "com.amazonaws.auth.EnvironmentVariableCredentialsProvider",
        }
    return settings


def driver_jars(*, reader: bool = False) -> list[Path]:
    """Return the jars of the driver's class path, with Hudi last, as on a cluster.

    Raises ``UserError`` if one is missing.
    """
    ours = [] if reader else [BUILD / "lake_jvm" / "headwater-lake.jar"]
    return class_archive.class_path() + hudi_jars(reader=reader) + ours


def hudi_jars(*, reader: bool = False) -> list[Path]:
    """Return Hudi's jars: the writer's version, or with ``reader`` the version that Athena reads with."""
    return [path for path in jars.class_path("spark-reader" if reader else "spark") if path.name.startswith("hudi-")]


def environment() -> dict[str, str]:
    """Return a local Spark job's variables besides AWS's: the paths of Spark, Java and this Python.

    Raises ``UserError`` if PySpark or Java is missing.
    """
    return {
        "SPARK_HOME": str(class_archive.spark_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "JAVA_HOME": str(Path(jdk.java()).resolve().parent.parent),
    }


def shipped_python() -> dict[str, str]:
    """The variables that make a job run the Python packages of EMR's nodes, and no package of this machine.

    The archives are for Linux, and need Python 3.11. On other machines there are no variables: a line on the console
    says why, and the job runs the packages of this environment. Raises UserError if the archive is missing.
    """
    machine = {"arm64": wheels.AARCH64}.get(platform.machine(), platform.machine())
    python = _python() if sys.platform == "linux" and machine in wheels.PLATFORMS else None
    if python is None:
        say(
            f"The job runs the packages of {sys.executable} instead of EMR's, which need Linux on "
            f"{' or '.join(wheels.PLATFORMS)}, and python{wheels.PYTHON} on the PATH"
        )
        return {}
    if not python_archives.path(machine).exists():
        raise UserError(f"{python_archives.path(machine)} is missing: make it with `headwater dev assets`")
    launcher = str(python_archives.unpack(machine))
    return {
        "PYSPARK_PYTHON": launcher,
        "PYSPARK_DRIVER_PYTHON": launcher,
        # Where the launcher finds its Python: the one from which .venv was made, or the first on the PATH.
        "PATH": os.pathsep.join([str(python.parent), os.environ["PATH"]]),
    }


def _python() -> Path | None:
    """This machine's Python of the nodes' version, outside any virtual environment; None if there is none."""
    name = f"python{wheels.PYTHON}"
    candidates = [Path(sys.base_prefix) / "bin" / name, *map(Path, filter(None, [shutil.which(name)]))]
    return next((candidate for candidate in candidates if candidate.exists()), None)


@dataclass(frozen=True)
class SparkJob:
    """A PySpark script to submit, with its settings."""

    script: Path
    arguments: Sequence[str]
    """The arguments of the script."""
    name: str = "the Spark driver"
    """The job's name in errors."""
    memory: str = DRIVER_MEMORY
    """The driver's heap."""
    optimized: bool = False
    """As in ``configuration``."""
    shared: Mapping[str, str] | None = None
    """As in ``configuration``."""
    jars: Sequence[Path] = ()
    """Jars that replace Hudi's and ours."""
    executors: int = 0
    """How many executors run in their own processes, with one core each; with 0 the driver runs all tasks."""
    events: Path | None = None
    """The folder of Spark's own event log; None writes no log."""


def submit(job: SparkJob, folder: Path, api: aws.AwsApi) -> Process:
    """Return the process, not yet started, that runs a job by ``spark-submit`` against a local AWS API.

    Its standard output (the job's events, one JSON object per line) goes to ``events.jsonl`` in ``folder``, its log to
    ``spark.log``. Raises ``UserError`` if the package, PySpark, Java or a jar is missing.
    """
    package = BUILD / "headwater.zip"
    if not package.exists():
        raise UserError(f"{package} is missing: make it with `headwater dev assets`")
    settings = configuration(
        folder.resolve(), endpoint=api.s3_endpoint, memory=job.memory, optimized=job.optimized, shared=job.shared
    )
    # The job's own jars come after the archive's, instead of Hudi's and ours.
    if job.jars:
        class_path = class_archive.class_path() + list(job.jars)
        settings["spark.driver.extraClassPath"] = os.pathsep.join(str(path) for path in class_path)
    master = f"local[{CORES}]"
    # Executors run in their own processes, so they need the driver's class path, and a secret to talk to it.
    if job.executors:
        master = f"local-cluster[{job.executors},1,{_EXECUTOR_MIB}]"
        settings |= {
            "spark.executor.memory": f"{_EXECUTOR_MIB}m",
            "spark.executor.extraClassPath": settings["spark.driver.extraClassPath"],
            "spark.executor.extraJavaOptions": "-Duser.timezone=UTC",
            "spark.authenticate.secret": secrets.token_urlsafe(30),
        }
    if job.events is not None:
        settings |= {"spark.eventLog.enabled": "true", "spark.eventLog.dir": job.events.resolve().as_uri()}
    environ = {**api.environment(), **environment(), **shipped_python()}
    argv = [str(Path(environ["SPARK_HOME"]) / "bin" / "spark-submit"), "--master", master]
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
