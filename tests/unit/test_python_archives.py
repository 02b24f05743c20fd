"""The archives hold the locked packages in the same bytes each time, and their launcher runs no other package."""

import json
import os
import platform
import re
import subprocess
import sys
import tarfile
import zipfile
from contextlib import nullcontext
from importlib import metadata
from pathlib import Path

import pytest

from headwater.packaging import python_archives, wheels
from headwater.paths import ROOT

WHERE = """
import json
import boto3, msgspec, sys
model = boto3.client("s3", region_name="eu-central-1").meta.service_model.operation_model("PutObject")
print(json.dumps({
    "files": [boto3.__file__, msgspec.__file__, msgspec._core.__file__],
    "conditions": sorted({"IfMatch", "IfNoneMatch"} & set(model.input_shape.members)),
    "python": sys.version_info[:2],
}))
"""


def installed(requirements: str, platform: str, folder: Path) -> None:
    """The packages that pip would fetch, made of the installed ones, with their native parts. Of the services that
    botocore describes, only S3 is in them."""
    folder.mkdir(parents=True)
    for name in re.findall(r"^([\w.-]+)==", requirements, re.MULTILINE):
        with zipfile.ZipFile(folder / f"{name}-{platform}.whl", "w") as wheel:
            for file in metadata.files(name) or []:
                is_of_another = file.parts[:2] == ("botocore", "data") and len(file.parts) > 3 and file.parts[2] != "s3"
                if ".." not in file.parts and "__pycache__" not in file.parts and not is_of_another:
                    wheel.write(str(file.locate()), str(file))
            wheel.writestr(f"{name}.data/scripts/{name}", "a script")


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A build folder for small archives."""
    monkeypatch.setattr(wheels, "download", installed)
    monkeypatch.setattr(python_archives, "PACKAGES", ("jmespath", "six"))
    return tmp_path


def test_an_archive_has_the_same_bytes_each_time(build: Path) -> None:
    python_archives.build_archives(lambda text: nullcontext(), build)
    first = {platform: python_archives.path(platform, build).read_bytes() for platform in wheels.PLATFORMS}
    for platform_ in wheels.PLATFORMS:
        os.utime(python_archives.path(platform_, build), (1, 1))
        (build / "stamps" / f"python-{platform_}").write_text("stale")
    python_archives.build_archives(lambda text: nullcontext(), build)
    assert {name: python_archives.path(name, build).read_bytes() for name in wheels.PLATFORMS} == first
    with tarfile.open(python_archives.path(wheels.AARCH64, build)) as archive:
        entries = archive.getmembers()
    assert [entry.name for entry in entries] == sorted(entry.name for entry in entries)
    assert {(entry.mtime, entry.uid, entry.gid, entry.uname) for entry in entries} == {(0, 0, 0, "")}
    assert {entry.name: entry.mode for entry in entries if entry.mode != 0o644} == {python_archives.LAUNCHER: 0o755}
    assert not [entry.name for entry in entries if ".data/" in entry.name]


def test_wheels_of_which_half_came_are_fetched_again(build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(requirements: str, platform: str, folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "half.whl").write_bytes(b"PK")
        raise KeyboardInterrupt

    monkeypatch.setattr(wheels, "download", interrupted)
    with pytest.raises(KeyboardInterrupt):
        python_archives.build_archives(lambda text: nullcontext(), build)
    monkeypatch.setattr(wheels, "download", installed)
    python_archives.build_archives(lambda text: nullcontext(), build)
    assert list(build.rglob("half.whl")) == []
    # One that was cut short later is noticed too.
    whole, *_ = sorted(wheels.folder(wheels.AARCH64, build).glob("*.whl"))
    whole.write_bytes(whole.read_bytes()[:10])
    python_archives.build_archives(lambda text: nullcontext(), build)
    assert zipfile.is_zipfile(whole)


def test_half_an_unpacked_archive_takes_no_place(build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python_archives.build_archives(lambda text: nullcontext(), build)

    def half(archive: tarfile.TarFile, folder: Path, filter: str) -> None:
        folder.mkdir()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(tarfile.TarFile, "extractall", half)
        with pytest.raises(KeyboardInterrupt):
            python_archives.unpack(wheels.AARCH64, build)
    assert not (build / "python" / wheels.AARCH64).exists()
    assert python_archives.unpack(wheels.AARCH64, build).exists()


@pytest.mark.skipif(sys.version_info[:2] != (3, 11) or sys.platform != "linux", reason="the archive is for Python 3.11")
def test_the_launcher_runs_the_packages_of_the_archive_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = tmp_path
    monkeypatch.setattr(wheels, "download", installed)
    monkeypatch.setattr(wheels, "PLATFORMS", (platform.machine(),))
    python_archives.build_archives(lambda text: nullcontext(), build)
    launcher = python_archives.unpack(platform.machine(), build)
    path = f"{Path(sys.base_prefix) / 'bin'}:/usr/bin:/bin"
    # Neither the node's packages (-S, -s) nor those of the folder that a job starts in (-P) are in the way.
    run = subprocess.run(
        [str(launcher), "-P", "-S", "-s", "-c", WHERE], env={"PATH": path}, cwd=ROOT, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    answer = json.loads(run.stdout)
    folder = str(launcher.parent.parent / "site-packages")
    assert [file for file in answer["files"] if not file.startswith(folder)] == []
    assert answer["conditions"] == ["IfMatch", "IfNoneMatch"]
    assert answer["python"] == [3, 11]


@pytest.mark.parametrize("fits", [True, False])
def test_the_bootstrap_action_unpacks_what_the_local_step_unpacks_and_tries_it(
    build: Path, tmp_path: Path, fits: bool
) -> None:
    python_archives.build_archives(lambda text: nullcontext(), build)
    archive = python_archives.path(wheels.X86_64, build)
    tools = tmp_path / "tools"
    tools.mkdir()
    commands = {
        "aws": 'for last; do :; done\ncp "$ARCHIVE" "$last"',
        "sudo": 'exec "$@"',
        "python3.11": f"exit {int(not fits)}",
    }
    for name, text in commands.items():
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)
    node = tmp_path / "node"
    script = ROOT / "emr_bootstrap" / "unpack_python.sh"
    env = {"PATH": f"{tools}:/usr/bin:/bin", "ARCHIVE": str(archive)}
    run = subprocess.run(["bash", str(script), "s3://assets/python.tar.gz", "eu-central-1", str(node)], env=env)
    assert (run.returncode == 0) == fits
    local = python_archives.unpack(wheels.X86_64, build).parent.parent
    assert _files(node) == _files(local)
    assert os.access(node / python_archives.LAUNCHER, os.X_OK)


def test_the_bootstrap_action_fails_when_the_archive_cannot_be_fetched(tmp_path: Path) -> None:
    (tmp_path / "aws").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "aws").chmod(0o755)
    script = ROOT / "emr_bootstrap" / "unpack_python.sh"
    arguments = ["s3://assets/python.tar.gz", "eu-central-1", str(tmp_path / "node")]
    assert subprocess.run(["bash", str(script), *arguments], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}).returncode != 0


def _files(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
