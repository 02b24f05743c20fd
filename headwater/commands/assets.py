"""``headwater assets``: make what goes to S3."""

from headwater.console import announce, say
from headwater.local_aws import authority
from headwater.packaging import artifacts


def assets() -> None:
    """Make what goes to S3, under build/: jars, plugins, Python packages, contracts. What is up to date stays."""
    artifacts.build(announce)
    authority.build()
    say("The assets under build/ are up to date")
