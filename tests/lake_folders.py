"""Lake folders of tests."""

from importlib.metadata import version
from pathlib import Path

from headwater.lake_folder import EXAMPLE, FILE, LakeFolder


def lake_folder(root: Path, contracts: Path = EXAMPLE.contracts, config: Path = EXAMPLE.config) -> LakeFolder:
    """Make a lake folder that shares contracts and environments, by default the example's."""
    root.mkdir(parents=True, exist_ok=True)
    (root / FILE).write_text(f"name: example\nrelease: {version('headwater')}\n")
    folder = LakeFolder(root)
    contracts.mkdir(parents=True, exist_ok=True)
    for link, target in ((folder.contracts, contracts), (folder.config, config)):
        if not link.is_symlink():
            link.symlink_to(target.resolve())
    return folder
