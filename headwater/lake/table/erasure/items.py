"""Finds quarantined changes and exported items of DynamoDB that have an erased key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headwater.contract.model import Contract
from headwater.lake.decoding.dynamodb_decoder import DynamoDecoder, content
from headwater.lake.decoding.dynamodb_values import DEFECTS
from headwater.lake.table.erasure.keys import ErasedKeys, row_key


def kept_items(
    contract: Contract, erased: ErasedKeys, epoch: int, mask_key: bytes | None
) -> Callable[[Any, int | None], bool | None]:
    """The function ``records.kept_records`` for a DynamoDB table."""
    decoders: dict[int, DynamoDecoder] = {}

    def is_erased(record: Any, its_epoch: int | None) -> bool | None:
        number = its_epoch or epoch
        if number not in decoders:
            decoders[number] = DynamoDecoder(contract, number, mask_key=mask_key)
        keys, order = _told(record, decoders[number])
        return any(erased.covers(row_key(key), order) for key in keys) if keys else None

    return is_erased


def _told(record: Any, decoder: DynamoDecoder) -> tuple[list[str], str | None]:
    """The keys in a quarantined record, and the record's order."""
    try:
        if "exported_at" in record:
            return decoder.item_told(content(record, "item") or b"", record["exported_at"])
        return decoder.told(content(record, "data") or b"", record["sequence"])
    except DEFECTS:
        return [], None
