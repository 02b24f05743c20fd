"""Templates of an environment as the checks read them, whole or changed by hand."""

import copy
from typing import TYPE_CHECKING, Any, TypeVar

import aws_cdk as cdk

from headwater.review.templates import ACCOUNT, Deployment

if TYPE_CHECKING:
    from tests.synth.conftest import Synthesized

Templates = dict[str, dict[str, Any]]
Stack = TypeVar("Stack", bound=cdk.Stack)


def made(stack: Stack | None) -> Stack:
    """A stack that the contracts need."""
    assert stack is not None
    return stack


def templates(synthesized: "Synthesized") -> Templates:
    """The templates by stack name, free to be changed."""
    stacks = {part: getattr(synthesized.stacks, part) for part in synthesized.parts()}
    return {
        str(stack.stack_name): copy.deepcopy(synthesized.template(part))
        for part, stack in stacks.items()
        if stack is not None
    }


def deployment(synthesized: "Synthesized", changed: Templates | None = None) -> Deployment:
    """The deployment that the templates make, or the changed ones."""
    settings = synthesized.environment
    return Deployment(changed or templates(synthesized), settings.region, settings.account or ACCOUNT)


def resource(templates: Templates, type_: str, start: str, part: str = "") -> dict[str, Any]:
    """The resource of a type whose logical id starts with ``start``, in the stack of this part or in any."""
    resources, name = _place(templates, type_, start, part)
    resource: dict[str, Any] = resources[name]
    return resource


def remove(templates: Templates, type_: str, start: str, part: str = "") -> None:
    """Take a resource out of its template."""
    resources, name = _place(templates, type_, start, part)
    del resources[name]


def _place(templates: Templates, type_: str, start: str, part: str) -> tuple[dict[str, Any], str]:
    (place,) = [
        (template["Resources"], name)
        for stack, template in templates.items()
        for name, raw in template["Resources"].items()
        if raw["Type"] == type_ and name.startswith(start) and stack.endswith(part)
    ]
    return place
