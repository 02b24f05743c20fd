"""An archive of the classes of Spark's programs on this machine, which halves the work of their start.

This is Java's class data sharing: https://docs.oracle.com/en/java/javase/17/vm/class-data-sharing.html. A program uses
the archive if its class path begins with ``class_path``. If anything differs, Java starts without the archive, and
reports nothing.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from headwater import process_groups
from headwater.console import Announce, one_line, say
from headwater.errors import UserError
from headwater.packaging import jars, jdk, stamps
from headwater.packaging.unfinished import unfinished
from headwater.paths import BUILD, SETUP

_USES = Path(__file__).with_name("used_classes.py")


def spark_home() -> Path:
    """The folder of the Spark that is installed with PySpark. Raises ``UserError`` if there is none."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise UserError(f"The package pyspark is not installed: run `{SETUP}`")
    return Path(spec.origin).parent


def class_path(build: Path = BUILD) -> list[Path]:
    """The beginning of the class path of every Spark program: Spark, and the jars that it needs for S3."""
    others = [path for path in jars.class_path("spark", build) if not path.name.startswith("hudi-")]
    return [*others, *sorted((spark_home() / "jars").glob("*.jar"))]


def flags(build: Path = BUILD) -> list[str]:
    """The flags with which Java uses the archive; none if there is no archive."""
    archive = _archive(build)
    return [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []


def make(announce: Announce, build: Path = BUILD) -> None:
    """Make the archive, unless Java and the jars are the same as at the last attempt.

    If the archive cannot be made, a line says why, and the programs start without it.
    """
    stamp, failed = (build / "stamps" / name for name in ("class-archive", "class-archive-failed"))
    inputs = _inputs(build)
    archive = _archive(build)
    if (stamps.is_current(stamp, inputs) and archive.exists()) or stamps.is_current(failed, inputs):
        return
    try:
        with announce("Archiving the classes of Spark's programs, so that they start faster"):
            archive.parent.mkdir(parents=True, exist_ok=True)
            archive.unlink(missing_ok=True)
            _use(archive, build / "logs" / "class-archive.log", build)
    except (OSError, UserError) as error:
        say(
            f"There is no archive of these classes, so Spark's programs start slower: {one_line(str(error))}. The "
            f"next try is when Java or a jar has changed; to try at once, delete {failed}"
        )
        stamp = failed
    with suppress(OSError):  # without a stamp, the archive is tried again next time
        stamps.write(stamp, inputs)


def _archive(build: Path) -> Path:
    return build / "class_archive" / "spark.jsa"


def _inputs(build: Path) -> str:
    """The inputs of the archive: Java's version, the class path as Java compares it, and the archived program."""
    version = subprocess.run([jdk.java(), "-version"], capture_output=True, text=True, check=False).stderr
    found = ((path.name, path.stat()) for path in class_path(build))
    listed = "".join(f"{name} {stat.st_size} {stat.st_mtime_ns}\n" for name, stat in found)
    return f"{version}{listed}{_USES.read_text()}"


def _use(archive: Path, log: Path, build: Path) -> None:
    """Run the program that uses the classes, in a Java that archives them when it ends.

    Raises UserError if there is no archive then. Java writes a whole archive or none.
    """
    hudi = next(path for path in jars.class_path("spark", build) if path.name.startswith("hudi-"))
    log.unlink(missing_ok=True)
    with unfinished("class-archive", build) as folder:
        made = folder / archive.name
        options = f"-XX:ArchiveClassesAtExit={made} -XX:+UseSerialGC -Xlog:cds=error -Djava.io.tmpdir={folder}"
        # For a run this short one compiler is enough, and Hudi's JOL attaches to its own JVM in vain, for seconds.
        options += " -XX:TieredStopAtLevel=1 -Djol.skipDynamicAttach=true -Djol.skipHotspotSAAttach=true"
        settings = {
            "spark.driver.extraClassPath": os.pathsep.join(map(str, class_path(build))),
            "spark.driver.extraJavaOptions": options,
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.jars": str(hudi),
            "spark.local.dir": str(folder),
            "spark.sql.warehouse.dir": str(folder),
            "spark.ui.enabled": "false",
        }
        arguments = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        environment = {
            **os.environ,
            "JAVA_HOME": str(Path(jdk.java()).resolve().parent.parent),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_HOME": str(spark_home()),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        environment.pop("SPARK_CONF_DIR", None)
        submit = str(spark_home() / "bin" / "spark-submit")
        command = [submit, "--master", "local[2]", *arguments, str(_USES), str(folder)]
        status = process_groups.run("the program that uses the classes", command, log, environment)
        if status or not made.exists():
            raise UserError(f"the program that uses the classes ended with {status}. Its log is {log}")
        made.replace(archive)
