"""The lake's format: ``lake.format`` gives the form of what writers and commands store.

``model.LAKE_FORMAT`` is the newest form that this release knows. Docs: docs/decisions/lake-format.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headwater.environment import model
from headwater.environment.model import Environment, Rule
from headwater.yaml_files import refusal

FIELD = "lake.format"
OUTPUT = "LakeFormat"
"""The output of the lake stack that has the format with which it was deployed."""
_FIRST = 1
"""The format of a stack that a release before the field has deployed."""


def rules(environment: Environment) -> Iterator[Rule]:
    """The rule that a release refuses a format which it does not know."""
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
    expected = f"{deployed}, with which the stack {stack} was deployed: there is no way back from a format"
    if deployed > model.LAKE_FORMAT:
        expected += f". This release knows {model.LAKE_FORMAT} at most: use the release that knows {deployed}"
    raise refusal(f"config/{environment.name}.yaml", FIELD, environment.lake.format, expected)


def advice(environment: Environment) -> Iterator[str]:
    """Say that the format may be raised, and when, if this release knows a higher one than the file has."""
    now, newest = environment.lake.format, model.LAKE_FORMAT
    if now < newest:
        yield (
            f"config/{environment.name}.yaml: {FIELD} is {now}, and this release knows {newest}. As long as it is "
            f"{now}, you can deploy a release that knows only {now} again."
        )
        yield (
            f"Once that release is not to come back, write {newest} and deploy: there is no way back from it "
            "(docs/decisions/lake-format.md)"
        )
