"""Checkouts of former releases, as their users had them: environments, contracts, SQL, and reviewed files.

``tests/releases/`` has an archive of each release, written by ``git archive``: of commit 19c9279c for 0.1.0, and of
f9d066ce for 0.2.0. The archives have only dev's baselines.
"""

import tarfile
from pathlib import Path

ARCHIVES = Path(__file__).parent / "releases"
FIRST, SECOND = "0.1.0", "0.2.0"
ACCOUNT = '"444455556666"'


def former_checkout(release: str, folder: Path) -> Path:
    """Unpack the files of a release's checkout into a folder, and return the folder.

    Environments of 0.1.0 that keep their data get an account, which 0.1.0 did not require.
    """
    with tarfile.open(ARCHIVES / f"{release}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    if release == FIRST:
        for name in ("stage", "prod"):
            path = folder / "config" / f"{name}.yaml"
            path.write_text(path.read_text().replace("account: null", f"account: {ACCOUNT}"))
    return folder
