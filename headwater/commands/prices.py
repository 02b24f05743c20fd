"""``headwater prices``: write a region's prices from AWS's public price lists."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated

import typer

from headwater.console import announce, say
from headwater.deployment import price_lists, region_prices


def prices(
    region: Annotated[str, typer.Argument(metavar="REGION", help="The region, such as eu-west-1.")],
    folder: Annotated[
        Path, typer.Option("--from", metavar="FOLDER", help="Holds AWS's files as <offer>/current/<region>/index.csv.")
    ],
    into: Annotated[
        Path, typer.Option(help="The folder of the regions' price files.", show_default="the package's")
    ] = region_prices.FOLDER,
) -> None:
    """Write the prices of a region, which `headwater cost` multiplies, from AWS's public price lists.

    AWS publishes a CSV file per offer and region, which needs no account. With an empty FOLDER the command prints the
    loop that fetches the files.

    A price is written where exactly one product matches headwater/deployment/price_products.yaml. Any other price is
    named with what was found; where the file has it already, it stays and becomes an estimate.
    """
    earlier = region_prices.read(region, into)
    with announce(f"Reading the price lists of {region} in {folder}"):
        reading = price_lists.read(folder, region)
    now = reading.over(earlier)
    file = region_prices.path(region, into)
    into.mkdir(parents=True, exist_ok=True)
    file.write_text(region_prices.text(now), encoding="utf-8")
    read = reading.prices
    say(f"{file}: {len(read.prices)} prices of {len(read.offers)} price lists:")
    for offer, price_list in read.offers.items():
        say(f"  {offer}, published {price_list.published}")
    unsure = {name: product.unsure for name, product in price_lists.products().items() if product.unsure}
    kept = dict.fromkeys(now.prices.keys() - read.prices.keys(), "price_products.yaml does not say where it stands")
    _say_all("Read, but AWS may mean another product or unit by it:", unsure, read.prices)
    _say_all("Not read, and kept from the earlier file as estimates:", kept | dict(reading.problems), kept)
    _say_all("Not read, and so not in the file:", reading.problems, reading.problems.keys() - kept.keys())


def _say_all(title: str, reasons: Mapping[str, str], names: Collection[str]) -> None:
    """Print the reasons of those names that have one."""
    told = [f"  {name}: {reasons[name]}" for name in sorted(names) if name in reasons]
    if told:
        say("\n".join([title, *told]))
