"""``headwater demo``: run the pipeline here and compare lake and sources."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from headwater.commands.comparison_output import print_comparison
from headwater.commands.options import Folder
from headwater.commands.sources import refuse_without_contract
from headwater.console import announce, keep_running, say
from headwater.contract.model import DYNAMODB, POSTGRESQL
from headwater.contract.reading import read_contracts
from headwater.environment.model import Environment
from headwater.environment.rules import read_environment
from headwater.errors import UserError
from headwater.packaging import artifacts
from rig.commands.assets import with_local_aws
from rig.demo import deployed_run
from rig.demo.run import run
from rig.demo.sources import DemoPlan, Pace, sources_of


def demo(
    data: Annotated[
        Path | None, typer.Option(help="A folder of Northwind's CSV files; without it, data is generated.")
    ] = None,
    scale: Annotated[float, typer.Option(min=0.01, help="Size of the generated data; 1 is Northwind's.")] = 1,
    seconds: Annotated[float, typer.Option(min=1, help="The smallest duration of the live workload.")] = 60,
    rate: Annotated[
        float, typer.Option(min=1, help="Transactions on orders per second, and the same number of item changes.")
    ] = 40,
    keep: Annotated[bool, typer.Option("--keep", help="Leave everything running until Ctrl-C.")] = False,
    deployed: Annotated[
        bool,
        typer.Option(
            "--deployed", help="Let CDK deploy the pipeline to a local AWS, and update it under the workload."
        ),
    ] = False,
    like: Annotated[
        str | None,
        typer.Option(
            metavar="ENV",
            help="Let the parts wait as long as in an environment: connect.flush_ms, emr.idle_seconds_max and"
            " glue.window_seconds. Not with --deployed.",
        ),
    ] = None,
    *,
    folder: Folder,
) -> None:
    """Run the whole pipeline on real local parts and prove that the lake equals its sources.

    The parts of a source run only if a contract in contracts/ names the source.
    """
    if deployed and like is not None:
        raise UserError("--like: found --deployed beside it, expected one of them")
    contracts = read_contracts(folder.contracts)
    if data is not None:
        refuse_without_contract(contracts, POSTGRESQL, "--data")
    pace = Pace() if like is None else _pace(read_environment(like, folder.config))
    if deployed:
        with_local_aws(folder, announce)
    else:
        artifacts.build(announce)
    plan = DemoPlan(data, scale, seconds, rate, pace)
    tables = (deployed_run.run if deployed else run)(folder, plan, announce, say, keep_running if keep else None)
    print_comparison(tables, None)
    sources = sources_of(contracts)
    if not all(table.equal for table in tables):
        say(f"The lake differs from {sources}.")
        sys.exit(1)
    say(f"The lake equals {sources}.")


def _pace(environment: Environment) -> Pace:
    pace = Pace()
    if environment.describes(POSTGRESQL):
        sections = environment.postgresql
        pace = replace(pace, flush_ms=sections.connect.flush_ms, idle_seconds_max=sections.emr.idle_seconds_max)
    if environment.describes(DYNAMODB):
        pace = replace(pace, window_seconds=environment.dynamodb.glue.window_seconds)
    return pace
