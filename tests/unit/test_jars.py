"""The lock of the jars notices changes that a person would overlook."""

import hashlib
import re
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from headwater.errors import UserError
from headwater.packaging import jars
from headwater.paths import BUILD, ROOT

POMS = ("assets/jars/pom.xml", "connect/pom.xml")


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """A build folder with one jar in each set, and beside it the poms and the lock that fits."""
    locked = []
    for pom in POMS:
        place = tmp_path / pom
        place.parent.mkdir(parents=True)
        place.write_text("<project/>")
        locked.append(jars.Jar(jars.sha256(place), pom))
    for name, folder in jars.SETS.items():
        jar = tmp_path / "build" / folder / f"{name}-1.0.jar"
        jar.parent.mkdir(parents=True)
        jar.write_bytes(name.encode())
        locked.append(jars.Jar(jars.sha256(jar), f"{folder}/{jar.name}", f"org.example:{name}:1.0"))
    (tmp_path / "jars.lock").write_text("".join(f"{jar.line()}\n" for jar in locked))
    return tmp_path / "build"


def verify(build: Path) -> None:
    jars.verify(build=build, lock=build.parent / "jars.lock", root=build.parent)


def test_jars_as_locked_pass(build: Path) -> None:
    verify(build)


@pytest.mark.parametrize("jar", ["kafka/kafka-1.0.jar", "plugins/headwater-connect/headwater-connect-1.0.jar"])
def test_an_altered_jar_is_named_with_both_hashes_and_what_to_do(build: Path, jar: str) -> None:
    expected = jars.sha256(build / jar)
    (build / jar).write_bytes(b"something else")
    with pytest.raises(UserError) as caught:
        verify(build)
    text = str(caught.value)
    assert text.count("\n") == 1
    found = hashlib.sha256(b"something else").hexdigest()
    assert f"{build / jar} was altered: its SHA-256 is {found}, jars.lock says {expected}. Fetch it with" in text
    assert f"delete org/example/{Path(jar).stem.removesuffix('-1.0')}/1.0 in Maven's local repository" in text


def test_a_missing_jar_is_named_with_what_to_do(build: Path) -> None:
    (build / "jars" / "spark-1.0.jar").unlink()
    with pytest.raises(UserError, match=r"jars/spark-1\.0\.jar is missing. Fetch it with `headwater dev assets`"):
        verify(build)


def test_a_missing_set_is_named_jar_by_jar(tmp_path: Path, build: Path) -> None:
    with pytest.raises(UserError) as caught:
        jars.verify(build=tmp_path / "elsewhere", lock=tmp_path / "jars.lock", root=tmp_path)
    assert str(caught.value).count("is missing") == len(jars.SETS)


def test_jars_of_which_half_came_take_no_place(build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maven = build.parent / "bin" / "mvn"
    maven.parent.mkdir()
    maven.write_text(
        "#!/bin/sh\nfor word; do case $word in -DoutputDirectory=*) "
        "mkdir -p ${word#*=} && echo half >${word#*=}/half.jar ;; esac; done\nexit 1\n"
    )
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", str(maven.parent), prepend=":")
    before = sorted(build.rglob("*.jar"))
    with pytest.raises(UserError, match="failed"):
        jars.resolve("debezium-postgres", build)
    assert sorted(build.rglob("*.jar")) == before
    verify(build)


@pytest.mark.parametrize("stranger", ["stranger.jar", "stranger.txt", "deeper/stranger.jar"])
def test_a_file_that_nobody_locked_is_named(build: Path, stranger: str) -> None:
    place = build / "plugins" / "debezium-postgres" / stranger
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(b"?")
    with pytest.raises(UserError, match=rf"{re.escape(stranger)} is not in .*jars\.lock"):
        verify(build)


@pytest.mark.parametrize("pom", POMS)
def test_a_changed_pom_asks_for_a_new_lock(build: Path, pom: str) -> None:
    (build.parent / pom).write_text("<project><!-- newer --></project>")
    with pytest.raises(UserError, match=r"pom\.xml is not the one that .* was made from.*headwater dev jars lock"):
        verify(build)


@pytest.mark.parametrize(
    "line", ["abc  assets/jars/pom.xml", f"{'0' * 64}  jars/a.jar", f"{'0' * 64}  jars/a.jar  a:b"]
)
def test_a_lock_that_cannot_be_read_is_named_with_its_line(build: Path, line: str) -> None:
    (build.parent / "jars.lock").write_text(f"{line}\n")
    with pytest.raises(UserError, match=rf"jars\.lock:1: found '{line}', expected a SHA-256"):
        verify(build)


def test_the_source_connector_is_compiled_for_the_debezium_that_it_runs_with() -> None:
    version = re.compile(r"<debezium\.version>(.+)</debezium\.version>")
    assert version.findall(jars.CONNECT_POM.read_text()) == version.findall(jars.POM.read_text())


def test_the_lock_of_this_project_fits_its_poms_and_names_every_set() -> None:
    locked = jars.read_lock()
    assert {jar.path: jar.sha256 for jar in locked if not jar.coordinates} == {
        pom: jars.sha256(ROOT / pom) for pom in POMS
    }
    assert {str(Path(jar.path).parent) for jar in locked if jar.coordinates} == {
        *(*jars.SETS.values(), *jars.PEERS.values(), *jars.SERVERS.values(), *jars.FORMER.values())
    }


def test_every_plugin_of_maven_that_runs_here_has_one_version() -> None:
    # Of the lifecycle `package` and `test`, and `clean`; a version that no pom names is Maven's to choose.
    expected = {"clean", "resources", "compiler", "surefire", "jar", "install", "deploy", "dependency"}
    for pom, names in ((jars.POM, {"dependency"}), (jars.CONNECT_POM, expected)):
        plugins = ET.parse(pom).iterfind(".//{*}build/{*}plugins/{*}plugin")  # noqa: S314 the repository's own file
        pinned = {plugin.findtext("{*}artifactId"): plugin.findtext("{*}version") or "" for plugin in plugins}
        assert pinned.keys() == {f"maven-{name}-plugin" for name in names}
        assert all(re.fullmatch(r"\d+\.\d+(\.\d+)?", version) for version in pinned.values()), pom


def test_maven_refuses_a_file_that_differs_from_its_checksum() -> None:
    # Below the checkout, where .mvn/maven.config holds. A parent is fetched before any plugin is.
    BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILD) as name:
        folder = Path(name)
        parent = folder / "repository" / "org" / "example" / "parent" / "1" / "parent-1.pom"
        parent.parent.mkdir(parents=True)
        text = (
            "<project><modelVersion>4.0.0</modelVersion><groupId>org.example</groupId><artifactId>parent</artifactId>"
            "<version>1</version><packaging>pom</packaging></project>"
        )
        parent.write_text(text)
        (folder / "pom.xml").write_text(
            "<project><modelVersion>4.0.0</modelVersion><parent><groupId>org.example</groupId>"
            "<artifactId>parent</artifactId><version>1</version><relativePath/></parent><artifactId>child</artifactId>"
            "<packaging>pom</packaging><repositories><repository><id>tampered</id>"
            f"<url>{(folder / 'repository').as_uri()}</url></repository></repositories></project>"
        )
        (folder / "settings.xml").write_text("<settings/>")
        settings = str(folder / "settings.xml")
        arguments = ["-f", str(folder / "pom.xml"), "-s", settings, "-gs", settings]
        arguments += [f"-Dmaven.repo.local={folder / 'local'}", "validate"]
        checksum = parent.with_name("parent-1.pom.sha1")
        checksum.write_text("0" * 40)
        with pytest.raises(UserError, match=r"Checksum validation failed"):
            jars.maven(arguments, folder / "log")
        checksum.write_text(hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
        jars.maven([*arguments, "-U"], folder / "log")
