"""The file of prices is read strictly."""

from pathlib import Path

import pytest

from headwater.errors import UserError
from headwater.review.prices import Price, Prices, read_prices

REST = 'unit: hour, source: "https://aws.amazon.com/emr/pricing/", date: "2026-11"'


def written(folder: Path, *prices: str, region: str = "region: eu-west-2") -> Path:
    """A file of these prices. Each is a line of YAML."""
    file = folder / "prices.yaml"
    file.write_text("\n".join([region, "prices:", *(f"  {price}" for price in prices)]))
    return file


def test_a_file_has_a_region_and_prices_with_their_source(tmp_path: Path) -> None:
    read = read_prices(written(tmp_path, f"m: {{price: 5, {REST}}}", f"n: {{price: 0.1, {REST}, estimate: true}}"))
    source = "https://aws.amazon.com/emr/pricing/"
    assert read == Prices(
        "eu-west-2",
        {"m": Price(5, "hour", source, "2026-11"), "n": Price(0.1, "hour", source, "2026-11", estimate=True)},
    )


@pytest.mark.parametrize(
    ("price", "found"),
    [
        (f"{{price: cheap, {REST}}}", "m: price: found 'cheap', expected a number, 0 or more"),
        (f"{{price: -1, {REST}}}", "m: price: found -1, expected 0 or more"),
        (
            f"{{price: 1, {REST}, sku: X}}",
            "m: sku: found an unknown field, expected price, unit, source, date, estimate",
        ),
        ("{price: 1, unit: hour}", "m: source: found nothing, expected an address, https://…"),
        ("{price: 1, unit: hour, source: 'https://a'}", "m: date: found nothing, expected a month or a day in quotes"),
        (f"{{price: 1, {REST}}}".replace("https", "http"), "m: source: found 'http://aws.amazon.com/emr/pricing/',"),
        (f"{{price: 1, {REST}}}".replace("2026-11", "YYYY-MM"), "m: date: found 'YYYY-MM', expected a month or a day"),
        (f"{{price: 1, {REST}}}".replace('"2026-11"', "2026-11-20"), "m: date: found datetime.date(2026, 11, 20),"),
        ("5", "m: content: found 5, expected a mapping with price, unit, source, date, estimate"),
    ],
)
def test_a_price_that_does_not_fit_is_named(tmp_path: Path, price: str, found: str) -> None:
    file = written(tmp_path, f"m: {price}")
    with pytest.raises(UserError) as refused:
        read_prices(file)
    assert str(refused.value).startswith(f"{file}: prices.{found}")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("prices: {}", "region: found nothing, expected a text"),
        ("region: a\noffers: {}\nprices: {}", "offers: found an unknown field, expected region, prices"),
        ("region: a\nprices: []", "prices: found [], expected a mapping"),
        ("region: a\nprices: {5: {}}", "prices.5: found an unknown field, expected a text in quotes"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(tmp_path: Path, text: str, found: str) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text(text)
    with pytest.raises(UserError) as refused:
        read_prices(file)
    assert str(refused.value) == f"{file}: {found}"
