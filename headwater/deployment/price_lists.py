"""AWS's public price lists: which product of them each price is (``price_products.yaml``), and reading it there.

A price list is a CSV file per offer and region: five lines of metadata, the columns' names, then a line per price of a
product (https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/reading-service-price-list-file-for-services.html).
EC2's has several hundred MB, so files are read line by line.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from headwater.deployment import allow_lists
from headwater.deployment.region_prices import Offer, Price, RegionPrices
from headwater.errors import UserError
from headwater.yaml_files import convert, either, read_yaml

PRODUCTS = Path(__file__).with_name("price_products.yaml")
ADDRESS = "https://pricing.us-east-1.amazonaws.com/offers/v1.0/aws"
CURRENCY = "USD"
# Reserved terms stand in the same file.
_TERM = "OnDemand"
_METADATA_LINES = 5
_SHOWN = 3

# A usage type begins with its region: EUC1-, EU- (eu-west-1) or nothing (us-east-1) as in
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/bp-understanding-billing.html; KMS writes eu-west-1-.
_REGION_PREFIX = r"^(?:EU|[A-Z]{{3}}\d|{region})-"


class Selection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The values that one product has in the columns of its price list."""

    product_family: str | None = None
    usage_type: str | None = None
    operation: str | None = None
    group: str | None = None
    instance_type: str | None = None
    operating_system: str | None = None
    tenancy: str | None = None
    pre_installed_software: str | None = None
    capacity_status: str | None = None
    software_type: str | None = None
    database_engine: str | None = None
    volume_type: str | None = None
    volume_api_name: str | None = None

    def columns(self) -> dict[str, str]:
        """The selected values by column, as AWS names it."""
        values: Mapping[str, str | None] = msgspec.to_builtins(self)
        return {_COLUMNS[name]: value for name, value in values.items() if value is not None}


_COLUMNS = {
    "usage_type": "usageType",
    "instance_type": "Instance Type",
    "product_family": "Product Family",
    "operation": "operation",
    "group": "Group",
    "operating_system": "Operating System",
    "tenancy": "Tenancy",
    "pre_installed_software": "Pre Installed S/W",
    "capacity_status": "CapacityStatus",
    "software_type": "Software Type",
    "database_engine": "Database Engine",
    "volume_type": "Volume Type",
    "volume_api_name": "Volume API Name",
}
# The columns that tell most products apart, the best first: a row is compared with the products of its value only.
_KEYS = ("usageType", "Instance Type", "Product Family")


class Product(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a price stands in AWS's lists: ``price_products.yaml`` says what each field means."""

    offer: str
    select: Selection
    unit: str
    list_units: tuple[str, ...]
    seen: str
    times: int = 1
    all_regions: bool = False
    unsure: str | None = None


class _Types(Product, frozen=True, kw_only=True):
    """A product per instance type of some allow-lists; ``{type}`` stands for the type."""

    name: str
    of: tuple[str, ...]

    def products(self) -> Iterator[tuple[str, Product]]:
        """The product of each type, with the name of its price."""
        for instance_type in dict.fromkeys(type_ for name in self.of for type_ in allow_lists.instance_types(name)):
            fields = {column: getattr(self, column) for column in Product.__struct_fields__}
            values = msgspec.to_builtins(self.select).items()
            select = {name: value and value.replace("{type}", instance_type) for name, value in values}
            name = self.name.replace("{type}", instance_type)
            yield name, Product(**fields | {"select": Selection(**select)})


@dataclass(frozen=True)
class Reading:
    """What price lists say of a region: ``prices``, and of each price that was not read why (``problems``)."""

    prices: RegionPrices
    problems: Mapping[str, str]

    def over(self, earlier: RegionPrices | None) -> RegionPrices:
        """These prices, and those of an earlier file that were not read, which become estimates."""
        if earlier is None:
            return self.prices
        kept = {
            name: Price(price.price, price.unit, source=earlier.source(name), date=earlier.date(name), estimate=True)
            for name, price in earlier.prices.items()
        }
        return RegionPrices(self.prices.region, self.prices.offers, {**kept, **self.prices.prices})


@cache
def products() -> dict[str, Product]:
    """The product of each price by its name, those of instance types included."""
    document: dict[str, Any] = read_yaml(PRODUCTS)
    single = {name: convert(entry, Product, f"{PRODUCTS}: {name}") for name, entry in document["prices"].items()}
    by_type = [convert(entry, _Types, f"{PRODUCTS}: types") for entry in document["types"]]
    return single | dict(product for types in by_type for product in types.products())


def read(folder: Path, region: str, wanted: Mapping[str, Product] | None = None) -> Reading:
    """Read the prices of a region, all or the ``wanted`` ones, from ``folder``, which holds AWS's files under their own
    paths: ``<offer>/current/<region>/index.csv``. Raises UserError where a file is missing or is no such file."""
    by_file: dict[str, dict[str, Product]] = {}
    for name, product in (products() if wanted is None else wanted).items():
        by_file.setdefault(_file(product, region), {})[name] = product
    missing = [file for file in sorted(by_file) if not (folder / file).is_file()]
    if missing:
        raise UserError(
            f"{folder}: found {len(by_file) - len(missing)} of {len(by_file)} price lists. To fetch the others:\n"
            f"  for file in {' '.join(missing)}; do\n"
            f'    curl --fail --create-dirs --output "{folder}/$file" "{ADDRESS}/$file"\n'
            "  done"
        )
    offers: dict[str, Offer] = {}
    prices: dict[str, Price] = {}
    problems: dict[str, str] = {}
    for file, searched in sorted(by_file.items()):
        code, is_regional = file.partition("/")[0], f"/{region}/" in file
        searches = [_Search(name, product, region) for name, product in searched.items()]
        published = _search(folder / file, code, region if is_regional else "", searches)
        offer = code if is_regional else f"{code} of all regions"
        offers[offer] = Offer(published, f"{ADDRESS}/{file}")
        for search in searches:
            try:
                prices[search.name] = search.price(offer)
            except _Unread as problem:
                problems[search.name] = str(problem)
    return Reading(RegionPrices(region, offers, prices), problems)


def _file(product: Product, region: str) -> str:
    return f"{product.offer}/current/{'' if product.all_regions else f'{region}/'}index.csv"


class _Unread(Exception):
    """Why a price list does not say a price."""


def _search(path: Path, offer: str, region: str, searches: Sequence[_Search]) -> str:
    """Show each search the rows that concern it, in one pass. Returns when the list was published."""
    # Whatever is no text has no columns of a price list.
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        rows = _Lines(path, file)
        metadata, header = _header(path, offer, rows)
        columns = _Columns(path, header)
        by_key: dict[int, dict[str, list[_Search]]] = {}
        for search in searches:
            key = search.prepare(columns)
            if key is not None:
                column, value = key
                by_key.setdefault(column, {}).setdefault(value, []).append(search)
        term, place = columns["TermType"], columns["Region Code"]
        usage, prefix = columns["usageType"], re.compile(_REGION_PREFIX.format(region=re.escape(region)))
        regions: set[str] = set()
        for row in rows:
            if len(row) != len(header):
                raise UserError(
                    f"{path}: line {rows.line_num}: found {len(row)} fields, expected {len(header)}: "
                    "the file is cut off; fetch it again"
                )
            regions.add(row[place])
            if row[term] != _TERM or row[place] != region:
                continue
            row[usage] = prefix.sub("", row[usage], count=1)
            for column, of_value in by_key.items():
                for search in of_value.get(row[column].casefold(), ()):
                    search.see(row)
    if region not in regions:
        found, expected = ", ".join(sorted(regions)) or "no row", region or "a row without a region"
        raise UserError(f"{path}: Region Code: found {found}, expected {expected}")
    return metadata["Publication Date"]


class _Lines(Iterator[list[str]]):
    """The lines of a CSV file, each as its fields. Raises UserError where the file is no CSV."""

    def __init__(self, path: Path, file: Iterable[str]) -> None:
        self._path = path
        self._rows = csv.reader(file)

    @property
    def line_num(self) -> int:
        """The number of the last line that was read."""
        return self._rows.line_num

    def __next__(self) -> list[str]:
        try:
            return next(self._rows)
        except csv.Error as error:
            raise UserError(f"{self._path}: line {self.line_num}: found {error}, expected CSV") from None


def _header(path: Path, offer: str, rows: Iterator[list[str]]) -> tuple[dict[str, str], list[str]]:
    """The metadata by name, and the columns' names."""
    metadata = dict(row[:2] for row in islice(rows, _METADATA_LINES) if len(row) > 1)
    header = next(rows, [])
    if "SKU" not in header or "Publication Date" not in metadata:
        raise UserError(
            f"{path}: line {_METADATA_LINES + 1}: found no columns' names, expected those of a price list of AWS "
            "below its Publication Date"
        )
    if metadata.get("OfferCode") != offer:
        raise UserError(f"{path}: OfferCode: found {metadata.get('OfferCode')}, expected {offer}")
    return metadata, header


class _Columns:
    """Where each column is. AWS writes a name differently from file to file: usageType, Usage Type."""

    def __init__(self, path: Path, header: Sequence[str]) -> None:
        self._path = path
        self._positions = {_plain(name): position for position, name in enumerate(header)}

    def __contains__(self, name: str) -> bool:
        return _plain(name) in self._positions

    def __getitem__(self, name: str) -> int:
        if name not in self:
            raise UserError(f"{self._path}: found no column {name}, expected a price list of AWS")
        return self._positions[_plain(name)]


def _plain(name: str) -> str:
    return re.sub(r"[^a-z]", "", name.casefold())


class _Search:
    """Looks for the one product of a price, and for its price."""

    def __init__(self, name: str, product: Product, region: str) -> None:
        self.name = name
        self._product = product
        self._missing: list[str] = []
        self._conditions: list[tuple[str, int, str]] = []
        self._fields: Sequence[int] = ()
        self._rows: list[_Row] = []
        self._near: list[str] = []

    def prepare(self, columns: _Columns) -> tuple[int, str] | None:
        """Learn where the columns are. Returns the column and the value that a row of the product must have, or None
        where the list lacks a column."""
        selected = self._product.select.columns()
        self._missing = [name for name in selected if name not in columns]
        if self._missing:
            return None
        self._conditions = [(name, columns[name], value.casefold()) for name, value in selected.items()]
        self._fields = [columns[name] for name in _ROW]
        key = next(name for name in _KEYS if name in selected)
        return columns[key], selected[key].casefold()

    def see(self, row: Sequence[str]) -> None:
        """Take a row of the product, or remember by what the row differs from it."""
        different = [(name, row[at]) for name, at, value in self._conditions if row[at].casefold() != value]
        if not different:
            self._rows.append(_Row(*(row[at] for at in self._fields)))
        elif len(self._near) < _SHOWN:
            near = ", ".join(f"{name} {value or 'empty'}" for name, value in different)
            self._near += [near] if near not in self._near else []

    def price(self, offer: str) -> Price:
        """The price of the one product that was seen. Raises _Unread where the rows do not say it."""
        rows = self._one_product()
        unit = either(sorted({row.unit for row in rows}))
        if not {row.unit.casefold() for row in rows} <= {known.casefold() for known in self._product.list_units}:
            raise _Unread(f"found the unit {unit}, expected {either(self._product.list_units)}")
        tiers = sorted((_number(row.start, "StartingRange"), _number(row.price, "PricePerUnit")) for row in rows)
        starts = [start for start, _ in tiers]
        if len(set(starts)) < len(starts):
            found = ", ".join(f"{price.normalize():f} from {start.normalize():f}" for start, price in tiers)
            raise _Unread(f"found {found}, expected one price per StartingRange")
        # A free tier comes first.
        paid = next((price for _, price in tiers if price), None)
        if paid is None:
            raise _Unread("found the price 0, expected a price beyond the free tier")
        return Price(float(paid * self._product.times), self._product.unit, offer=offer, sku=rows[0].sku)

    def _one_product(self) -> list[_Row]:
        """The rows of the one product in dollars."""
        wanted = ", ".join(f"{name} {value}" for name, value in self._product.select.columns().items())
        hint = f" (unsure: {self._product.unsure})" if self._product.unsure else ""
        if self._missing:
            raise _Unread(f"found no column {either(self._missing)}, expected {wanted}{hint}")
        if not self._rows:
            near = f"only rows with {'; '.join(self._near)}" if self._near else "no row"
            raise _Unread(f"found {near}, expected {wanted}{hint}")
        rows = [row for row in self._rows if row.currency == CURRENCY]
        if not rows:
            currencies = either(sorted({row.currency for row in self._rows}))
            raise _Unread(f"found prices in {currencies}, expected {CURRENCY}")
        descriptions = {row.sku: row.description for row in rows}
        if len(descriptions) > 1:
            shown = "; ".join(f"{sku} ({description})" for sku, description in sorted(descriptions.items())[:_SHOWN])
            raise _Unread(f"found {len(descriptions)} products, expected one with {wanted}: {shown}{hint}")
        return rows


class _Row(NamedTuple):
    """What a price is made of: the values of the columns ``_ROW``."""

    sku: str
    description: str
    start: str
    unit: str
    price: str
    currency: str


_ROW = ("SKU", "PriceDescription", "StartingRange", "Unit", "PricePerUnit", "Currency")


def _number(text: str, column: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise _Unread(f"{column}: found {text or 'nothing'}, expected a number") from None
