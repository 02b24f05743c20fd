"""The product's files for S3, made under ``build/``: plugin zips, the PySpark package, and its Python packages."""

import hashlib
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

from headwater.console import Announce
from headwater.errors import UserError
from headwater.folder_lock import claim
from headwater.packaging import class_archive, jars, jdk, python_archives, stamps
from headwater.packaging.side_by_side import one_by_one
from headwater.paths import BUILD, ROOT

# The part of the package that EMR and Glue get. It needs PySpark, boto3 and msgspec.
LAKE_PACKAGE = (
    "__init__.py",
    "errors.py",
    "contract/__init__.py",
    "contract/evolution.py",
    "contract/masks.py",
    "contract/model.py",
    "contract/transforms.py",
    "contract/types.py",
    "lake/**/*.py",
)
CONNECT = ROOT / "connect"
LAKE_JVM = ROOT / "lake_jvm" / "src" / "main" / "java"
# The earliest moment that ZIP knows. With a fixed moment the same content gives the same bytes.
MOMENT = (1980, 1, 1, 0, 0, 0)


def build(announce: Announce, build: Path = BUILD) -> None:
    """Make all assets under ``build``, each only when its inputs have changed.

    Raises UserError if Maven or pip fails, or if a jar differs from its lock. Then no plugin or archive is packed.
    """
    with claim(build / "assets", "another run", wait=True), one_by_one() as maven, one_by_one() as pip:
        # One Maven at a time: before version 3.9, two may spoil each other's files in the local repository.
        fetched = {name: maven.add(jars.fetch, announce, build, [name]) for name in jars.SETS}
        connect = maven.add(build_connect, announce, build)
        archives = pip.add(python_archives.build_archives, announce, build)
        fetched["spark"].result()
        # This runs in the main thread, which Ctrl-C interrupts.
        class_archive.make(announce, build)
        build_lake_jvm(announce, build)
        for step in (*fetched.values(), connect, archives):
            step.result()
        pack_plugins(build)
        package = ROOT / "headwater"
        zip_files(build / "headwater.zip", ROOT, sorted(path for glob in LAKE_PACKAGE for path in package.glob(glob)))


def connect_jars(build: Path = BUILD) -> list[Path]:
    """The jars that are built from ``connect/``. Each lies in a plugin, beside the jars that it needs."""
    return sorted(path for folder in jars.PLUGINS.values() for path in (build / folder / jars.OWN).glob("*.jar"))


def connect_is_current(build: Path = BUILD) -> bool:
    """Whether the jars of ``connect/`` were built from the present sources, and have not changed since."""
    return stamps.is_current(build / "stamps" / "connect", _connect_inputs(), connect_jars(build))


def build_connect(announce: Announce, build: Path = BUILD) -> None:
    """Build the Maven module ``connect/`` into the plugins.

    The source connector goes into Debezium's plugin, the other classes into a plugin of their own. Only one test runs
    here; ``make test`` runs the others.
    """
    if connect_is_current(build):
        return
    with announce("Building the connectors and the config provider (connect/)"):
        # One short test: Maven downloads its test runner with the first test, and later there may be no network.
        command = ["-f", str(jars.CONNECT_POM), "clean", "package", "-Dtest=LandingObjectTest"]
        jars.maven(command, build / "logs" / "maven-connect.log")
        for jar in (CONNECT / "target").glob("*.jar"):
            name = "debezium-postgres" if jar.stem.endswith("-debezium") else "headwater-connect"
            own = build / jars.PLUGINS[name] / jars.OWN
            shutil.rmtree(own, ignore_errors=True)
            own.mkdir()
            shutil.copyfile(jar, own / jar.name)
    stamps.write(build / "stamps" / "connect", _connect_inputs(), connect_jars(build))


def _connect_inputs() -> str:
    return tree_digest(connect_sources())


def connect_sources() -> list[Path]:
    """The files from which the jars of ``connect/`` are built."""
    return [jars.CONNECT_POM, *sorted(path for path in (CONNECT / "src" / "main").rglob("*") if path.is_file())]


def pack_plugins(build: Path = BUILD) -> None:
    """Zip each plugin, together with the NOTICE that names its licences.

    Raises UserError if a jar differs from the lock. Then no plugin is zipped.
    """
    jars.verify(jars.PLUGINS, build)
    for place in jars.PLUGINS.values():
        folder = build / place
        shutil.copyfile(ROOT / "NOTICE", folder / jars.OWN / "NOTICE")
        zip_files(folder.with_suffix(".zip"), folder.parent, sorted(folder.rglob("*")))


def lake_jar(build: Path = BUILD) -> Path:
    """The jar that is built from ``lake_jvm/``."""
    return build / "lake_jvm" / "headwater-lake.jar"


def lake_jvm_is_current(build: Path = BUILD) -> bool:
    """Whether the jar of ``lake_jvm/`` was built from the present sources, and has not changed since."""
    return stamps.is_current(build / "stamps" / "lake-jvm", _lake_jvm_inputs(build), [lake_jar(build)])


def build_lake_jvm(announce: Announce, build: Path = BUILD) -> None:
    """Compile ``lake_jvm/`` into a jar under ``build/lake_jvm``, against the jars with which it runs on this machine.

    Raises UserError with the compiler's messages.
    """
    jar = lake_jar(build)
    if lake_jvm_is_current(build):
        return
    jar.parent.mkdir(parents=True, exist_ok=True)
    with (
        announce("Compiling the part of the writers that runs in the JVM (lake_jvm/)"),
        tempfile.TemporaryDirectory() as classes,
    ):
        command = [jdk.java("javac"), "--release", "17", "-proc:none", "-d", classes]
        command += ["-cp", os.pathsep.join(map(str, _lake_jvm_class_path(build))), *map(str, lake_jvm_sources())]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UserError(f"{LAKE_JVM} does not compile:\n{done.stderr}")
        zip_files(jar, Path(classes), sorted(Path(classes).rglob("*.class")))
    stamps.write(build / "stamps" / "lake-jvm", _lake_jvm_inputs(build), [jar])


def _lake_jvm_inputs(build: Path) -> str:
    return tree_digest(lake_jvm_sources()) + "".join(path.name for path in _lake_jvm_class_path(build))


def lake_jvm_sources() -> list[Path]:
    """The files from which the jar of ``lake_jvm/`` is compiled."""
    return sorted(LAKE_JVM.rglob("*.java"))


def _lake_jvm_class_path(build: Path) -> list[Path]:
    return [*class_archive.class_path(build), *jars.class_path("spark", build)]


def zip_files(target: Path, root: Path, files: Iterable[Path]) -> None:
    """Write a zip of files under their paths below ``root``. Its bytes depend on these paths and the content alone."""
    part = target.with_suffix(".part")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for path in files:
            if path.is_file():
                entry = zipfile.ZipInfo(str(path.relative_to(root)), MOMENT)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, path.read_bytes())
    part.replace(target)


def tree_digest(files: Iterable[Path]) -> str:
    """One SHA-256 over the names and contents of files. Folders among them do not count."""
    digest = hashlib.sha256()
    for path in files:
        if path.is_file():
            digest.update(f"{path.relative_to(ROOT)}\0{jars.sha256(path)}\n".encode())
    return digest.hexdigest()
