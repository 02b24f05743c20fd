"""The jars and plugins under ``build/``: resolved by Maven from ``assets/jars/pom.xml``, verified by a lock of their
SHA-256."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from headwater.console import Announce
from headwater.errors import UserError
from headwater.log_files import tail
from headwater.paths import ASSETS_JARS, BUILD

# Profiles of the pom, and the folder under build/ that gets the jars of each.
SETS: Mapping[str, str] = {
    "spark": "jars",
    "spark-reader": "jars-0.15",
    "hudi-sync": "hudi-sync",
    "kafka": "kafka",
    "connect-runtime": "connect-runtime",
    "debezium-postgres": "plugins/debezium-postgres",
    "dynamodb-local": "dynamodb-local",
}
# Likewise, of what the benchmark measures Headwater beside: nothing else needs them.
PEERS: Mapping[str, str] = {"iceberg": "peers/iceberg", "delta": "peers/delta"}
# Likewise, of the servers of other versions that the tests capture, by their major version.
SERVERS: Mapping[str, str] = {f"postgresql-{major}": f"servers/postgresql-{major}" for major in (15, 18)}
_FOLDERS = {**SETS, **PEERS, **SERVERS}
POM = ASSETS_JARS / "pom.xml"
LOCK = ASSETS_JARS / "jars.lock"
RENEW = "If the change is meant, renew the lock with `headwater jars lock` and review the difference."
FETCH = "Fetch it with `make assets`."


@dataclass(frozen=True)
class Jar:
    """One locked file: its SHA-256 in hexadecimal, and its path below ``build/``."""

    sha256: str
    path: str


def sha256(path: Path) -> str:
    """A file's SHA-256 in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_lock(lock: Path = LOCK) -> tuple[Jar, ...]:
    """Read the lock: one ``SHA-256  path below build/`` per line, as ``sha256sum`` writes it, the first one the pom
    itself. Raises UserError for a lock that is missing or cannot be parsed."""
    if not lock.exists():
        raise UserError(f"{lock} is missing: restore it, or write it with `headwater jars lock`")
    jars = []
    for number, line in enumerate(lock.read_text().splitlines(), start=1):
        digest, _, path = line.partition("  ")
        if len(digest) != 64 or not path:
            raise UserError(f"{lock}:{number}: found {line!r}, expected a SHA-256, two blanks and a path")
        jars.append(Jar(digest, path))
    return tuple(jars)


def problems(sets: Iterable[str] = tuple(SETS), build: Path = BUILD, lock: Path = LOCK, pom: Path = POM) -> list[str]:
    """What is wrong with the jars of some sets, one sentence per jar; empty when all are as locked."""
    locked = {jar.path: jar.sha256 for jar in read_lock(lock)}
    sentences = []
    if locked.pop(pom.name, None) != sha256(pom):
        sentences.append(f"{pom} is not the one that {lock} was made from. {RENEW}")
    for name in sets:
        folder = _FOLDERS[name]
        expected = {path: digest for path, digest in locked.items() if str(Path(path).parent) == folder}
        if not expected:
            sentences.append(f"{lock} names no jar in {folder}. {RENEW}")
        present = {f"{folder}/{path.name}" for path in (build / folder).glob("*.jar")}
        sentences += [f"{build / path} is missing. {FETCH}" for path in sorted(expected.keys() - present)]
        sentences += [
            f"{build / path} is not in {lock}. Delete it, or fetch with `make assets`."
            for path in sorted(present - expected.keys())
        ]
        for path in sorted(expected.keys() & present):
            digest = sha256(build / path)
            if digest != expected[path]:
                sentences.append(
                    f"{build / path} was altered: its SHA-256 is {digest}, {lock.name} says {expected[path]}. "
                    f"{FETCH} {RENEW}"
                )
    return sentences


def verify(sets: Iterable[str] = tuple(SETS), build: Path = BUILD, lock: Path = LOCK, pom: Path = POM) -> None:
    """Raise UserError naming each jar of these sets that is missing, altered or not in the lock."""
    sentences = problems(sets, build, lock, pom)
    if sentences:
        raise UserError("The jars are not as locked:\n" + "\n".join(f"- {line}" for line in sentences))


def resolve(name: str, build: Path = BUILD, pom: Path = POM) -> Path:
    """Have Maven resolve one set and replace the set's folder under ``build``, which is returned. Raises UserError with
    the end of Maven's log where it fails."""
    folder = build / _FOLDERS[name]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as temporary:
        maven(
            ["-f", str(pom), f"-P{name}", "dependency:copy-dependencies", f"-DoutputDirectory={temporary}/jars"],
            build / "logs" / f"maven-{name}.log",
        )
        shutil.rmtree(folder, ignore_errors=True)
        Path(temporary, "jars").rename(folder)
    return folder


def maven(arguments: list[str], log: Path) -> None:
    """Run Maven with its output in a log. Raises UserError where Maven is missing or fails, with the log's end."""
    program = shutil.which("mvn")
    if program is None:
        raise UserError("Maven's `mvn` is not on the PATH: install it (Debian and Ubuntu: apt-get install maven)")
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        done = subprocess.run(
            [program, "-B", "-ntp", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "MAVEN_OPTS": os.environ.get("MAVEN_OPTS", "-XX:TieredStopAtLevel=1")},
            check=False,
        )
    if done.returncode != 0:
        raise UserError(f"`mvn {' '.join(arguments)}` failed. The end of {log}:\n{tail(log)}")


def fetch(announce: Announce, build: Path = BUILD, sets: Iterable[str] = tuple(SETS)) -> None:
    """Resolve those of the sets that are not as locked, each announced, then verify them all."""
    wanted = tuple(sets)
    for name in wanted:
        if problems([name], build):
            with announce(f"Fetching the jars of {name} into build/{_FOLDERS[name]}"):
                resolve(name, build)
    verify(wanted, build)


def write_lock(announce: Announce, build: Path = BUILD, lock: Path = LOCK, pom: Path = POM) -> None:
    """Resolve every set, also the peers and the servers, and write the lock from the result."""
    lines = [f"{sha256(pom)}  {pom.name}"]
    for name, folder in _FOLDERS.items():
        with announce(f"Resolving {name}"):
            jars = sorted(resolve(name, build, pom).glob("*.jar"))
        lines += [f"{sha256(path)}  {folder}/{path.name}" for path in jars]
    lock.write_text("\n".join(lines) + "\n")


def class_path(name: str, build: Path = BUILD) -> list[Path]:
    """A set's jars in a stable order. Raises UserError when there are none."""
    jars = sorted((build / _FOLDERS[name]).glob("*.jar"))
    if not jars:
        raise UserError(f"There are no jars in {build / _FOLDERS[name]}. {FETCH}")
    return jars
