"""Options that several verbs have."""

from typing import Annotated

import typer

from headwater.lake_folder import LakeFolder

Folder = Annotated[
    LakeFolder,
    typer.Option(
        "--folder",
        metavar="DIR",
        parser=LakeFolder.find,
        default_factory=str,
        show_default="the current folder, or the nearest above it",
        help="The lake folder.",
    ),
]
"""The lake folder: the one that --folder names, or the one that the current folder is in."""
Environment = Annotated[str, typer.Option("--env", metavar="ENV", help="The environment: dev, stage, prod or local.")]
"""An environment that has a file in ``config/``."""
Observed = Annotated[
    str, typer.Option("--env", metavar="ENV", help="The environment; by default the one on this machine.")
]
"""An environment that a verb only reads. Its default is ``local``."""
