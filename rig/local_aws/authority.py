"""The authority that signs the certificates of the local AWS's databases.

Synthesis needs it, because templates name it.
"""

from __future__ import annotations

from pathlib import Path

from headwater import private_files
from rig.local.certificates import Authority

ROOT = "authority.pem"
"""The file of the authority's certificate, beside the folder of a local AWS."""
_KEY = "authority.key"


def of(account: Path) -> Authority:
    """The authority of the local AWS below a folder; made if missing."""
    root, key = account.with_name(ROOT), account.with_name(_KEY)
    if not key.exists():
        made = Authority.make()
        account.parent.mkdir(parents=True, exist_ok=True)
        root.write_text(made.root)
        private_files.write(key, made.key)
    return Authority(root.read_text(), key.read_text())
