"""Transforms: what a column makes of its source's value, so that it can partition a table.

Runs on EMR and Glue too: the standard library only, Python 3.11 and later.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from headwater.contract.types import Type

MONTH, DAY, HOUR, BUCKET = "month", "day", "hour", "bucket"
UNITS = {"seconds": 1_000_000, "milliseconds": 1_000, "microseconds": 1}
"""The units of a number that counts from 1970, in microseconds."""
MOST_BUCKETS = 9_999
PATTERN = rf"({MONTH}|{DAY}|{HOUR})(\(({'|'.join(UNITS)})\))?|{BUCKET}\([1-9][0-9]{{0,3}}\)"
EXPECTED = (
    "month, day or hour, with the unit of a number as in day(seconds) or day(milliseconds), or bucket(16) with a "
    f"number of buckets up to {MOST_BUCKETS}"
)


@dataclass(frozen=True)
class Transform:
    """``part`` is ``MONTH``, ``DAY`` or ``HOUR`` of a time, or ``BUCKET``. ``unit`` names the unit of a number, None
    if the value is a date, a timestamp or a text. ``buckets`` is their number, 0 for a part of a time."""

    part: str
    unit: str | None = None
    buckets: int = 0

    def __str__(self) -> str:
        argument = str(self.buckets) if self.is_bucket else self.unit
        return self.part if argument is None else f"{self.part}({argument})"

    @property
    def is_bucket(self) -> bool:
        """Whether it makes a bucket, else it makes a part of a time."""
        return self.part == BUCKET

    @property
    def type(self) -> Type:
        """The type of what it makes."""
        return Type("int" if self.is_bucket else "string")

    @property
    def micros(self) -> int | None:
        """The unit of a number, in microseconds; None if the value is no number."""
        return None if self.unit is None else UNITS[self.unit]


def parse_transform(text: str) -> Transform:
    """A transform as contracts write it. Raises ValueError."""
    if re.fullmatch(PATTERN, text) is None:
        raise ValueError(f"found {text!r}, expected {EXPECTED}")
    part, _, argument = text.rstrip(")").partition("(")
    return Transform(part, buckets=int(argument)) if part == BUCKET else Transform(part, argument or None)
