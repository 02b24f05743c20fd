"""The list of all shipped releases, in CycloneDX 1.6 (https://cyclonedx.org/docs/1.6/json/)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path

import yaml
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense, License, LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from headwater.errors import UserError
from headwater.packaging.shipped import Release

LICENCES = Path(__file__).with_name("licences.yaml")


def render(releases: Iterable[Release], shaded: Mapping[Release, Sequence[str]]) -> str:
    """Return the CycloneDX document of Headwater and these releases.

    ``shaded`` has the coordinates of the releases that are packed into another one. The same releases give the same
    bytes. Raises UserError if ``licences.yaml`` does not name a release's licence.
    """
    licences = yaml.safe_load(LICENCES.read_text(encoding="utf-8"))
    components = [_component(release, licences, shaded.get(release, ())) for release in releases]
    own = Component(
        type=ComponentType.APPLICATION,
        bom_ref="headwater",
        name="headwater",
        version=metadata.version("headwater"),
        licenses=[DisjunctiveLicense(id="Apache-2.0")],
    )
    bom = Bom(components=components, metadata=BomMetaData(component=own))
    bom.register_dependency(own, components)
    document = json.loads(JsonV1Dot6(bom).output_as_string())
    # Without this, the library would write the time and a random number.
    del document["metadata"]["timestamp"], document["serialNumber"]
    document["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(document, sort_keys=True)).urn
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


def _component(release: Release, licences: dict[str, dict[str, str]], shaded: Sequence[str]) -> Component:
    named = release.group or release.name
    licence = licences[release.ecosystem].get(named)
    if licence is None:
        raise UserError(f"{LICENCES}: found no {release.ecosystem}.{named}, expected the licence of {release.name}")
    qualifiers = {"file_name": release.file} if release.file else {}
    address = PackageURL(release.ecosystem, release.group or None, release.name, release.version, qualifiers)
    return Component(
        bom_ref=str(address),
        group=release.group or None,
        name=release.name,
        version=release.version,
        purl=address,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=release.sha256)],
        licenses=[_licence(licence)],
        components=[_part(address, coordinates) for coordinates in shaded],
    )


def _part(whole: PackageURL, coordinates: str) -> Component:
    """A release within another one, by its coordinates. Several releases may contain the same one."""
    group, name, version = coordinates.split(":")
    address = PackageURL("maven", group, name, version)
    return Component(bom_ref=f"{whole}#{address}", group=group, name=name, version=version, purl=address)


def _licence(text: str) -> License:
    return LicenseExpression(text) if " " in text else DisjunctiveLicense(id=text)
