"""YAML as people write it: configuration, contracts, lists."""

from typing import Any

import yaml

from headwater.errors import UserError


def load_yaml(text: str, where: str) -> Any:
    """Read one YAML document; ``where`` is its file. Raises UserError, for a field that is written twice too: YAML
    would take the last."""
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506  (a SafeLoader)
    except yaml.YAMLError as error:
        raise UserError(f"{where}: not YAML: {error}") from None


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: dict[Any, int] = {}
        for key, _ in node.value:
            name, line = key.value, key.start_mark.line + 1
            if name in seen:
                raise yaml.YAMLError(f"{name}: found in line {seen[name]} and in line {line}, expected it once")
            seen[name] = line
        found: dict[Any, Any] = super().construct_mapping(node, deep)
        return found
