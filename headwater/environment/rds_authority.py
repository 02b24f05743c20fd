"""The authorities that sign certificates of PostgreSQL databases: RDS's for each region, or an environment's own."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from headwater.environment.model import Environment
from headwater.errors import UserError
from headwater.yaml_files import read_yaml, refusal

FILE = Path(__file__).with_name("rds_authority.yaml")
_CERTIFICATE = "-----BEGIN CERTIFICATE-----"


def identifier() -> str:
    """Return the ``CACertificateIdentifier`` of every database instance that a deployment makes."""
    name: str = _document()["authority"]
    return name


def root(region: str) -> str:
    """Return the authority's root certificate in a region, as PEM. Raises UserError if the file lacks the region."""
    roots: dict[str, str] = _document()["roots"]
    if region not in roots:
        raise refusal(
            str(FILE),
            f"roots.{region}",
            None,
            f"the root certificate of {identifier()} from "
            f"https://truststore.pki.rds.amazonaws.com/{region}/{region}-bundle.pem",
        )
    return roots[region]


def trusted(environment: Environment, folder: Path) -> str:
    """Return the root certificate, as PEM, by which clients verify the server of an environment's database.

    ``folder`` is the lake folder, to which the path in ``database.root_certificate`` is relative. Raises UserError.
    """
    file = environment.postgresql.database.root_certificate
    if file is None:
        return root(environment.region)
    path = folder / file
    text = path.read_text() if path.exists() else None
    if text is None or _CERTIFICATE not in text:
        found = "which is missing" if text is None else "which has no certificate"
        raise UserError(f"database.root_certificate: found {file}, {found}, expected a file with a PEM certificate")
    return text


@cache
def _document() -> dict[str, Any]:
    document: dict[str, Any] = read_yaml(FILE)
    return document
