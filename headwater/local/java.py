"""How the local parts start Java programs."""

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from headwater.errors import UserError

# Small and quick to start rather than fast for hours: several of these share two cores with Spark.
FLAGS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true", "-Duser.timezone=UTC")
LOG4J = """log4j.rootLogger=INFO, log
log4j.appender.log=org.apache.log4j.ConsoleAppender
log4j.appender.log.target=System.err
log4j.appender.log.layout=org.apache.log4j.PatternLayout
log4j.appender.log.layout.ConversionPattern=%d{ISO8601} %p %c{2}: %m%n
log4j.logger.org.reflections=ERROR
log4j.logger.org.apache.kafka.clients=WARN
log4j.logger.org.apache.kafka.common=WARN
log4j.logger.kafka.log=WARN
"""


def java() -> str:
    """Return the path of `java`: JAVA_HOME's, else the PATH's. Raises `UserError` when there is none."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if found is None or not Path(found).exists():
        raise UserError("Java is missing: install a JDK 17 (Debian and Ubuntu: apt-get install openjdk-17-jdk)")
    return found


def argv(
    main: str,
    arguments: Sequence[str],
    *,
    class_path: Iterable[Path],
    heap: str,
    folder: Path,
    properties: Mapping[str, str] | None = None,
) -> list[str]:
    """Return the command line of a Java program that logs to its standard error.

    `heap` is its limit as `-Xmx` takes it; `folder` gets the log4j properties; `properties` are more system properties.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log4j = folder / "log4j.properties"
    log4j.write_text(LOG4J)
    return [
        java(),
        f"-Xmx{heap}",
        *FLAGS,
        f"-Dlog4j.configuration={log4j.as_uri()}",
        *(f"-D{name}={value}" for name, value in (properties or {}).items()),
        "-cp",
        os.pathsep.join(str(path) for path in class_path),
        main,
        *arguments,
    ]


def write_properties(path: Path, properties: Iterable[tuple[str, str]]) -> None:
    """Write a Java properties file. Backslashes are escaped; other characters are written as they are."""
    lines = (f"{name}={value}".replace("\\", "\\\\") for name, value in properties)
    path.write_text("\n".join(lines) + "\n")
