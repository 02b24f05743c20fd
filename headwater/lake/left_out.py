"""What a contract leaves out of DynamoDB's records, and masks in them, before anything is decoded or quarantined.

Quarantine keeps a mask as ``{"HMAC": "…"}``, a type that DynamoDB does not have: a replay does not mask it again.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

from msgspec import Raw

from headwater.contract.masks import masked, needed_key
from headwater.contract.model import DROP, HMAC, Contract, Mask
from headwater.lake.dynamodb_values import DEFECTS, dump, parse

_IMAGES = ("Keys", "NewImage", "OldImage")
_MASKED = "HMAC"
_NULL = {"NULL": True}


class LeftOut:
    """What a contract excludes and masks, and whether it drops what no column names. ``key`` is that of masks. Raises
    UserError where the contract needs one and there is none."""

    def __init__(self, contract: Contract, key: bytes | None = None) -> None:
        self._key = needed_key(contract, key)
        self._masks = contract.masks
        self._attributes = {path[0] for path in contract.exclude if len(path) == 1}
        self._inside = [path for path in contract.exclude if len(path) > 1]
        self._named = {column.path[0] for column in contract.columns} if contract.unnamed == DROP else None

    def of_image(self, image: Mapping[str, Raw]) -> Mapping[str, Raw]:
        """The image with masks, and without what is excluded. Raises what ``DEFECTS`` names."""
        if not self._attributes and not self._inside and not self._masks:
            return image
        left = {name: raw for name, raw in image.items() if name not in self._attributes}
        for path in self._inside:
            if path[0] in left:
                value = parse(left[path[0]])
                if _remove(value, path[1:]):
                    left[path[0]] = _raw(value)
        for mask in self._masks:
            name = mask.path[0]
            if name in left:
                attribute = {name: parse(left[name])}
                if self._mask(attribute, mask, "S"):
                    left[name] = _raw(attribute[name])
        return left

    def _mask(self, image: Any, mask: Mask, tag: str) -> bool:
        """Mask what lies at a path of an image, in place, under that tag, and say whether there was anything."""
        members, last = _holder({"M": image}, mask.path), mask.path[-1]
        if not isinstance(members, dict) or last not in members:
            return False
        value = members[last]
        members[last] = _NULL
        if mask.how == HMAC and isinstance(value, dict):
            if isinstance(value.get("S"), str):
                members[last] = {tag: masked(value["S"], self._key)}
            elif isinstance(value.get(_MASKED), str):
                members[last] = {tag: value[_MASKED]}
        return True

    def of_text(self, text: str | bytes | None) -> str | bytes | None:
        """A record of a change, or a line of an export, with masks, and without what is excluded or dropped; None
        where it cannot be taken apart, and holds nobody knows what."""
        if text is None or not (self._attributes or self._inside or self._masks or self._named is not None):
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

    def of_item(self, item: Mapping[str, Any]) -> dict[str, Any]:
        """An item, as boto3's client gives it, with masks, and without what is excluded or dropped."""
        kept = copy.deepcopy(dict(item))
        self._strip(kept)
        return kept

    def _strip(self, image: Any) -> None:
        if image is None:
            return
        for name in list(image):
            if name in self._attributes or (self._named is not None and name not in self._named):
                del image[name]
        for path in self._inside:
            _remove({"M": image}, path)
        for mask in self._masks:
            self._mask(image, mask, _MASKED)


def _remove(value: Any, path: tuple[str, ...]) -> bool:
    """Remove what lies at a path into maps, in place, and say whether there was anything."""
    members = _holder(value, path)
    return isinstance(members, dict) and members.pop(path[-1], None) is not None


def _holder(value: Any, path: tuple[str, ...]) -> Any:
    """What holds the last name of a path into maps: a dict where there are maps on the whole way."""
    for name in path[:-1]:
        members = value.get("M") if isinstance(value, dict) else None
        value = members.get(name) if isinstance(members, dict) else None
    return value.get("M") if isinstance(value, dict) else None


def _raw(value: Any) -> Raw:
    return Raw(dump(value).encode("utf-8", "surrogatepass"))
