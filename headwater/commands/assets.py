"""``headwater assets``: make what goes to S3."""

from headwater.console import announce, say
from headwater.packaging import artifacts


def assets() -> None:
    """Make build/: jars, plugins, the PySpark package and the rendered contracts; only what changed is made anew."""
    artifacts.build(announce)
    say("The assets under build/ are up to date")
