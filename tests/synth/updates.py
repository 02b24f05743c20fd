"""What CloudFormation refuses while it updates an environment's stacks one after the other."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from tests.synth.deployed import Templates


def refusals(before: Templates, after: Templates) -> list[str]:
    """The updates that CloudFormation refuses when the stacks of ``before`` become the stacks of ``after``.

    They come in the order of ``after``. A stack that ``after`` lacks is deleted at the end, last first.

    An export cannot go or change while a stack imports it, and an import has to find its export.
    """
    deployed = dict(before)
    gone = [stack for stack in reversed(before) if stack not in after]
    refused = []
    for stack in [*after, *gone]:
        new = after.get(stack, {})
        old_exports, new_exports = _exports(deployed.get(stack, {})), _exports(new)
        importers = {name: _importers(deployed, name, stack) for name in old_exports}
        for name, value in old_exports.items():
            if importers[name] and name not in new_exports:
                refused.append(f"{stack}: found no export {name} any more, which {', '.join(importers[name])} imports")
            elif importers[name] and new_exports[name] != value:
                refused.append(f"{stack}: found another value of {name}, which {', '.join(importers[name])} imports")
        present = {name for other, template in deployed.items() if other != stack for name in _exports(template)}
        refused += [
            f"{stack}: found an import of {name}, which no stack exports by then"
            for name in _imports(new)
            if name not in present
        ]
        deployed.pop(stack, None)
        if new:
            deployed[stack] = new
    return refused


def _importers(templates: Templates, name: str, owner: str) -> list[str]:
    return [stack for stack, template in templates.items() if stack != owner and name in _imports(template)]


def _exports(template: dict[str, Any]) -> dict[str, str]:
    """The values of the exports, by name."""
    outputs = template.get("Outputs", {}).values()
    return {output["Export"]["Name"]: json.dumps(output["Value"]) for output in outputs if "Export" in output}


def _imports(template: dict[str, Any]) -> Sequence[str]:
    return list(dict.fromkeys(_import_names(template)))


def _import_names(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "Fn::ImportValue" in value:
            yield str(value["Fn::ImportValue"])
        for inner in value.values():
            yield from _import_names(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _import_names(inner)
