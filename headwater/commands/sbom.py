"""``headwater sbom``: list all that ships, with versions, hashes and licences."""

from pathlib import Path
from typing import Annotated

import typer

from headwater.commands.options import Folder
from headwater.console import say
from headwater.packaging import sbom as document
from headwater.packaging import shipped


def sbom(
    output: Annotated[
        Path | None, typer.Option(help="The file to write.", show_default="build/sbom.cdx.json in the lake folder")
    ] = None,
    *,
    folder: Folder,
) -> None:
    """Write the third-party packages that a deployment uploads as a CycloneDX 1.6 document.

    The document lists jars and wheels, each with its package URL, version, SHA-256 and licence. It is the same for each
    environment. Run `headwater dev assets` before.
    """
    releases = shipped.releases()
    output = output or folder.build / "sbom.cdx.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(document.render(releases, shipped.shaded()), encoding="utf-8")
    say(f"wrote {output}: {len(releases)} releases")
