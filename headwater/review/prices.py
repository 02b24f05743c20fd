"""Prices of one region, which ``headwater cost`` multiplies: ``prices.yaml``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from headwater.yaml_files import END, convert, read_yaml

FILE = Path(__file__).with_name("prices.yaml")
Address = Annotated[str, msgspec.Meta(pattern=f"^https://.+{END}", extra={"expected": "an address, https://…"})]
Date = Annotated[
    str,
    msgspec.Meta(
        pattern=rf"^20\d\d-[01]\d(-[0-3]\d)?{END}",
        extra={"expected": 'a month or a day in quotes, such as "2026-11"'},
    ),
]


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The price of one unit."""

    price: Annotated[float, msgspec.Meta(ge=0)]
    """US dollars for each unit, without tax."""
    unit: str
    """The unit that is paid for, such as ``GB-month``."""
    source: Address
    """The page that has the price."""
    date: Date
    """When the page had the price: a month or a day."""
    estimate: bool = False
    """True if nobody has read the price on that page."""


class Prices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The prices of a region."""

    region: str
    """AWS's name of the region, such as ``eu-central-1``."""
    prices: Mapping[str, Price]
    """Each price by its name. The price of an instance type has the type's name."""


def read_prices(file: Path = FILE) -> Prices:
    """Read a file of prices. Raises UserError naming the first field that does not fit."""
    document = convert(read_yaml(file), _Document, str(file))
    prices = {name: convert(entry, Price, f"{file}: prices.{name}") for name, entry in document.prices.items()}
    return Prices(document.region, prices)


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    region: str
    prices: dict[str, Any]
