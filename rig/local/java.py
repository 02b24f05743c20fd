"""How the local parts start Java programs."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headwater import private_files
from headwater.packaging.jdk import java

# These flags favour a quick start and little memory over speed: several programs share two cores with Spark.
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


@dataclass(frozen=True)
class JavaProgram:
    """A Java program to start."""

    main: str
    """The program's class, or the path of its source file."""
    arguments: Sequence[str]
    """The arguments of the program."""
    class_path: Sequence[Path]
    """The jars and folders of the class path."""
    heap: str
    """The limit of the heap, as ``-Xmx`` takes it."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Java system properties."""
    flags: Sequence[str] = ()
    """Further flags of Java, beside the flags that every program gets."""


def argv(program: JavaProgram, folder: Path) -> list[str]:
    """Return the command line of a Java program that logs to standard error; ``folder`` gets its log4j settings."""
    folder.mkdir(parents=True, exist_ok=True)
    log4j = folder / "log4j.properties"
    log4j.write_text(LOG4J)
    return [
        java(),
        f"-Xmx{program.heap}",
        *FLAGS,
        *program.flags,
        f"-Dlog4j.configuration={log4j.as_uri()}",
        *(f"-D{name}={value}" for name, value in program.properties.items()),
        "-cp",
        os.pathsep.join(str(path) for path in program.class_path),
        program.main,
        *program.arguments,
    ]


def hidden_argv(program: JavaProgram, folder: Path) -> list[str]:
    """Return the command line of a Java program that hides class and arguments from the machine's process lists.

    They are in ``folder``, in a file ``arguments`` that only its owner can read.
    """
    command = argv(program, folder)
    split = len(command) - len(program.arguments) - 1
    quoted = (part.replace("\\", "\\\\").replace('"', '\\"') for part in command[split:])
    arguments = folder / "arguments"
    private_files.write(arguments, "".join(f'"{part}"\n' for part in quoted))
    return [*command[:split], f"@{arguments}"]


def write_properties(path: Path, properties: Iterable[tuple[str, str]]) -> None:
    """Write a Java properties file, which may hold passwords: only its owner can read it.

    Backslashes are escaped; other characters are written as they are.
    """
    lines = (f"{name}={value}".replace("\\", "\\\\") for name, value in properties)
    private_files.write(path, "\n".join(lines) + "\n")
