"""``headwater sbom``: list all that ships, with versions, hashes and licences."""

from pathlib import Path
from typing import Annotated

import typer

from headwater.console import say
from headwater.packaging import sbom as document
from headwater.packaging import shipped
from headwater.paths import BUILD

SBOM = BUILD / "sbom.cdx.json"


def sbom(
    output: Annotated[Path, typer.Option(help="The file to write.")] = SBOM,
) -> None:
    """Write what a deployment uploads of others' releases as a CycloneDX 1.6 document.

    It lists jars and wheels, each with its package URL, version, SHA-256 and licence, and is the same for each
    environment. It needs what `make assets` makes.
    """
    releases = shipped.releases()
    output.write_text(document.render(releases, shipped.shaded()), encoding="utf-8")
    say(f"wrote {output}: {len(releases)} releases")
