"""Prices of a region: ``prices/<region>.yaml``, which ``headwater prices`` writes and ``headwater cost`` multiplies."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import msgspec

from headwater.yaml_files import convert, load_yaml, read_yaml, refusal

FOLDER = Path(__file__).with_name("prices")


class Offer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A price list of AWS: when AWS published it, and its address."""

    published: str
    source: str


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """US dollars per unit, without tax. A price read from one of the file's ``offers`` names the product (``sku``)
    there; any other price has its own ``source`` and ``date``. ``estimate`` marks a price that was not read at its
    source."""

    price: Annotated[float, msgspec.Meta(ge=0)]
    unit: str
    offer: str | None = None
    sku: str | None = None
    source: str | None = None
    date: str | None = None
    estimate: bool = False


class RegionPrices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The prices of a region by name, and the price lists that they were read from by offer code."""

    region: str
    offers: Mapping[str, Offer]
    prices: Mapping[str, Price]

    def date(self, name: str) -> str:
        """When a price was published, or read by hand."""
        price = self.prices[name]
        return price.date or self.offers[str(price.offer)].published[:10]

    def source(self, name: str) -> str:
        """Where a price stands."""
        price = self.prices[name]
        return price.source or f"{self.offers[str(price.offer)].source} {price.sku}"


def path(region: str, folder: Path = FOLDER) -> Path:
    """Where a region's prices are kept."""
    return folder / f"{region}.yaml"


def read(region: str, folder: Path = FOLDER) -> RegionPrices | None:
    """Read a region's prices; None where there is no file. Raises UserError where the file is not such a file."""
    file = path(region, folder)
    if not file.exists():
        return None
    where, document = str(file), read_yaml(file)
    fields = convert(document, _File, where)
    if fields.region != region:
        raise refusal(where, "region", fields.region, f"{region}, the file's name")
    offers = {code: convert(entry, Offer, f"{where}: offers.{code}") for code, entry in fields.offers.items()}
    prices = {name: convert(entry, Price, f"{where}: prices.{name}") for name, entry in fields.prices.items()}
    for name, price in prices.items():
        if (price.source is None or price.date is None) and (price.offer not in offers or price.sku is None):
            found = {"offer": price.offer, "sku": price.sku, "source": price.source, "date": price.date}
            raise refusal(where, f"prices.{name}", found, "one of the file's offers and a sku, or a source and a date")
    return RegionPrices(region, offers, prices)


def text(prices: RegionPrices) -> str:
    """A region's prices as its file holds them: sorted by name, one price per line."""
    return "".join(_lines(prices))


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    region: str
    offers: dict[str, Any]
    prices: dict[str, Any]


def _lines(prices: RegionPrices) -> Iterable[str]:
    yield f"""\
# Prices of {prices.region} in US dollars without tax. `headwater prices {prices.region}` reads them from AWS's price
# lists: such a price names its offer and its product's SKU there. A price with a source and a date of its own was not
# read from these lists; `estimate: true` marks one that was not read at its source either.
region: {prices.region}
offers:{"" if prices.offers else " {}"}
"""
    for code, offer in sorted(prices.offers.items()):
        yield f"  {code}: {_flow(msgspec.to_builtins(offer))}\n"
    yield f"prices:{'' if prices.prices else ' {}'}\n"
    for name, price in sorted(prices.prices.items()):
        fields = {field: value for field, value in msgspec.to_builtins(price).items() if value not in (None, False)}
        yield f"  {name}: {_flow(fields | {'price': price.price})}\n"


def _flow(fields: Mapping[str, object]) -> str:
    return "{" + ", ".join(f"{name}: {_scalar(value)}" for name, value in fields.items()) + "}"


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return format(Decimal(repr(value)).normalize(), "f")
    written = str(value)
    is_plain = re.fullmatch(r"[A-Za-z][A-Za-z0-9 -]*", written) and load_yaml(written, "a text") == written
    return written if is_plain else json.dumps(written)
