"""The lake's format: ``lake.format`` is the version of the form in which writers and commands store data.

``model.LAKE_FORMAT`` is the newest format that this release knows. See docs/decisions/lake-format.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headwater.environment import model
from headwater.environment.model import Environment, Rule
from headwater.yaml_files import refusal

FIELD = "lake.format"
OUTPUT = "LakeFormat"
"""The output of the lake stack with the format of the last deployment."""
_FIRST = 1
"""The format of a stack without this output, which an early release has deployed."""


def rules(environment: Environment) -> Iterator[Rule]:
    """Yield the rule that refuses a format that this release does not know."""
    yield Rule(
        FIELD,
        environment.lake.format <= model.LAKE_FORMAT,
        f"at most {model.LAKE_FORMAT}, the newest format that this release knows: use the release that knows "
        f"{environment.lake.format}",
    )


def refuse_lower(environment: Environment, there: Mapping[str, Any]) -> None:
    """Raise UserError if the environment's lake has been deployed with a higher format than its file has.

    ``there`` has stacks by their names, as CloudFormation describes them.
    """
    stack = f"{environment.prefix}-lake"
    outputs = {output["OutputKey"]: output["OutputValue"] for output in there.get(stack, {}).get("Outputs", ())}
    deployed = int(outputs.get(OUTPUT, _FIRST))
    if environment.lake.format >= deployed:
        return
    expected = f"{deployed}, with which the stack {stack} was deployed: a format is never lowered"
    if deployed > model.LAKE_FORMAT:
        expected += f". This release knows at most {model.LAKE_FORMAT}: use a release that knows {deployed}"
    raise refusal(f"config/{environment.name}.yaml", FIELD, environment.lake.format, expected)


def advice(environment: Environment) -> Iterator[str]:
    """Yield advice to raise the format, if this release knows a higher format than the file has."""
    now, newest = environment.lake.format, model.LAKE_FORMAT
    if now < newest:
        yield (
            f"config/{environment.name}.yaml: {FIELD} is {now}, and this release knows {newest}. As long as it is "
            f"{now}, you can go back to a release that knows only {now}."
        )
        yield (
            f"Once you do not need that release any more, write {newest} and deploy: {FIELD} is never lowered "
            "(docs/decisions/lake-format.md)"
        )
