"""What a contract leaves out of DynamoDB's records: removed before anything is decoded, or kept in quarantine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from msgspec import Raw

from headwater.contract.model import DROP, Contract
from headwater.lake.dynamodb_values import DEFECTS, dump, parse

_IMAGES = ("Keys", "NewImage", "OldImage")


class LeftOut:
    """What a contract excludes, and whether it drops what no column names."""

    def __init__(self, contract: Contract) -> None:
        self._attributes = {path[0] for path in contract.exclude if len(path) == 1}
        self._inside = [path for path in contract.exclude if len(path) > 1]
        self._named = {column.path[0] for column in contract.columns} if contract.unnamed == DROP else None

    def of_image(self, image: Mapping[str, Raw]) -> Mapping[str, Raw]:
        """The image without what is excluded. Raises what ``DEFECTS`` names."""
        if not self._attributes and not self._inside:
            return image
        left = {name: raw for name, raw in image.items() if name not in self._attributes}
        for path in self._inside:
            if path[0] in left:
                value = parse(left[path[0]])
                if _remove(value, path[1:]):
                    left[path[0]] = Raw(dump(value).encode("utf-8", "surrogatepass"))
        return left

    def of_text(self, text: str | bytes | None) -> str | bytes | None:
        """A record of a change, or a line of an export, without what is excluded or dropped; None where it cannot be
        taken apart, and holds nobody knows what."""
        if text is None or not (self._attributes or self._inside or self._named is not None):
            return text
        try:
            record = json.loads(text)
            change = record.get("dynamodb", {})
            images = [record.get("Item"), *(change.get(name) for name in _IMAGES)]
            for image in images:
                self._strip(image)
        except (AttributeError, *DEFECTS):
            return None
        return json.dumps(record)

    def _strip(self, image: Any) -> None:
        if image is None:
            return
        for name in list(image):
            if name in self._attributes or (self._named is not None and name not in self._named):
                del image[name]
        for path in self._inside:
            _remove({"M": image}, path)


def _remove(value: Any, path: tuple[str, ...]) -> bool:
    """Remove what lies at a path into maps, in place, and say whether there was anything."""
    *way, last = path
    for name in way:
        members = value.get("M") if isinstance(value, dict) else None
        value = members.get(name) if isinstance(members, dict) else None
    members = value.get("M") if isinstance(value, dict) else None
    return isinstance(members, dict) and members.pop(last, None) is not None
