"""The certificate authority that signs the certificates of Aurora's instances, and its root in each region."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from headwater.yaml_files import read_yaml, refusal

FILE = Path(__file__).with_name("rds_authority.yaml")


def identifier() -> str:
    """The ``CACertificateIdentifier`` that every instance is given."""
    name: str = _document()["authority"]
    return name


def root(region: str) -> str:
    """The authority's root certificate in a region, as PEM. Raises UserError where the file has none."""
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


@cache
def _document() -> dict[str, Any]:
    document: dict[str, Any] = read_yaml(FILE)
    return document
