"""`headwater assets`: make what goes to S3."""

from headwater.commands.progress import say, step
from headwater.packaging import artifacts as building


def assets() -> None:
    """Make build/: jars, plugins, the PySpark package and the rendered contracts; only what changed is made anew."""
    building.build(step)
    say("The assets under build/ are up to date")
