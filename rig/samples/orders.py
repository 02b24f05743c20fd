"""Northwind-shaped data of any size, the same for the same scale and seed.

Names and texts are invented. The shape follows Northwind: few regions, shippers and employees, and a handful of items
per order. A few customers and products make up most of the trade. Fields that are empty in Northwind are empty here.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from itertools import accumulate
from pathlib import Path
from random import Random

from headwater.errors import UserError

OUTBOX = "order_events"
"""The table with a row per order. The database itself writes it."""
TABLES = (
    "region",
    "territories",
    "employees",
    "employee_territories",
    "categories",
    "suppliers",
    "products",
    "customers",
    "shippers",
    "orders",
    "order_details",
)
"""The tables to load. A parent comes before the tables that refer to it."""
MAX_SCALE = 10_000.0
_FIRST_DAY = date(2022, 1, 3)
_DAYS = 1_095
_FIRST_ORDER = 10_001
_MAX_CUSTOMERS = 26**5

_REGIONS = ("Coast", "Highlands", "Lakes", "Plains")
_CATEGORIES = (
    ("Drinks", "Teas, coffees, juices and sodas"),
    ("Sauces", "Relishes, spreads, oils and seasonings"),
    ("Sweets", "Biscuits, chocolate and candied fruit"),
    ("Dairy", "Cheeses, butter and yogurt"),
    ("Grains", "Breads, pasta, flour and flakes"),
    ("Meat", "Cured, smoked and fresh meats"),
    ("Garden", "Fresh and dried fruit and vegetables"),
    ("Fish", "Fish, shells and sea plants"),
)
_PLACES = (
    ("Aarhus", None, "Denmark"), ("Bergen", None, "Norway"), ("Bologna", None, "Italy"), ("Boise", "ID", "USA"),
    ("Campinas", "SP", "Brazil"), ("Cork", "Co. Cork", "Ireland"), ("Gent", None, "Belgium"), ("Graz", None, "Austria"),
    ("Köln", None, "Germany"), ("León", None, "Mexico"), ("Lyon", None, "France"), ("Oulu", None, "Finland"),
    ("Portland", "OR", "USA"), ("Porto", None, "Portugal"), ("Québec", "QC", "Canada"), ("Salta", None, "Argentina"),
    ("Sevilla", None, "Spain"), ("Szczecin", None, "Poland"), ("Umeå", None, "Sweden"), ("York", None, "UK"),
)  # fmt: skip
_FIRST_NAMES = (
    "Ada", "Björn", "Carla", "Dmitri", "Elena", "Farid", "Grete", "Hugo", "Inês", "Jonas", "Karin", "Liam", "Marta",
    "Noé", "Olga", "Pavel", "Rosa", "Søren", "Tomás", "Wanda",
)  # fmt: skip
_LAST_NAMES = (
    "Abel", "Brandt", "Castro", "Dubois", "Eriksen", "Ferrari", "Gruber", "Haas", "Ibsen", "Jansen", "Kowal", "Lopes",
    "Martin", "Novak", "O'Neill", "Petit", "Quinn", "Rossi", "Silva", "Weber",
)  # fmt: skip
_WORDS = (
    "Amber", "Bright", "Cedar", "Dune", "Ember", "Fjord", "Golden", "Harbor", "Iron", "Juniper", "Kestrel", "Linden",
    "Meadow", "North", "Orchard", "Pine", "Quarry", "River", "Stone", "Thistle",
)  # fmt: skip
_TRADES = ("Market", "Kitchen", "Foods", "Traders", "Deli", "Provisions", "Stores", "Imports", "Table", "Pantry")
_GOODS = (
    ("Tea", "Cider", "Roast", "Lemonade"), ("Mustard", "Chutney", "Oil", "Pepper"), ("Nougat", "Wafers", "Toffee"),
    ("Cheese", "Butter", "Skyr"), ("Rye", "Noodles", "Flakes", "Crackers"), ("Ham", "Sausage", "Jerky"),
    ("Beans", "Prunes", "Cabbage", "Tofu"), ("Herring", "Mussels", "Roe", "Kelp"),
)  # fmt: skip
_PACKS = ("12 - 250 g tins", "24 bottles", "10 boxes x 20 bags", "5 kg pkg.", "16 - 500 ml jars", "48 pieces")
_JOBS = ("Owner", "Buyer", "Sales Agent", "Accounting Manager", "Marketing Assistant")
_STREETS = ("Mill Road", "Rue du Port", "Hauptstr.", "Av. Central", "Storgata", "Via Roma", "Calle Mayor")
_DISCOUNTS = ("0", "0", "0", "0", "0.05", "0.1", "0.15", "0.2", "0.25")

_Row = Sequence[object]


def generate(scale: float, seed: int, folder: Path) -> dict[str, int]:
    """Write one CSV file per table into ``folder``, for ``loading``; returns the number of rows by table.

    Scale 1 has 830 orders, like Northwind. Orders and customers grow with the scale, products and suppliers with its
    square root; the other tables keep their size. Raises UserError unless the scale is above 0 and at most 10,000.
    """
    if not (0 < scale <= MAX_SCALE):
        raise UserError(f"scale: found {scale}, expected a number above 0 and at most {MAX_SCALE:,.0f}.")
    random = Random(f"{scale!r} {seed}")  # noqa: S311 - test data, nothing secret
    folder.mkdir(parents=True, exist_ok=True)
    tables = _Tables(folder)
    suppliers = max(2, round(29 * math.sqrt(scale)))
    products = max(5, round(77 * math.sqrt(scale)))
    customers = max(3, round(91 * scale))

    tables.write("region", _REGION, [(at, name) for at, name in enumerate(_REGIONS, 1)])
    territories = [
        (f"{random.randrange(100):02}{at:03}", f"{random.choice(_WORDS)} {random.choice(_PLACES)[0]}", 1 + at % 4)
        for at in range(1, 54)
    ]
    tables.write("territories", _TERRITORIES, territories)
    tables.write("employees", _EMPLOYEES, [_employee(random, at) for at in range(1, 10)])
    # The last employee has no territory.
    memberships = sorted({(1 + at % 8, row[0]) for at, row in enumerate(territories)})
    tables.write("employee_territories", _EMPLOYEE_TERRITORIES, memberships)
    tables.write("categories", _CATEGORY, [(at, *row, None) for at, row in enumerate(_CATEGORIES, 1)])
    tables.write(
        "suppliers",
        _SUPPLIERS,
        [
            (at, *_company(random), random.choice((None, None, "www.example.com/catalog")))
            for at in range(1, suppliers + 1)
        ],
    )
    prices = [round(random.lognormvariate(3, 0.8), 2) for _ in range(products)]
    tables.write("products", _PRODUCTS, [_product(random, at, price, suppliers) for at, price in enumerate(prices, 1)])
    companies = [(_letters(at), *_company(random)) for at in _spread(random, customers)]
    tables.write("customers", _CUSTOMERS, companies)
    tables.write(
        "shippers",
        _SHIPPERS,
        [(at, f"{word} Freight", _phone(random)) for at, word in enumerate(("Swift", "Anchor", "Comet"), 1)],
    )
    _orders(random, tables, max(1, round(830 * scale)), companies, prices)
    return tables.rows


_COMPANY = "company_name contact_name contact_title address city region postal_code country phone fax"
_REGION = "region_id region_description"
_TERRITORIES = "territory_id territory_description region_id"
_EMPLOYEES = (
    "employee_id last_name first_name title title_of_courtesy birth_date hire_date address city region postal_code "
    "country home_phone extension photo notes reports_to photo_path"
)
_EMPLOYEE_TERRITORIES = "employee_id territory_id"
_CATEGORY = "category_id category_name description picture"
_SUPPLIERS = f"supplier_id {_COMPANY} homepage"
_PRODUCTS = (
    "product_id product_name supplier_id category_id quantity_per_unit unit_price units_in_stock units_on_order "
    "reorder_level discontinued"
)
_CUSTOMERS = f"customer_id {_COMPANY}"
_SHIPPERS = "shipper_id company_name phone"
_ORDERS = (
    "order_id customer_id employee_id order_date required_date shipped_date ship_via freight ship_name ship_address "
    "ship_city ship_region ship_postal_code ship_country"
)
_ORDER_DETAILS = "order_id product_id unit_price quantity discount"


class _Tables:
    """Writes tables as CSV and counts their rows."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.rows: dict[str, int] = {}

    def write(self, table: str, header: str, rows: Iterable[_Row]) -> None:
        count = 0
        with (self._folder / f"{table}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(header.split())
            for row in rows:
                writer.writerow(row)
                count += 1
        self.rows[table] = count


def _orders(random: Random, tables: _Tables, count: int, companies: Sequence[_Row], prices: Sequence[float]) -> None:
    # A few customers and products make up most of the trade.
    weights = list(accumulate(1 / (at + 3) ** 0.7 for at in range(len(companies))))
    product_weights = list(accumulate(1 / (at + 5) ** 0.5 for at in range(len(prices))))
    orders: list[_Row] = []
    items: list[_Row] = []
    last_day = _FIRST_DAY + timedelta(days=_DAYS)
    for at in range(count):
        order_id = _FIRST_ORDER + at
        company = random.choices(companies, cum_weights=weights)[0]
        day = _FIRST_DAY + timedelta(days=at * _DAYS // count)
        shipped = day + timedelta(days=random.randint(1, 30))
        orders.append(
            (
                order_id,
                company[0],
                random.randint(1, 9),
                day,
                day + timedelta(days=random.choice((14, 28, 42))),
                shipped if shipped <= last_day else None,
                # Now and then an order is not shipped yet.
                random.choice((1, 2, 3)) if random.random() < 0.98 else None,
                f"{random.lognormvariate(3.5, 1.2):.2f}",
                company[1],
                *company[4:9],
            )
        )
        chosen = {
            random.choices(range(len(prices)), cum_weights=product_weights)[0]
            for _ in range(random.choice((1, 1, 2, 2, 3, 3, 4, 5)))
        }
        items.extend(
            (
                order_id,
                product + 1,
                # Sold at the list price or at an earlier, lower one.
                f"{prices[product] * random.choice((1, 1, 0.8)):.4f}",
                min(random.randint(1, 60), random.randint(1, 130)),
                random.choice(_DISCOUNTS),
            )
            for product in sorted(chosen)
        )
    tables.write("orders", _ORDERS, orders)
    tables.write("order_details", _ORDER_DETAILS, items)


def _employee(random: Random, at: int) -> _Row:
    born = date(1960, 1, 1) + timedelta(days=random.randrange(14_000))
    last, first = random.choice(_LAST_NAMES), random.choice(_FIRST_NAMES)
    return (
        at,
        last,
        first,
        "Vice President, Sales" if at == 1 else "Sales Representative",
        random.choice(("Ms.", "Mr.", "Dr.")),
        born,
        born + timedelta(days=9_000 + random.randrange(2_000)),
        *_address(random),
        _phone(random),
        f"{random.randrange(10_000):04}",
        None,
        f"{first} joined the company from {random.choice(_WORDS)} {random.choice(_TRADES)}.",
        None if at == 1 else random.randint(1, at - 1),
        f"photos/{at}.jpg",
    )


def _product(random: Random, at: int, price: float, suppliers: int) -> _Row:
    category = random.randrange(len(_CATEGORIES))
    return (
        at,
        f"{random.choice(_WORDS)} {random.choice(_GOODS[category])} {at}",
        random.randint(1, suppliers),
        category + 1,
        random.choice(_PACKS),
        price,
        random.randrange(126),
        random.choice((0, 0, 0, 0, 20, 60)),
        random.choice((0, 5, 10, 20, 30)),
        int(random.random() < 0.1),
    )


def _company(random: Random) -> _Row:
    return (
        f"{random.choice(_WORDS)} {random.choice(_WORDS)} {random.choice(_TRADES)}",
        f"{random.choice(_FIRST_NAMES)} {random.choice(_LAST_NAMES)}",
        random.choice(_JOBS),
        *_address(random),
        _phone(random),
        _phone(random) if random.random() < 0.75 else None,
    )


def _address(random: Random) -> _Row:
    city, region, country = random.choice(_PLACES)
    return (
        f"{random.choice(_STREETS)} {random.randint(1, 199)}",
        city,
        region,
        f"{random.randrange(100_000):05}",
        country,
    )


def _phone(random: Random) -> str:
    return f"({random.randint(10, 99)}) 555-{random.randrange(10_000):04}"


def _spread(random: Random, count: int) -> list[int]:
    """``count`` different numbers below 26⁵."""
    return random.sample(range(_MAX_CUSTOMERS), count)


def _letters(number: int) -> str:
    """A number as five capital letters."""
    letters = ""
    for _ in range(5):
        number, digit = divmod(number, 26)
        letters += chr(ord("A") + digit)
    return letters
