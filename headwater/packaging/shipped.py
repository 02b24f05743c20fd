"""The files that ``cdk deploy`` uploads, and the origin of each: a release with a locked SHA-256, or this checkout."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from headwater import git_files
from headwater.contract.reading import read_contracts
from headwater.errors import UserError
from headwater.lake_folder import LakeFolder
from headwater.packaging import artifacts, jars, python_archives, wheels
from headwater.paths import BUILD, ROOT, SETUP

_CDK = "aws-cdk-lib"
# CDK's name for the assets that the app itself writes, beside the templates: SQL for the database.
_STATEMENTS = "Statements"
# The hash of CDK's wheel, from which pip installs. The lock also has the hash of the source archive, and does not say
# which is which: `pip install --dry-run --no-deps --ignore-installed --only-binary :all: --report -` does.
_CDK_WHEEL = "223e5b8c67bee9802d714493b380251a2e8ce55c8c477e5d44ca2c85f3b322ee"
# Files of the checkout that ship unchanged, beside the PySpark package.
_SOURCES = ("NOTICE", "custom_resources/*.py", "emr_bootstrap/*.sh", "emr_steps/*.py", "glue_scripts/*.py")
_POM_PROPERTIES = re.compile(r"META-INF/maven/.*/pom\.properties")
# The properties of CloudFormation's types that name Lambda code.
_CODE = {"AWS::Lambda::Function": "Code", "AWS::Lambda::LayerVersion": "Content"}


@dataclass(frozen=True, order=True)
class Release:
    """A file that others publish and that ships, whole or in parts."""

    ecosystem: str
    """``maven`` or ``pypi``."""
    group: str
    """Maven's groupId; empty for a Python package."""
    name: str
    """Maven's artifactId, or the name of the Python package."""
    version: str
    """The release's version."""
    file: str
    """A wheel's name; empty for a jar, which its coordinates name."""
    sha256: str
    """The file's SHA-256, in hexadecimal."""


Origin = Release | str
"""A release, or a path in the checkout."""


def releases(build: Path = BUILD) -> list[Release]:
    """All releases that ship, in a stable order. Raises UserError if a wheel is missing or differs from the lock."""
    return sorted({*_jars(), *_wheels(build), _cdk()})


def shaded(build: Path = BUILD) -> dict[Release, list[str]]:
    """For each shipped jar, the releases that are packed into it, by their coordinates, in a stable order.

    Maven leaves a ``pom.properties`` in a jar for each such release. A jar without these files names none.
    """
    return {release: sorted(_shaded(build / path) - {_coordinates(release)}) for release, path in _jars().items()}


def _shaded(jar: Path) -> set[str]:
    with zipfile.ZipFile(jar) as archive:
        texts = [archive.read(name).decode() for name in archive.namelist() if _POM_PROPERTIES.fullmatch(name)]
    lines = [dict(line.strip().split("=", 1) for line in text.splitlines() if "=" in line) for text in texts]
    return {":".join(named[key] for key in ("groupId", "artifactId", "version")) for named in lines}


def _coordinates(release: Release) -> str:
    return f"{release.group}:{release.name}:{release.version}"


def _jars() -> dict[Release, str]:
    """The jars that others publish, with their paths under ``build``."""
    shipped = [jar for name in jars.PLUGINS for jar in jars.locked(name)]
    shipped += [jar for jar in jars.locked("spark") if Path(jar.path).name == jars.HUDI]
    found = {}
    for jar in shipped:
        group, artifact, version = jar.coordinates.split(":")
        found[Release("maven", group, artifact, version, "", jar.sha256)] = jar.path
    return found


def _wheels(build: Path) -> dict[Release, Path]:
    """The wheels for EMR and Glue, with their files on this machine."""
    hashes, found = _hashes(wheels.locked(python_archives.PACKAGES)), {}
    for platform in wheels.PLATFORMS:
        folder = wheels.folder(platform, build)
        kept = sorted(folder.glob("*.whl"))
        if len(kept) != len(python_archives.PACKAGES):
            raise UserError(
                f"{folder}: found {len(kept)} wheels, expected {len(python_archives.PACKAGES)}: run `headwater dev "
                "assets`"
            )
        for path in kept:
            digest = jars.sha256(path)
            if digest not in hashes:
                raise UserError(
                    f"{path}: found the SHA-256 {digest}, expected one of {wheels.REQUIREMENTS.name}: delete the file, "
                    "then run `headwater dev assets`"
                )
            name, version = path.name.split("-")[:2]
            found[Release("pypi", "", name.replace("_", "-"), version, path.name, digest)] = path
    return found


def _cdk() -> Release:
    locked, version = wheels.locked([_CDK]), metadata.version(_CDK)
    if not locked.startswith(f"{_CDK}=={version} "):
        raise UserError(f"found {_CDK} {version}, expected that of {wheels.REQUIREMENTS}: run `{SETUP}`")
    if _CDK_WHEEL not in _hashes(locked):
        raise UserError(
            f"headwater/packaging/shipped.py: found _CDK_WHEEL {_CDK_WHEEL}, expected the SHA-256 of the wheel of "
            f"{_CDK} {version}, one of {', '.join(_hashes(locked))}"
        )
    return Release("pypi", "", _CDK, version, f"aws_cdk_lib-{version}-py3-none-any.whl", _CDK_WHEEL)


def _hashes(locked: str) -> list[str]:
    return re.findall(r"sha256:([0-9a-f]{64})", locked)


def unexplained(assembly: Path, folder: LakeFolder, build: Path = BUILD) -> list[str]:
    """Return a sentence for each finding in a synthesized folder of the lake folder ``folder``.

    A finding is an upload without an origin, or a Lambda function whose code is not an upload. Contracts that git does
    not track are one finding; each deployed SQL file that git does not track is another. Raises UserError if readers of
    an archive would disagree on its content.
    """
    untracked = _of_contracts(folder.contracts, tracked=False)
    found = trace(assembly, {**origins(folder.contracts, build), **untracked})
    sentences = [
        f"{name} would be uploaded, but no lock has its SHA-256, and git knows no source of it. If it is Headwater's, "
        "lock it in a clone of Headwater, or add its origin to headwater/packaging/shipped.py there"
        for name, origin in found
        if origin is None
    ]
    if files := sorted({str(origin) for _, origin in found if origin in untracked.values()}):
        sentences.append(
            f"{', '.join(files)}: found contracts that git does not track, expected tracked ones, so that a commit "
            f"says what was deployed: git add {folder.contracts}"
        )
    sentences += [
        f"{name} would be deployed, but git does not track it: `git add` it, or take it out of the folder"
        for name in _untracked_files(assembly, folder)
    ]
    return sentences + [
        f"{name}: found the code {code}, expected a file that `cdk deploy` uploads"
        for name, code in strange_code(assembly)
    ]


def _untracked_files(assembly: Path, folder: LakeFolder) -> list[str]:
    """The deployed files of ``database/``, and all files of ``queries/``, that git does not track."""
    ours = _tracked(folder.root)
    documents = [json.loads(path.read_text()) for path in _statements(assembly)]
    deployed = [folder.database / file["name"] for document in documents for file in document.get("files", ())]
    queries = [path for path in sorted(folder.queries.glob("*")) if path.suffix in (".sql", ".yaml")]
    return [str(path.relative_to(folder.root)) for path in [*deployed, *queries] if not ours(path)]


def trace(assembly: Path, known: Mapping[str, Origin]) -> list[tuple[str, Origin | None]]:
    """The files that ``cdk deploy`` uploads from a synthesized folder: for each a name to find it by, and its origin.

    Archives that are not known as a whole are unpacked.
    """
    known = {**_written(assembly), **known}
    found = []
    for manifest, document in _manifests(assembly):
        for key, image in document.get("dockerImages", {}).items():
            found.append((f"{manifest}: container image {key}", known.get(_digest(json.dumps(image).encode()))))
        for asset in document["files"].values():
            source = assembly / asset["source"]["path"]
            label = " ".join(filter(None, (f"{manifest}:", asset.get("displayName"), source.name)))
            for path in sorted(source.rglob("*")) if source.is_dir() else [source]:
                if path.is_file():
                    name = label if path == source else f"{label}/{path.relative_to(source)}"
                    found += _trace(name, path.read_bytes(), known)
    return found


def strange_code(assembly: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return the Lambda functions and layers whose code is not a file that ``cdk deploy`` uploads.

    Each has its name and the property that stands in place of such a file.
    """
    places = _places(assembly)
    return [(name, code) for name, code in _codes(assembly) if code not in places]


def _manifests(assembly: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The lists of files that ``cdk deploy`` uploads. The folder may also have lists of stacks outside the app."""
    for name in sorted(_named(assembly, "cdk:asset-manifest", "file")):
        yield name, json.loads((assembly / name).read_text())


def _places(assembly: Path) -> list[dict[str, str]]:
    """The addresses to which ``cdk deploy`` uploads files, as the code of a Lambda function would name them."""
    files = [file for _, document in _manifests(assembly) for file in document["files"].values()]
    places = [place for file in files for place in file["destinations"].values()]
    return [{"S3Bucket": place["bucketName"], "S3Key": place["objectKey"]} for place in places]


def _codes(assembly: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The code of each Lambda function and layer in the templates."""
    for file in _template_files(assembly):
        for name, resource in json.loads(file.read_text()).get("Resources", {}).items():
            if field := _CODE.get(resource["Type"]):
                code = resource["Properties"][field]
                bucket = code.get("S3Bucket")
                # The name of CDK's bucket has the account in it, which a template may leave to CloudFormation.
                plain = bucket["Fn::Sub"] if isinstance(bucket, dict) and bucket.keys() == {"Fn::Sub"} else bucket
                yield f"{file.name}: {name}", {**code, "S3Bucket": plain} if bucket else code


def _trace(name: str, content: bytes, known: Mapping[str, Origin]) -> Iterator[tuple[str, Origin | None]]:
    origin = known.get(_digest(content))
    if origin is None and _is_archive(name, content):
        for member, unpacked in _unpacked(name, content):
            yield from _trace(f"{name}/{member}", unpacked, known)
    else:
        yield name, origin


def _is_archive(name: str, content: bytes) -> bool:
    if name.endswith(".zip"):
        return zipfile.is_zipfile(io.BytesIO(content))
    return name.endswith(".tar.gz") and tarfile.is_tarfile(io.BytesIO(content))


def _unpacked(name: str, content: bytes) -> Iterator[tuple[str, bytes]]:
    """The files of an archive. Raises UserError if two have the same name, because readers may take either."""
    names = set()
    for member, unpacked in (_unzipped if name.endswith((".zip", ".whl")) else _untarred)(name, content):
        if member in names:
            raise UserError(f"{name}: found two files {member}, expected one")
        names.add(member)
        yield member, unpacked


def _unzipped(name: str, content: bytes) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        # These bytes could be a script, or files that only a reader from the front sees.
        if start := min((entry.header_offset for entry in archive.infolist()), default=0):
            raise UserError(f"{name}: found {start} bytes before the first file, expected none")
        for entry in archive.infolist():
            if not entry.is_dir():
                yield entry.filename, archive.read(entry)


def _untarred(_: str, content: bytes) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(content)) as packed:
        for member in packed:
            if not member.isdir():
                file = packed.extractfile(member) if member.isfile() else None
                # A link has no content of its own, and none of the archives has one.
                yield member.name, file.read() if file else member.tobuf()


def origins(contracts: Path, build: Path = BUILD) -> dict[str, Origin]:
    """The origins of all contents that may ship, by their SHA-256."""
    known: dict[str, Origin] = {release.sha256: release for release in _jars()}
    for release, path in _wheels(build).items():
        known[release.sha256] = release
        known.update({_digest(content): release for _, content in _unpacked(path.name, path.read_bytes())})
    known.update(dict.fromkeys(_of_cdk(), _cdk()))
    known.update(_of_checkout(build))
    known.update(_of_contracts(contracts, tracked=True))
    return known


def _of_cdk() -> Iterator[str]:
    """The SHA-256 of each file of CDK's own Lambda functions.

    The wheel packs these files in an archive. The archive is compared with the file list of the installed wheel.
    """
    (archive,) = (file for file in metadata.files(_CDK) or () if file.name.endswith(".jsii.tgz"))
    content = archive.read_binary()
    if archive.hash is None or archive.hash.value != _record_hash(content):
        raise UserError(f"{archive.locate()} was altered: delete {ROOT / '.venv'}, then run `{SETUP}`")
    for name, unpacked in _unpacked(f"{_CDK}.tar.gz", content):
        if "/custom-resource-handlers/" in name or "/runtime/" in name:
            yield _digest(unpacked)


def _record_hash(content: bytes) -> str:
    """A SHA-256 as a wheel's RECORD writes it."""
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")


def _of_checkout(build: Path) -> Iterator[tuple[str, str]]:
    """The digests and names of this repository's files that ship, and of files that are made from them.

    In a clone, only files that git tracks count.
    """
    ours = _tracked(ROOT)

    globs = [*_SOURCES, *(f"headwater/{name}" for name in artifacts.LAKE_PACKAGE)]
    for path in (path for glob in globs for path in ROOT.glob(glob)):
        if ours(path):
            yield jars.sha256(path), str(path.relative_to(ROOT))
    yield _digest(python_archives.LAUNCHER_TEXT.encode()), "headwater/packaging/python_archives.py"
    if artifacts.connect_is_current(build) and ours(*artifacts.connect_sources()):
        yield from ((jars.sha256(jar), "connect/") for jar in artifacts.connect_jars(build))
    if artifacts.lake_jvm_is_current(build) and ours(*artifacts.lake_jvm_sources()):
        yield jars.sha256(artifacts.lake_jar(build)), "lake_jvm/"


def _of_contracts(folder: Path, *, tracked: bool) -> dict[str, Origin]:
    """The files of a lake folder's contracts that ship: from the contracts that git tracks, or from the others.

    Outside of a clone, all contracts count as tracked.
    """
    ours = _tracked(folder)
    return {
        _digest(contract.to_json().encode()): f"contracts/{contract.table}.yaml"
        for contract in read_contracts(folder)
        if ours(folder / f"{contract.table}.yaml") == tracked
    }


def _tracked(folder: Path) -> Callable[..., bool]:
    """Return a function that says whether git tracks all given files of a folder. Outside of a clone it says yes."""
    if not any((parent / ".git").exists() for parent in (folder, *folder.parents)):
        return lambda *_: True
    tracked = set(git_files.listed(folder))
    return lambda *files: tracked.issuperset(files)


def _written(assembly: Path) -> dict[str, Origin]:
    """The files that the app has written into a synthesized folder: templates, and the database's statements."""
    written = [*_template_files(assembly), *_statements(assembly)]
    return {jars.sha256(file): "stacks/" for file in written if file.is_file()}


def _statements(assembly: Path) -> list[Path]:
    """The documents of the database's statements, which the app has written into a synthesized folder."""
    return [
        assembly / asset["source"]["path"]
        for _, document in _manifests(assembly)
        for asset in document["files"].values()
        if asset.get("displayName") == _STATEMENTS
    ]


def _template_files(assembly: Path) -> list[Path]:
    """The templates of the stacks, which the app has written into a synthesized folder."""
    return [assembly / name for name in _named(assembly, "aws:cloudformation:stack", "templateFile")]


def _named(assembly: Path, type_: str, property_: str) -> list[str]:
    """One property of each artifact of a type, from the manifest that the app has written."""
    artifacts = json.loads((assembly / "manifest.json").read_text())["artifacts"].values()
    return [artifact["properties"][property_] for artifact in artifacts if artifact["type"] == type_]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
