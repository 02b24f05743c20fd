"""``headwater dev assets``: build the jars, plugins and packages that go to S3."""

from headwater.console import Announce, announce, say
from headwater.lake_folder import EXAMPLE, LakeFolder
from headwater.packaging import artifacts, jars
from headwater.packaging.side_by_side import one_by_one
from rig.local_aws import authority, daemon, emulator_packages


def assets() -> None:
    """Build the files that a deployment uploads, and the programs that the tests and the local AWS run.

    The files under build/ are jars, plugins and Python packages. The programs are the emulator of the local AWS, and
    other versions of servers. Files that are up to date stay.
    """
    with_local_aws(EXAMPLE, announce)
    jars.fetch(announce, sets=[*jars.SERVERS, *jars.FORMER])
    say("The assets under build/ are up to date")


def with_local_aws(folder: LakeFolder, announce: Announce) -> None:
    """Build the files that a deployment uploads, and the environment of a lake folder's local AWS."""
    with one_by_one() as beside:
        emulator = beside.add(emulator_packages.build, announce)
        authority.of(daemon.account_of(folder))
        artifacts.build(announce)
        emulator.result()
