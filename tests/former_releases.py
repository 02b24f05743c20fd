"""Checkouts of former releases, as their users had them: environments, contracts, SQL, and what reviewers read.

``tests/releases/`` has an archive of each, as ``git archive`` writes it of its commit: 19c9279c for 0.1.0 and f9d066ce
for 0.2.0. Of the baselines it has dev's alone.
"""

import tarfile
from pathlib import Path

ARCHIVES = Path(__file__).parent / "releases"
FIRST, SECOND = "0.1.0", "0.2.0"
ACCOUNT = '"444455556666"'


def former_checkout(release: str, folder: Path) -> Path:
    """Unpack the files of a release's checkout into a folder, and return it.

    The environments of 0.1.0 that keep their data get an account, which it did not want.
    """
    with tarfile.open(ARCHIVES / f"{release}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    if release == FIRST:
        for name in ("stage", "prod"):
            path = folder / "config" / f"{name}.yaml"
            path.write_text(path.read_text().replace("account: null", f"account: {ACCOUNT}"))
    return folder
