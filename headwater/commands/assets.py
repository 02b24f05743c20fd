"""``headwater assets``: build the jars, plugins and packages that go to S3."""

from headwater.console import announce, say
from headwater.local_aws import authority
from headwater.packaging import artifacts, local_aws


def assets() -> None:
    """Make what goes to S3, under build/: jars, plugins, Python packages, contracts; and what the local AWS runs in.
    What is up to date stays."""
    artifacts.build(announce)
    authority.build()
    local_aws.build(announce)
    say("The assets under build/ are up to date")
