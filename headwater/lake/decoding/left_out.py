"""Hides the values of DynamoDB's records that a contract excludes or masks, before they are decoded or quarantined.

If a path of ``exclude`` or ``mask`` leads through a value that is not a map, the hidden value cannot be found. Then the
item loses the whole attribute, with its other values.

The quarantine and the exports of a Scan mark hidden values with types that DynamoDB does not have. So decoding them
again gives the same rows:

- ``{"HMAC": "…"}`` is a mask, and is not masked again.
- ``{"LEFT_OUT": true}`` is a removed attribute. It is not a map, so it is removed and counted again.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Raw

from headwater.contract.masks import masked, needed_key
from headwater.contract.model import DROP, HMAC, Contract, Mask
from headwater.lake.decoding.dynamodb_values import DEFECTS, dump, is_null, parse

_IMAGES = ("Keys", "NewImage", "OldImage")
_RECORD = ("awsRegion", "eventID", "eventName", "userIdentity", "recordFormat", "tableName", "eventSource")
_CHANGE = ("ApproximateCreationDateTime", "ApproximateCreationDateTimePrecision", "SizeBytes", "SequenceNumber")
_MASKED = "HMAC"
_NULL = {"NULL": True}
_LOST = {"LEFT_OUT": True}


class LeftOut:
    """Hides the values that a contract excludes, masks or drops.

    Raises UserError if the contract needs a key and there is none.

    - ``key``: the key of masks by HMAC.
    - ``hmac_later``: leaves values that are masked by HMAC in clear. A process that has the key masks them later.
    """

    def __init__(self, contract: Contract, key: bytes | None = None, *, hmac_later: bool = False) -> None:
        self._key = b"" if hmac_later else needed_key(contract, key)
        self._masks = [mask for mask in contract.masks if not (hmac_later and mask.how == HMAC)]
        self._named = {column.path[0] for column in contract.columns} if contract.unnamed == DROP else None
        self._attributes = {path[0] for path in contract.exclude if len(path) == 1}
        self._inside = [path for path in contract.exclude if len(path) > 1]
        self._ways: dict[str, list[tuple[str, ...]]] = {}
        for name, *way in contract.hidden_inside:
            if name not in self._attributes and not self._is_dropped(name):
                self._ways.setdefault(name, []).append(tuple(way))
        self._opened = {*self._ways, *(mask.path[0] for mask in self._masks)}

    def of_image(self, image: Mapping[str, Raw]) -> tuple[Mapping[str, Raw], Sequence[str]]:
        """The image without excluded values and with masks, and the names of the removed attributes.

        An attribute is removed if the path to a hidden value in it leads through a value that is not a map. Raises the
        exceptions of ``DEFECTS``.
        """
        if not self._attributes and not self._opened:
            return image, ()
        opened = {name: parse(image[name]) for name in self._opened if name in image}
        lost = self._hide(opened, "S")
        left = {name: raw for name, raw in image.items() if name not in self._attributes and name not in lost}
        # Write unchanged attributes from the parsed form too: their text may have a name twice, and the parser sees
        # only one of both values.
        left |= {name: _raw(value) for name, value in opened.items() if name in left}
        return left, lost

    def of_text(self, text: str | bytes | None) -> str | bytes | None:
        """A change's record or an export's line with its values hidden; None if it cannot be parsed.

        Unknown members of the record are removed.
        """
        if text is None or not (self._attributes or self._opened or self._named is not None):
            return text
        try:
            record = json.loads(text)
            kept = {name: record[name] for name in _RECORD if name in record}
            if "Item" in record:
                kept["Item"] = self._stripped(record["Item"])
            if "dynamodb" in record:
                change = record["dynamodb"]
                kept["dynamodb"] = {name: change[name] for name in _CHANGE if name in change}
                kept["dynamodb"] |= {name: self._stripped(change[name]) for name in _IMAGES if name in change}
        except DEFECTS:
            return None
        return json.dumps(kept)

    def of_item(self, item: Mapping[str, Any]) -> dict[str, Any]:
        """An item of boto3's client with its values hidden."""
        kept: dict[str, Any] = self._stripped(copy.deepcopy(dict(item)))
        return kept

    def _is_dropped(self, name: str) -> bool:
        """Whether an attribute is not stored because no column names it."""
        return self._named is not None and name not in self._named

    def _stripped(self, image: Any) -> Any:
        """An image as the quarantine may keep it. Raises TypeError if it is not an image."""
        if image is None:
            return None
        if not isinstance(image, dict):
            raise TypeError("image")
        left = {
            name: value for name, value in image.items() if name not in self._attributes and not self._is_dropped(name)
        }
        lost = self._hide(left, _MASKED)
        return left | dict.fromkeys(lost, _LOST)

    def _hide(self, attributes: dict[str, Any], tag: str) -> list[str]:
        """Hide excluded and masked values in parsed attributes, in place. A mask gets the type ``tag``.

        Returns the names of removed attributes: the path to a hidden value in them leads through a value that is not a
        map.
        """
        lost = [
            name
            for name, ways in self._ways.items()
            if name in attributes and not all(_leads_through_maps(attributes[name], way) for way in ways)
        ]
        for name in lost:
            del attributes[name]
        for path in self._inside:
            members = _holder(attributes, path)
            if members is not None:
                members.pop(path[-1], None)
        for mask in self._masks:
            self._mask(attributes, mask, tag)
        return lost

    def _mask(self, attributes: dict[str, Any], mask: Mask, tag: str) -> None:
        members, last = _holder(attributes, mask.path), mask.path[-1]
        if members is None or last not in members:
            return
        value = members[last]
        members[last] = _NULL
        if mask.how == HMAC and isinstance(value, dict):
            if isinstance(value.get("S"), str):
                members[last] = {tag: masked(value["S"], self._key)}
            elif isinstance(value.get(_MASKED), str):
                members[last] = {tag: value[_MASKED]}


def _leads_through_maps(value: Any, way: tuple[str, ...]) -> bool:
    """Whether only maps lead from a value of DynamoDB to the last name of the path.

    It is also true if the path ends early at a NULL or at a missing member, because there is no value to hide.
    """
    for name in way:
        if value is None or is_null(value):
            return True
        members = value.get("M") if isinstance(value, dict) and len(value) == 1 else None
        if not isinstance(members, dict):
            return False
        value = members.get(name)
    return True


def _holder(attributes: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any] | None:
    """The map that has the last name of a path; None if no maps lead there."""
    members: Any = attributes
    for name in path[:-1]:
        value = members.get(name)
        members = value.get("M") if isinstance(value, dict) else None
        if not isinstance(members, dict):
            return None
    return members  # type: ignore[no-any-return]


def _raw(value: Any) -> Raw:
    return Raw(dump(value).encode("utf-8", "surrogatepass"))
