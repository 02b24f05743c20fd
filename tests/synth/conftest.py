"""Synthesized environments. Assets are placeholders here, because a template knows only their places."""

import json
import zipfile
from collections.abc import Callable
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import msgspec
import pytest
from aws_cdk.assertions import Template

from headwater.contract.model import Contract
from headwater.contract.reading import read_contracts
from headwater.definitions.connectors import CaptureSettings
from headwater.definitions.lake_content import LakeContent
from headwater.environment import model as environment
from headwater.environment.account import LAKE_TAG
from headwater.environment.model import Bi, Environment
from headwater.environment.rules import read_environment
from headwater.lake_folder import EXAMPLE
from headwater.packaging import jars, wheels
from headwater.paths import ROOT
from stacks import application
from stacks.assets import Assets
from tests.lake_folders import lake_folder
from tests.synth.deployed import made
from tests.synth.example import example_content
from tests.synth.existing import with_existing

# dev with QuickSight, a query role and a required comparison. An environment has these only if its file asks for them.
WITH_BI = "dev with bi"
# dev with an existing database and existing DynamoDB tables.
EXISTING = "dev with existing sources"
ANALYST = "arn:aws:iam::123456789012:role/analyst"
PRINCIPAL = "arn:aws:quicksight:eu-central-1:123456789012:group/default/analysts"


def _with_readers(settings: Environment) -> Environment:
    """An environment with the optional features that no shipped environment has."""
    lake = msgspec.structs.replace(settings.lake, query_principals=(ANALYST,))
    monitoring = msgspec.structs.replace(settings.monitoring, comparison_minutes=15)
    bi = Bi(principal=PRINCIPAL, refresh="hourly")
    emr = msgspec.structs.replace(settings.postgresql.emr, market="spot")
    return msgspec.structs.replace(settings, lake=lake, bi=bi, monitoring=monitoring, emr=emr)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-baselines", action="store_true", help="write the templates as the new baselines")


class Synthesized:
    """One environment's templates, by stack."""

    def __init__(
        self,
        app: cdk.App,
        settings: Environment,
        contracts: list[Contract],
        assets: Assets,
        content: LakeContent | None = None,
    ) -> None:
        self.app = app
        self.environment = settings
        self.contracts = contracts
        self.build = assets.build
        self.lake = assets.lake
        self.stacks = application.build(app, settings, contracts, content or example_content(contracts), assets)
        self._templates: dict[str, dict[str, Any]] = {}

    def template(self, part: str) -> dict[str, Any]:
        """The template of a stack; ``part`` is its field in ``Application``."""
        if part not in self._templates:
            self._templates[part] = dict(Template.from_stack(getattr(self.stacks, part)).to_json())
        return self._templates[part]

    @property
    def capture(self) -> CaptureSettings:
        """The settings of the connectors."""
        return made(self.stacks.connect).capture

    @property
    def assembly(self) -> Path:
        """The folder with everything that CDK synthesized."""
        return Path(self.app.synth().directory)

    def asset(self, place: object) -> Path:
        """The uploaded file that a value of a template names."""
        (file,) = self.assets(place)
        return file

    def assets(self, place: object) -> list[Path]:
        """The uploaded files that a value of a template names, in its order."""
        text = json.dumps(place)
        named = {text.index(key): path for key, path in self._assets.items() if key in text}
        return [named[at] for at in sorted(named)]

    @cached_property
    def _assets(self) -> dict[str, Path]:
        """The files that ``cdk deploy`` uploads, by their keys in S3."""
        assembly = self.assembly
        return {
            destination["objectKey"]: assembly / file["source"]["path"]
            for manifest in assembly.glob("*.assets.json")
            for file in json.loads(manifest.read_text())["files"].values()
            for destination in file["destinations"].values()
        }

    def parts(self) -> list[str]:
        """The names of all stacks, in the order of deployment."""
        return [field.name for field in fields(self.stacks) if getattr(self.stacks, field.name) is not None]

    def resources(self, type_: str, *parts: str) -> dict[str, dict[str, Any]]:
        """Resources of a type by logical id, of these stacks or of all."""
        return {
            f"{part}/{name}": resource
            for part in parts or self.parts()
            for name, resource in self.template(part)["Resources"].items()
            if resource["Type"] == type_
        }

    def only(self, type_: str, *parts: str, of: str = "") -> dict[str, Any]:
        """The properties of the only resource of a type, in these stacks or in all. ``of`` chooses among the resources
        that each have a table: those whose logical id has its name."""
        (properties,) = [
            resource["Properties"] for name, resource in self.resources(type_, *parts).items() if of in name
        ]
        return dict(properties)


@pytest.fixture(scope="session")
def contracts() -> list[Contract]:
    return read_contracts(EXAMPLE.contracts)


@pytest.fixture(scope="session")
def assets(tmp_path_factory: pytest.TempPathFactory) -> Assets:
    build = tmp_path_factory.mktemp("build")
    for name in ("debezium-postgres", "headwater-connect"):
        place = build / "plugins" / f"{name}.zip"
        place.parent.mkdir(exist_ok=True)
        with zipfile.ZipFile(place, "w") as archive:
            archive.writestr(f"{name}/{name}.jar", f"jar of {name}")
    files = [
        f"jars/{jars.HUDI}",
        "lake_jvm/headwater-lake.jar",
        "headwater.zip",
        "wheels/x86_64/msgspec-1.0-cp311-cp311-manylinux2014_x86_64.whl",
    ]
    files += [f"python/python-{platform}.tar.gz" for platform in wheels.PLATFORMS]
    for relative in files:
        place = build / relative
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(relative)
    return Assets(ROOT, build, lake_folder(tmp_path_factory.mktemp("lake")))


@pytest.fixture(scope="session")
def new_app(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], cdk.App]:
    """Makes apps with the feature flags of cdk.json, each with a folder of its own. Its stacks are of the example."""
    flags = json.loads((ROOT / "cdk.json").read_text())["context"]
    # The command line adds the construct's path to each resource.
    context = {**flags, "aws:cdk:enable-path-metadata": True, LAKE_TAG: EXAMPLE.settings.name}
    return lambda: cdk.App(outdir=str(tmp_path_factory.mktemp("cdk.out")), context=context)


@pytest.fixture(scope="session")
def synthesize(
    contracts: list[Contract], assets: Assets, new_app: Callable[[], cdk.App]
) -> Callable[[str], Synthesized]:
    """Synthesizes each environment, ``WITH_BI``, or ``EXISTING`` once."""
    changed = {WITH_BI: _with_readers, EXISTING: with_existing}
    done: dict[str, Synthesized] = {}

    def synthesized(name: str) -> Synthesized:
        if name not in done:
            settings = read_environment("dev" if name in changed else name, EXAMPLE.config)
            settings = changed[name](settings) if name in changed else settings
            done[name] = Synthesized(new_app(), settings, contracts, assets)
        return done[name]

    return synthesized


@pytest.fixture(scope="session", params=environment.on_aws(EXAMPLE.config))
def every(request: pytest.FixtureRequest, synthesize: Callable[[str], Synthesized]) -> Synthesized:
    """Each environment in turn."""
    return synthesize(request.param)


@pytest.fixture(scope="session", params=[*environment.on_aws(EXAMPLE.config), WITH_BI, EXISTING])
def every_stack(request: pytest.FixtureRequest, synthesize: Callable[[str], Synthesized]) -> Synthesized:
    """Each environment in turn, dev with the optional stacks, and dev with existing sources."""
    return synthesize(request.param)


@pytest.fixture(scope="session")
def existing(synthesize: Callable[[str], Synthesized]) -> Synthesized:
    """dev with existing sources."""
    return synthesize(EXISTING)


@pytest.fixture(scope="session")
def all_parts(synthesize: Callable[[str], Synthesized]) -> Synthesized:
    """dev with all optional features, including every alarm."""
    return synthesize(WITH_BI)


@pytest.fixture(scope="session")
def dev(synthesize: Callable[[str], Synthesized]) -> Synthesized:
    return synthesize("dev")
