"""The authority that signs the certificates of the local AWS's databases: made in set-up, since templates name it."""

from __future__ import annotations

from headwater import private_files
from headwater.errors import UserError
from headwater.paths import BUILD
from rig.local.certificates import Authority

ROOT = BUILD / "local_aws" / "authority.pem"
KEY = BUILD / "local_aws" / "authority.key"


def build() -> None:
    """Make the authority of this checkout, unless it is there."""
    if not KEY.exists():
        authority = Authority.make()
        ROOT.parent.mkdir(parents=True, exist_ok=True)
        ROOT.write_text(authority.root)
        private_files.write(KEY, authority.key)


def read() -> Authority:
    """The authority of this checkout. Raises UserError where it has not been made."""
    if not KEY.exists():
        raise UserError(f"{KEY} is missing: run `make assets`")
    return Authority(ROOT.read_text(), KEY.read_text())
