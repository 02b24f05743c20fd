"""The lock of the jars notices changes that a person would overlook."""

import re
from pathlib import Path

import pytest

from headwater.errors import UserError
from headwater.packaging import jars
from headwater.paths import ROOT


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """A build folder with one jar in each set, and beside it a pom and the lock that fits."""
    (tmp_path / "pom.xml").write_text("<project/>")
    lines = [f"{jars.sha256(tmp_path / 'pom.xml')}  pom.xml"]
    for name, folder in jars.SETS.items():
        jar = tmp_path / "build" / folder / f"{name}-1.0.jar"
        jar.parent.mkdir(parents=True)
        jar.write_bytes(name.encode())
        lines.append(f"{jars.sha256(jar)}  {folder}/{jar.name}")
    (tmp_path / "jars.lock").write_text("\n".join(lines) + "\n")
    return tmp_path / "build"


def verify(build: Path) -> None:
    jars.verify(build=build, lock=build.parent / "jars.lock", pom=build.parent / "pom.xml")


def test_jars_as_locked_pass(build: Path) -> None:
    verify(build)


def test_an_altered_jar_is_named(build: Path) -> None:
    (build / "kafka" / "kafka-1.0.jar").write_bytes(b"something else")
    with pytest.raises(UserError, match=r"kafka/kafka-1\.0\.jar was altered: its SHA-256 is [0-9a-f]{64}") as caught:
        verify(build)
    assert str(caught.value).count("\n") == 1


def test_a_missing_jar_is_named_with_what_to_do(build: Path) -> None:
    (build / "jars" / "spark-1.0.jar").unlink()
    with pytest.raises(UserError, match=r"jars/spark-1\.0\.jar is missing. Fetch it with `make assets`"):
        verify(build)


def test_a_missing_set_is_named_jar_by_jar(tmp_path: Path, build: Path) -> None:
    with pytest.raises(UserError) as caught:
        jars.verify(build=tmp_path / "elsewhere", lock=tmp_path / "jars.lock", pom=tmp_path / "pom.xml")
    assert str(caught.value).count("is missing") == len(jars.SETS)


def test_a_jar_that_nobody_locked_is_named(build: Path) -> None:
    (build / "plugins" / "debezium-postgres" / "stranger.jar").write_bytes(b"?")
    with pytest.raises(UserError, match=r"stranger\.jar is not in .*jars\.lock"):
        verify(build)


def test_a_changed_pom_asks_for_a_new_lock(build: Path) -> None:
    (build.parent / "pom.xml").write_text("<project><!-- newer --></project>")
    with pytest.raises(UserError, match=r"pom\.xml is not the one that .* was made from.*headwater jars lock"):
        verify(build)


def test_a_lock_that_cannot_be_read_is_named_with_its_line(build: Path) -> None:
    (build.parent / "jars.lock").write_text("abc  pom.xml\n")
    with pytest.raises(UserError, match=r"jars\.lock:1: found 'abc  pom\.xml', expected a SHA-256"):
        verify(build)


def test_the_source_connector_is_compiled_for_the_debezium_that_it_runs_with() -> None:
    version = re.compile(r"<debezium\.version>(.+)</debezium\.version>")
    assert version.findall((ROOT / "connect" / "pom.xml").read_text()) == version.findall(jars.POM.read_text())


def test_the_lock_of_this_project_fits_its_pom_and_names_every_set() -> None:
    locked = {jar.path: jar.sha256 for jar in jars.read_lock()}
    assert locked["pom.xml"] == jars.sha256(jars.POM)
    assert {str(Path(path).parent) for path in locked} == {
        *(*jars.SETS.values(), *jars.PEERS.values(), *jars.SERVERS.values(), *jars.FORMER.values(), ".")
    }
