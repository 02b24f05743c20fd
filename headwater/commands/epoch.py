"""``headwater epoch``: raise an epoch after changes of a source were lost."""

from operator import attrgetter
from typing import Annotated, Literal

import typer

from headwater.commands.advice import advise
from headwater.commands.options import Environment, Folder
from headwater.commands.sources import refuse_without_contract
from headwater.console import say
from headwater.contract.reading import read_contracts
from headwater.environment.model import MAX_EPOCH
from headwater.environment.rules import read_environment
from headwater.errors import UserError
from headwater.yaml_files import set_value

_SETTINGS = {"postgresql": ("connect", "epoch"), "dynamodb": ("glue", "epoch")}
_THEN = {
    "postgresql": "The source connector reads all rows again. If snapshot_mode is no_data, run headwater backfill.",
    "dynamodb": "Then read each table again (headwater resync), or load an export of it (headwater backfill).",
}


def epoch(
    name: Environment,
    source: Annotated[Literal["postgresql", "dynamodb"], typer.Argument(help="The source that has lost changes.")],
    *,
    folder: Folder,
) -> None:
    """Raise an epoch in the environment's file, after changes of a source were lost.

    After the next deploy, every new record wins over all records that were read before. An epoch is never lowered.
    """
    refuse_without_contract(read_contracts(folder.contracts), source, "SOURCE")
    section, field = _SETTINGS[source]
    now: int = attrgetter(f"{source}.{section}.{field}")(read_environment(name, folder.config))
    if now >= MAX_EPOCH:
        raise UserError(f"{section}.{field}: found {now}, the highest possible epoch")
    path = folder.config / f"{name}.yaml"
    path.write_text(set_value(path.read_text("utf-8"), (section, field), str(now + 1)), encoding="utf-8")
    say(f"{path.relative_to(folder.root)}: {section}.{field} is now {now + 1}, and was {now}")
    then = f"and commit the file: no later deploy may lower it. {_THEN[source]}"
    advise(f"Next: headwater deploy --env {name}, {then}")
