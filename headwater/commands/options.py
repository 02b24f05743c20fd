"""Options that several verbs have."""

from typing import Annotated

import typer

Environment = Annotated[str, typer.Option("--env", metavar="ENV", help="The environment: dev, stage, prod or local.")]
"""An environment that has a file in ``config/``."""
Synthesized = Annotated[
    str, typer.Option("--env", metavar="ENV", help="The environment: dev, stage, prod or local, as last synthesized.")
]
"""An environment whose stacks were synthesized."""
Observed = Annotated[
    str, typer.Option("--env", metavar="ENV", help="The environment; by default the one on this machine.")
]
"""An environment that a verb only reads. Its default is ``local``."""
