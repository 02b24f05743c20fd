"""The jars under ``build/``, including the plugins' jars.

Maven resolves the jars from two poms, and a lock of their SHA-256 verifies them. The jars that are built from this
repository's sources are in no lock.
"""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from headwater.console import Announce
from headwater.errors import UserError
from headwater.log_files import tail
from headwater.packaging.unfinished import take_place, unfinished
from headwater.paths import ASSETS_JARS, BUILD, ROOT

# The plugins that MSK Connect gets, and the folder under build/ of each.
PLUGINS: Mapping[str, str] = {
    "debezium-postgres": "plugins/debezium-postgres",
    "headwater-connect": "plugins/headwater-connect",
}
# The folders of sets that also hold jars which are built here, beside the locked ones.
OWN = "headwater"
# Profiles of the pom, and the folder under build/ that gets the jars of each.
SETS: Mapping[str, str] = {
    "spark": "jars",
    "spark-reader": "jars-0.15",
    "hudi-sync": "hudi-sync",
    "kafka": "kafka",
    "connect-runtime": "connect-runtime",
    **PLUGINS,
    "dynamodb-local": "dynamodb-local",
}
# Likewise, for the products that the benchmark compares with Headwater. Nothing else needs them.
PEERS: Mapping[str, str] = {"iceberg": "peers/iceberg", "delta": "peers/delta"}
# Likewise, for the PostgreSQL servers of other versions that the tests capture, by their major version.
SERVERS: Mapping[str, str] = {f"postgresql-{major}": f"servers/postgresql-{major}" for major in (15, 18)}
# Likewise, for the plugin of an earlier release: tests continue from the positions that it has stored.
FORMER: Mapping[str, str] = {"debezium-3.3": "former/debezium-3.3"}
_FOLDERS = {**SETS, **PEERS, **SERVERS, **FORMER}
POM = ASSETS_JARS / "pom.xml"
# Our own connectors are compiled with the jars that they ship, so their own pom names these.
CONNECT_POM = ROOT / "connect" / "pom.xml"
LOCK = ASSETS_JARS / "jars.lock"
# The jar that EMR and Glue get.
HUDI = "hudi-spark3.5-bundle_2.12-1.1.1.jar"
RENEW = "If the change is meant, renew the lock with `headwater dev jars lock` and review the difference."
FETCH = "Fetch it with `headwater dev assets`."


@dataclass(frozen=True)
class Jar:
    """One locked file."""

    sha256: str
    """The file's SHA-256, in hexadecimal."""
    path: str
    """A jar's path below ``build/``, or a pom's path in the checkout."""
    coordinates: str = ""
    """A jar's ``group:artifact:version``; empty for a pom."""

    def line(self) -> str:
        """The jar's line in the lock."""
        return "  ".join(part for part in (self.sha256, self.path, self.coordinates) if part)

    def in_local_repository(self) -> str:
        """The jar's folder below Maven's local repository."""
        group, artifact, version = self.coordinates.split(":")
        return f"{group.replace('.', '/')}/{artifact}/{version}"


def sha256(path: Path) -> str:
    """A file's SHA-256 in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_lock(lock: Path = LOCK) -> tuple[Jar, ...]:
    """Read the lock: one ``SHA-256 path group:artifact:version`` per line.

    The line of a pom has no coordinates. Raises UserError if the lock is missing or cannot be parsed.
    """
    if not lock.exists():
        raise UserError(f"{lock} is missing: restore it, or write it with `headwater dev jars lock`")
    found = []
    for number, line in enumerate(lock.read_text().splitlines(), start=1):
        match = re.fullmatch(r"([0-9a-f]{64})  (\S+/pom\.xml|\S+\.jar  [^\s:]+:[^\s:]+:[^\s:]+)", line)
        if match is None:
            raise UserError(
                f"{lock}:{number}: found {line!r}, expected a SHA-256, two blanks and a pom, or a SHA-256, two blanks, "
                "a jar, two blanks and its group:artifact:version. Restore it, or write it with `headwater dev jars "
                "lock`"
            )
        found.append(Jar(match[1], *match[2].split("  ")))
    return tuple(found)


def locked(name: str, lock: Path = LOCK) -> list[Jar]:
    """The locked jars of a set."""
    return [jar for jar in read_lock(lock) if jar.coordinates and str(Path(jar.path).parent) == _FOLDERS[name]]


def problems(sets: Iterable[str] = tuple(SETS), build: Path = BUILD, lock: Path = LOCK, root: Path = ROOT) -> list[str]:
    """Return a sentence for each file of some sets that differs from the lock.

    ``root`` is the checkout whose poms the lock has to fit.
    """
    sets = tuple(sets)
    poms = {jar.path: jar.sha256 for jar in read_lock(lock) if not jar.coordinates}
    sentences = [
        f"{root / pom} is not the one that {lock} was made from. {RENEW}"
        for pom in sorted({str(_pom(name).relative_to(ROOT)) for name in sets})
        if poms.get(pom) != sha256(root / pom)
    ]
    for name in sets:
        folder = build / _FOLDERS[name]
        expected = {Path(jar.path).name: jar for jar in locked(name, lock)}
        if not expected:
            sentences.append(f"{lock} names no jar in {_FOLDERS[name]}. {RENEW}")
        # Compare the folder with the lock: missing, unknown and altered files.
        present = {
            str(path.relative_to(folder))
            for path in folder.rglob("*")
            if path.is_file() and not path.is_relative_to(folder / OWN)
        }
        sentences += [f"{folder / path} is missing. {FETCH}" for path in sorted(expected.keys() - present)]
        sentences += [
            f"{folder / path} is not in {lock}. Delete it, or fetch with `headwater dev assets`."
            for path in sorted(present - expected.keys())
        ]
        for path in sorted(expected.keys() & present):
            jar, digest = expected[path], sha256(folder / path)
            if digest != jar.sha256:
                sentences.append(
                    f"{folder / path} was altered: its SHA-256 is {digest}, {lock.name} says {jar.sha256}. {FETCH} "
                    f"If it stays, delete {jar.in_local_repository()} in Maven's local repository (~/.m2/repository) "
                    f"and fetch again. {RENEW}"
                )
    return sentences


def verify(sets: Iterable[str] = tuple(SETS), build: Path = BUILD, lock: Path = LOCK, root: Path = ROOT) -> None:
    """Raise UserError naming each file of these sets that is missing, altered or not in the lock."""
    sentences = problems(sets, build, lock, root)
    if sentences:
        raise UserError("The jars are not as locked:\n" + "\n".join(f"- {line}" for line in sentences))


def resolve(name: str, build: Path = BUILD) -> Path:
    """Let Maven resolve one set, replace the set's folder under ``build``, and return the folder.

    Raises UserError with the end of Maven's log if Maven fails.
    """
    folder = build / _FOLDERS[name]
    with unfinished(name, build) as temporary:
        _dependencies(name, build, "copy-dependencies", f"-DoutputDirectory={temporary}/jars")
        take_place(temporary / "jars", folder)
    return folder


def _dependencies(name: str, build: Path, goal: str, *options: str) -> None:
    """Run a goal of Maven's dependency plugin, which the poms pin, on a set's pom."""
    pom = _pom(name)
    profile = [f"-P{name}"] if pom == POM else []
    maven(["-f", str(pom), *profile, f"dependency:{goal}", *options], build / "logs" / f"maven-{name}.log")


def _pom(name: str) -> Path:
    return CONNECT_POM if name == "headwater-connect" else POM


def maven(arguments: list[str], log: Path) -> None:
    """Run Maven with its output in a log.

    ``.mvn/maven.config`` has the options of every Maven run in this checkout. Raises UserError with the log's end if
    Maven is missing or fails.
    """
    program = shutil.which("mvn")
    if program is None:
        raise UserError("Maven's `mvn` is not on the PATH: install it (Debian and Ubuntu: apt-get install maven)")
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        done = subprocess.run(
            [program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "MAVEN_OPTS": os.environ.get("MAVEN_OPTS", "-XX:TieredStopAtLevel=1")},
            check=False,
        )
    if done.returncode != 0:
        raise UserError(f"`mvn {' '.join(arguments)}` failed. The end of {log}:\n{tail(log)}")


def fetch(announce: Announce, build: Path = BUILD, sets: Iterable[str] = tuple(SETS)) -> None:
    """Fetch each set of jars that differs from the lock, and announce it.

    Raises UserError if Maven fails, or if it fetches a jar that differs from the lock.
    """
    for name in sets:
        if problems([name], build):
            with announce(f"Fetching the jars of {name} into build/{_FOLDERS[name]}"):
                resolve(name, build)
                verify([name], build)


def write_lock(announce: Announce, build: Path = BUILD, lock: Path = LOCK) -> None:
    """Resolve every set, also the sets of the benchmark and of the tests, and write the lock from the result."""
    lines = [Jar(sha256(pom), str(pom.relative_to(ROOT))) for pom in (POM, CONNECT_POM)]
    for name, folder in _FOLDERS.items():
        with announce(f"Resolving {name}"):
            coordinates = _coordinates(name, build)
            found = sorted(resolve(name, build).glob("*.jar"))
        lines += [Jar(sha256(path), f"{folder}/{path.name}", coordinates[path.name]) for path in found]
    lock.write_text("".join(f"{jar.line()}\n" for jar in lines))


def _coordinates(name: str, build: Path) -> dict[str, str]:
    """The ``group:artifact:version`` of each jar of a set, by the jar's name."""
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder) / "list"
        _dependencies(name, build, "list", f"-DoutputFile={listed}")
        found = re.findall(
            r"^ +([^\s:]+):([^\s:]+):jar:(?:([^\s:]+):)?([^\s:]+):[a-z]+\b", listed.read_text(), re.MULTILINE
        )
    return {
        "-".join(part for part in (artifact, version, classifier) if part) + ".jar": f"{group}:{artifact}:{version}"
        for group, artifact, classifier, version in found
    }


def class_path(name: str, build: Path = BUILD) -> list[Path]:
    """A set's jars in a stable order. Raises UserError if there are none."""
    jars = sorted((build / _FOLDERS[name]).glob("*.jar"))
    if not jars:
        raise UserError(f"There are no jars in {build / _FOLDERS[name]}. {FETCH}")
    return jars
