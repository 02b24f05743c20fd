"""A contract's transforms, which are applied to values after their conversion."""

from __future__ import annotations

import datetime as dt
import zlib
from typing import Any

from headwater.contract.transforms import DAY, MONTH, Transform
from headwater.lake.decoding.exact_values import Converter, unfit

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MONTH_LENGTH, _DAY_LENGTH, _HOUR_LENGTH = len("2024-02"), len("2024-02-29"), len("2024-02-29T13")


def transforming(convert: Converter, transform: Transform | None) -> Converter:
    """A converter that applies the transform to the result of ``convert``. It raises Unfit if that is not possible.

    The result of ``convert`` must be a text for buckets, and an integer if the transform has a unit. Otherwise it must
    be a date or a timestamp in UTC.
    """
    if transform is None:
        return convert
    if transform.is_bucket:
        return lambda value: zlib.crc32(convert(value).encode()) % transform.buckets
    unit = transform.micros
    if unit is None:
        return lambda value: part_of(convert(value).isoformat(), transform)

    def part_of_number(value: Any) -> str:
        try:
            moment = _EPOCH + dt.timedelta(microseconds=convert(value) * unit)
        except OverflowError:
            raise unfit(value, f"{transform.unit} from 1970-01-01 to a time from 0001-01-01 to 9999-12-31") from None
        return part_of(moment.isoformat(), transform)

    return part_of_number


def part_of(text: str, transform: Transform) -> str:
    """The month, the day or the hour of a time in ISO 8601."""
    if transform.part == MONTH:
        return text[:_MONTH_LENGTH]
    day = text[:_DAY_LENGTH]
    return day if transform.part == DAY else f"{day}-{text[_DAY_LENGTH + 1 : _HOUR_LENGTH]}"


def transforming_plan(before: dict[str, Any], transform: Transform) -> dict[str, Any]:
    """The JVM's plan of a conversion (``before``), followed by the transform."""
    return {
        "kind": "transform",
        "before": before,
        "part": transform.part,
        "unit": transform.micros or 0,
        "buckets": transform.buckets,
    }
