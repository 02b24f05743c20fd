"""The list of what ships is valid CycloneDX, and the same for the same releases."""

import json

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

from headwater.errors import UserError
from headwater.packaging import sbom
from headwater.packaging.shipped import Release

JAR = Release("maven", "org.postgresql", "postgresql", "42.7.11", "", "a" * 64)
OTHER_JAR = Release("maven", "org.postgresql", "wrapper", "1", "", "c" * 64)
RELEASES = [
    JAR,
    OTHER_JAR,
    Release("pypi", "", "aws-cdk-lib", "2.275.0", "", "b" * 64),
    Release("pypi", "", "msgspec", "0.22.0", "msgspec-0.22.0-aarch64.whl", "d" * 64),
    Release("pypi", "", "msgspec", "0.22.0", "msgspec-0.22.0-x86_64.whl", "e" * 64),
    Release("pypi", "", "python-dateutil", "2.9.0", "python_dateutil-2.9.0.whl", "f" * 64),
]
# The second is in two jars.
SHADED = {JAR: ["com.ongres:stringprep:2.2", "org.example:other:1"], OTHER_JAR: ["org.example:other:1"]}


def test_the_document_is_valid_and_names_every_release() -> None:
    text = sbom.render(RELEASES, SHADED)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    document = json.loads(text)
    assert document["metadata"]["component"]["name"] == "headwater"
    listed = [
        (component["purl"], [entry["content"] for entry in component["hashes"]], component["licenses"])
        for component in document["components"]
    ]
    assert listed[0] == (
        "pkg:maven/org.postgresql/postgresql@42.7.11",
        ["a" * 64],
        [{"license": {"id": "BSD-2-Clause"}}],
    )
    assert [PackageURL.from_string(address).qualifiers for address, _, _ in listed[3:5]] == [
        {"file_name": "msgspec-0.22.0-aarch64.whl"},
        {"file_name": "msgspec-0.22.0-x86_64.whl"},
    ]
    assert listed[5][2] == [{"expression": "Apache-2.0 OR BSD-3-Clause"}]
    assert len(listed) == len(RELEASES)
    assert [[part["purl"] for part in component.get("components", [])] for component in document["components"][:3]] == [
        ["pkg:maven/com.ongres/stringprep@2.2", "pkg:maven/org.example/other@1"],
        ["pkg:maven/org.example/other@1"],
        [],
    ]


def test_the_same_releases_give_the_same_bytes_and_others_another_number() -> None:
    assert sbom.render(RELEASES, SHADED) == sbom.render(RELEASES, SHADED)
    assert (
        json.loads(sbom.render(RELEASES, SHADED))["serialNumber"]
        != json.loads(sbom.render([JAR], SHADED))["serialNumber"]
    )


def test_a_release_without_a_licence_is_named() -> None:
    unknown = Release("maven", "org.example", "thing", "1", "", "a" * 64)
    with pytest.raises(UserError, match=r"licences\.yaml: found no maven\.org\.example, expected the licence of thing"):
        sbom.render([unknown], SHADED)
