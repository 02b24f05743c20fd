"""Prices read from AWS's price lists.

``tests/price_lists`` is an excerpt with invented prices. The columns of AmazonEC2 are those of AWS's file of September
2025, those of AmazonRDS of April 2026; the others have the columns that all files share and those that are asked for.
"""

import csv
import gzip
import io
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from headwater import cli
from headwater.deployment import cost, price_lists, region_prices
from headwater.deployment.price_lists import Product, Selection
from headwater.deployment.region_prices import Offer, Price, RegionPrices
from headwater.deployment.templates import Deployment
from headwater.errors import UserError
from headwater.paths import ROOT

EXCERPT = ROOT / "tests" / "price_lists"
REGION = "eu-central-1"
EC2 = f"AmazonEC2/current/{REGION}/index.csv"
OF_EXCERPT = {
    "acu_hour": 0.1717,
    "aurora_gb_month": 0.1414,
    "aurora_million_io": 0.27,
    "dashboard_month": 3.3,
    "dynamodb_gb_month": 0.3111,
    "dynamodb_million_reads": 0.16,
    "ebs_gb_month": 0.1234,
    "key_million_requests": 3.3,
    "m7g.xlarge": 0.2345,
    "nat_gb": 0.0613,
    "nat_hour": 0.0612,
    "s3_gb_month": 0.0266,
    "s3_million_writes": 5.4,
}


def wanted(*names: str) -> dict[str, Product]:
    return {name: price_lists.products()[name] for name in names}


def problem(folder: Path, name: str, product: Product | None = None) -> str:
    """Why a price is not read."""
    reading = price_lists.read(folder, REGION, {name: product or price_lists.products()[name]})
    assert dict(reading.prices.prices) == {}
    return reading.problems[name]


@pytest.fixture
def lists(tmp_path: Path) -> Path:
    """A copy of the excerpt."""
    return Path(shutil.copytree(EXCERPT, tmp_path / "lists"))


def change(file: Path, before: str, after: str, count: int = 1) -> None:
    text = file.read_text()
    assert text.count(before) >= count
    file.write_text(text.replace(before, after))


def test_every_price_of_the_excerpt_is_read_among_its_neighbours() -> None:
    reading = price_lists.read(EXCERPT, REGION, wanted(*OF_EXCERPT))
    assert dict(reading.problems) == {}
    assert {name: price.price for name, price in reading.prices.prices.items()} == OF_EXCERPT
    assert not any(price.estimate for price in reading.prices.prices.values())


def test_a_price_says_where_it_is_from_and_of_when() -> None:
    prices = price_lists.read(EXCERPT, REGION, wanted("m7g.xlarge", "dashboard_month")).prices
    address = "https://pricing.us-east-1.amazonaws.com/offers/v1.0/aws"
    assert prices.source("m7g.xlarge") == f"{address}/{EC2} AAAAGOOD00000001"
    assert prices.source("dashboard_month") == f"{address}/AmazonCloudWatch/current/index.csv HHHHDASH00000001"
    assert (prices.date("m7g.xlarge"), prices.date("dashboard_month")) == ("2026-11-18", "2026-11-17")


def _conditions() -> Iterator[tuple[str, str]]:
    for name, fields in {
        "m7g.xlarge": ("operating_system", "tenancy", "pre_installed_software", "capacity_status"),
        "acu_hour": ("usage_type", "database_engine"),
        "s3_gb_month": ("volume_type",),
        "dynamodb_gb_month": ("usage_type",),
        "nat_hour": ("usage_type",),
    }.items():
        yield from ((name, field) for field in fields)


@pytest.mark.parametrize(("name", "field"), list(_conditions()))
def test_a_selection_that_leaves_a_column_out_finds_several_products(name: str, field: str) -> None:
    product = price_lists.products()[name]
    looser = msgspec.structs.replace(product, select=msgspec.structs.replace(product.select, **{field: None}))
    assert "products, expected one with" in problem(EXCERPT, name, looser)


def test_several_products_are_named_and_none_is_taken(lists: Path) -> None:
    change(lists / EC2, '"UnusedCapacityReservation"', '"Used"')
    assert problem(lists, "m7g.xlarge") == (
        "found 2 products, expected one with Product Family Compute Instance, Instance Type m7g.xlarge, "
        "Operating System Linux, Tenancy Shared, Pre Installed S/W NA, CapacityStatus Used: "
        "AAAAGOOD00000001 ($0.2345 per On Demand Linux m7g.xlarge Instance Hour); "
        "AAAAUNUS00000007 ($0.2345 per Unused Reservation Linux m7g.xlarge Instance Hour)"
    )


def test_a_product_that_is_not_there_is_named_with_what_comes_close(lists: Path) -> None:
    assert problem(lists, "t3.nano").startswith("found no row, expected Product Family Compute Instance")
    change(lists / EC2, '"gp3"', '"gp9"')
    assert problem(lists, "ebs_gb_month") == (
        "found only rows with Volume API Name gp9, expected Product Family Storage, usageType EBS:VolumeUsage.gp3, "
        "Volume API Name gp3"
    )


def test_an_unknown_unit_is_named_because_the_factor_may_be_wrong(lists: Path) -> None:
    change(lists / "AmazonS3" / "current" / REGION / "index.csv", '"Requests","0.0000054000"', '"1K","0.0054000000"')
    assert problem(lists, "s3_million_writes") == "found the unit 1K, expected Requests"


def test_a_price_in_another_currency_is_not_taken(lists: Path) -> None:
    file = lists / EC2
    kept = [line for line in file.read_text().splitlines(keepends=True) if "$0.2345 per On Demand" not in line]
    file.write_text("".join(kept))
    assert problem(lists, "m7g.xlarge") == "found prices in CNY, expected USD"


def test_a_product_without_a_paid_tier_has_no_price(lists: Path) -> None:
    change(lists / "AmazonDynamoDB" / "current" / REGION / "index.csv", '"0.3111000000"', '"0.0000000000"')
    assert problem(lists, "dynamodb_gb_month") == "found the price 0, expected a price beyond the free tier"


def test_two_prices_of_one_tier_are_named(lists: Path) -> None:
    change(lists / "AmazonDynamoDB" / "current" / REGION / "index.csv", '"25","Inf"', '"0","Inf"')
    found = "found 0 from 0, 0.3111 from 0, expected one price per StartingRange"
    assert problem(lists, "dynamodb_gb_month") == found


def test_a_list_without_a_column_is_no_reason_to_ignore_it(lists: Path) -> None:
    change(lists / EC2, '"CapacityStatus"', '"Capacity"')
    assert problem(lists, "m7g.xlarge").startswith("found no column CapacityStatus, expected Product Family")


def test_columns_are_found_however_aws_spells_them(lists: Path) -> None:
    change(lists / EC2, '"usageType"', '"Usage Type"')
    change(lists / EC2, '"Pre Installed S/W"', '"preInstalledSw"')
    change(lists / EC2, '"CapacityStatus"', '"capacitystatus"')
    assert price_lists.read(lists, REGION, wanted("m7g.xlarge", "nat_hour")).problems == {}


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ('"OfferCode","AmazonEC2"', '"OfferCode","AmazonRDS"', "OfferCode: found AmazonRDS, expected AmazonEC2"),
        ('"Version","20261118210411"\n', "", "line 6: found no columns' names, expected those of a price list"),
        ('"Region Code"', '"Regions"', "found no column Region Code, expected a price list of AWS"),
        (',"NatGateway"', "", "line 22: found 90 fields, expected 91: the file is cut off; fetch it again"),
        (f'"{REGION}"', '"eu-west-1"', "Region Code: found eu-central-1-ham-1, eu-west-1, us-east-1, expected eu-cent"),
    ],
)
def test_what_is_not_the_list_of_the_region_is_refused(lists: Path, before: str, after: str, found: str) -> None:
    change(lists / EC2, before, after)
    with pytest.raises(UserError) as refused:
        price_lists.read(lists, REGION, wanted("m7g.xlarge"))
    assert f"{lists / EC2}: {found}" in str(refused.value)


def test_a_compressed_list_is_refused(lists: Path) -> None:
    (lists / EC2).write_bytes(gzip.compress((lists / EC2).read_bytes()))
    with pytest.raises(UserError, match="line 6: found no columns' names, expected those of a price list"):
        price_lists.read(lists, REGION, wanted("m7g.xlarge"))


def test_what_is_no_csv_is_refused(lists: Path) -> None:
    (lists / EC2).write_text('"' + 200_000 * "a")
    with pytest.raises(UserError, match=r"index\.csv: line 1: found field larger than field limit .*, expected CSV"):
        price_lists.read(lists, REGION, wanted("m7g.xlarge"))


def test_missing_lists_are_refused_with_the_loop_that_fetches_them(tmp_path: Path) -> None:
    with pytest.raises(UserError) as refused:
        price_lists.read(tmp_path, "eu-west-1", wanted("m7g.xlarge", "dashboard_month"))
    assert str(refused.value) == (
        f"{tmp_path}: found 0 of 2 price lists. To fetch the others:\n"
        "  for file in AmazonCloudWatch/current/index.csv AmazonEC2/current/eu-west-1/index.csv; do\n"
        f'    curl --fail --create-dirs --output "{tmp_path}/$file" '
        '"https://pricing.us-east-1.amazonaws.com/offers/v1.0/aws/$file"\n'
        "  done"
    )


def test_the_documented_loop_fetches_every_list_that_is_asked_for() -> None:
    page = (ROOT / "docs" / "reference" / "checks.md").read_text()
    loop = page.partition("for offer in ")[2].partition("; do")[0].replace(">", "").replace("\\", "")
    products = price_lists.products().values()
    assert loop.split() == sorted({product.offer for product in products if not product.all_regions})
    for offer in {product.offer for product in products if product.all_regions}:
        assert f"file={offer}/current/index.csv" in page


def test_every_price_has_a_place_in_the_lists_and_says_who_has_seen_it() -> None:
    products = price_lists.products()
    for name, product in products.items():
        assert product.seen, name
        assert product.select.usage_type or product.select.instance_type or product.select.product_family, name
    known = region_prices.read(REGION)
    assert known is not None
    # No release of EMR on the allow-list has these two.
    assert {name for name in known.prices if "m6g." not in name} <= set(products)
    assert [
        name for name, price in known.prices.items() if name in products and price.unit != products[name].unit
    ] == []


def write_lists(folder: Path, region: str) -> None:
    """The files that the command asks for, with one product per price at ten dollars per unit of the list."""
    files: dict[Path, list[dict[str, str]]] = {}
    for number, product in enumerate(price_lists.products().values()):
        place = "" if product.all_regions else f"{region}/"
        file = folder / f"{product.offer}/current/{place}index.csv"
        selected = product.select.columns()
        row = {"SKU": f"SKU{number:05}", "Unit": product.list_units[0], "PricePerUnit": "10.0000000000"} | selected
        if "usageType" in selected and not product.all_regions:
            row["usageType"] = f"EUW2-{selected['usageType']}"
        files.setdefault(file, []).append(row | {"Region Code": "" if product.all_regions else region})
    shared = {"TermType": "OnDemand", "StartingRange": "0", "Currency": "USD", "PriceDescription": "", "usageType": ""}
    for file, rows in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(price_list(file.relative_to(folder).parts[0], [shared | row for row in rows]))


def price_list(offer: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """A price list in AWS's format."""
    metadata = {"FormatVersion": "v1.0", "Disclaimer": "", "Publication Date": "2026-11-20T00:00:00Z", "Version": "1"}
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows([*metadata.items(), ("OfferCode", offer)])
    columns = list(dict.fromkeys(column for row in rows for column in row))
    writer.writerow(columns)
    writer.writerows([row.get(column, "") for column in columns] for row in rows)
    return text.getvalue()


def run(*arguments: str) -> str:
    done = CliRunner().invoke(cli.app, ["prices", *arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def test_the_command_writes_a_file_from_which_an_estimate_takes_its_prices(tmp_path: Path) -> None:
    write_lists(tmp_path / "lists", "eu-west-2")
    out = run("eu-west-2", "--from", str(tmp_path / "lists"), "--into", str(tmp_path))
    number = len(price_lists.products())
    assert f"eu-west-2.yaml: {number} prices of 14 price lists" in out
    assert "Not read" not in out
    assert "  mcu_hour: usage type and unit" in out
    secret = {"headwater-dev-lake": {"Resources": {"Secret": {"Type": "AWS::SecretsManager::Secret"}}}}
    estimate = cost.estimate(Deployment(secret, "eu-west-2"), "dev", tmp_path)
    assert (estimate.total, estimate.unknown, estimate.prices_of) == (10, {}, "2026-11-20")


def test_the_command_writes_the_same_file_again_and_changes_one_line_per_price(tmp_path: Path) -> None:
    lists = tmp_path / "lists"
    write_lists(lists, "eu-west-2")
    run("eu-west-2", "--from", str(lists), "--into", str(tmp_path))
    first = (tmp_path / "eu-west-2.yaml").read_text().splitlines()
    run("eu-west-2", "--from", str(lists), "--into", str(tmp_path))
    assert (tmp_path / "eu-west-2.yaml").read_text().splitlines() == first
    change(lists / "AWSSecretsManager/current/eu-west-2/index.csv", "10.0000000000", "0.4500000000")
    run("eu-west-2", "--from", str(lists), "--into", str(tmp_path))
    second = (tmp_path / "eu-west-2.yaml").read_text().splitlines()
    (line,) = [new for old, new in zip(first, second, strict=True) if old != new]
    assert line.startswith("  secret_month: {price: 0.45, unit: secret-month, offer: AWSSecretsManager, sku: ")


def test_a_price_that_is_not_read_stays_as_an_estimate_or_is_missing_and_is_named(tmp_path: Path) -> None:
    earlier = RegionPrices(
        "eu-west-2",
        {"AWSGlue": Offer("2026-01-02T03:04:05Z", "https://glue")},
        {
            "dpu_hour": Price(0.5, "DPU-hour", offer="AWSGlue", sku="OLD"),
            "m6g.xlarge": Price(0.2, "hour", source="https://ec2", date="2025-12"),
        },
    )
    (tmp_path / "eu-west-2.yaml").write_text(region_prices.text(earlier))
    write_lists(tmp_path / "lists", "eu-west-2")
    change(tmp_path / "lists/AWSGlue/current/eu-west-2/index.csv", "Jobrun", "Other")
    change(tmp_path / "lists/awskms/current/eu-west-2/index.csv", "EUW2-KMS-Keys", "EUW2-KMS-Keyring")
    out = run("eu-west-2", "--from", str(tmp_path / "lists"), "--into", str(tmp_path))
    kept, _, missing = out.partition("Not read, and so not in the file:")
    assert "  dpu_hour: found only rows with operation Other, expected usageType ETL-DPU-Hour" in kept
    assert "  m6g.xlarge: price_products.yaml does not say where it stands" in kept
    assert "  key_month: found no row, expected Product Family Encryption Key, usageType KMS-Keys" in missing
    now = region_prices.read("eu-west-2", tmp_path)
    assert now is not None
    assert now.prices["dpu_hour"] == Price(0.5, "DPU-hour", source="https://glue OLD", date="2026-01-02", estimate=True)
    assert now.prices["m6g.xlarge"] == Price(0.2, "hour", source="https://ec2", date="2025-12", estimate=True)
    assert "key_month" not in now.prices


def test_the_committed_files_are_as_the_command_writes_them() -> None:
    files = sorted(region_prices.FOLDER.glob("*.yaml"))
    assert [file.stem for file in files] == [REGION]
    for file in files:
        prices = region_prices.read(file.stem)
        assert prices is not None
        assert region_prices.text(prices) == file.read_text()


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        ("{price: cheap, unit: hour}", "prices.m: price: found 'cheap', expected a number, 0 or more"),
        ("{price: -1, unit: hour}", "prices.m: price: found -1, expected 0 or more"),
        (
            "{price: 1, unit: hour, offer: AmazonEC2, sku: X}",
            "expected one of the file's offers and a sku, or a source",
        ),
        ("{price: 1, unit: hour, source: x}", "expected one of the file's offers and a sku, or a source and a date"),
    ],
)
def test_a_price_without_its_origin_is_refused(tmp_path: Path, entry: str, found: str) -> None:
    (tmp_path / "eu-west-2.yaml").write_text(f"region: eu-west-2\noffers: {{}}\nprices:\n  m: {entry}\n")
    with pytest.raises(UserError) as refused:
        region_prices.read("eu-west-2", tmp_path)
    assert found in str(refused.value)


def test_a_file_of_another_region_is_refused(tmp_path: Path) -> None:
    (tmp_path / "eu-west-2.yaml").write_text("region: eu-west-1\noffers: {}\nprices: {}\n")
    with pytest.raises(UserError, match="region: found 'eu-west-1', expected eu-west-2, the file's name"):
        region_prices.read("eu-west-2", tmp_path)


def test_a_selection_names_columns_of_aws() -> None:
    assert set(Selection.__struct_fields__) == set(price_lists._COLUMNS)
