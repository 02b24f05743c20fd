"""Forms: plain values that are equal exactly when the stored values are, whatever each side calls them.

``1.50`` and ``1.5`` are one decimal, ``12:00+02`` and ``10:00Z`` one instant. A row of either side is a tuple of forms.
"""

import math
import re
import struct
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

Form = Any  # None, bool, int, str, or a tuple of forms: hashable, compared by ==
Row = tuple[Form, ...]
ToForm = Callable[[Any], Form]


def unreadable(value: Any) -> Form:
    """The form of a value that its type cannot hold: equal to no readable value."""
    return ("not of its type", repr(value))


def guarded(to_form: ToForm) -> ToForm:
    """A value that cannot be taken for its type is a difference to report, not a reason to stop."""

    def form(value: Any) -> Form:
        try:
            return to_form(value)
        except (ValueError, TypeError, AttributeError, InvalidOperation, OverflowError):
            return unreadable(value)

    return form


def integer(value: Any) -> int:
    """A whole number of any type but bool."""
    if isinstance(value, bool) or (isinstance(value, Decimal) and value != value.to_integral_value()):
        raise ValueError(value)
    return int(value)


def plain_text(value: Any) -> str:
    """A text as it is."""
    if not isinstance(value, str):
        raise ValueError(value)
    return value


def unscaled(value: Decimal, scale: int) -> Form:
    """A decimal in units of its last digit, e.g. 15000 for 1.5 at scale 4; a text where it has more digits or is no
    finite number."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return str(value)
    number = int("".join(map(str, digits)) or "0")
    shift = exponent + scale
    if shift >= 0:
        number *= 10**shift
    else:
        number, rest = divmod(number, 10**-shift)
        if rest:
            return str(value)
    return -number if sign else number


def float_bits(value: float, *, single: bool) -> Form:
    """The bits of a float, all NaNs alike (PostgreSQL's text does not tell them apart); tells 0.0 from -0.0."""
    if math.isnan(value):
        return "NaN"
    kind = "<f" if single else "<d"
    return int.from_bytes(struct.pack(kind, value), "little")


_DATE = re.compile(r"(\d{4,})-(\d\d)-(\d\d)Z?( BC)?\Z")
_MOMENT = re.compile(
    r"(?P<date>\d{4,}-\d\d-\d\d)[T ](?P<time>\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?)"
    r"(?P<zone>Z|[+-]\d\d(?::?\d\d(?::?\d\d)?)?)?(?P<era> BC)?\Z"
)
_TIME = re.compile(r"(\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?\Z")
_INTERVAL = re.compile(
    r"P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)W)?(?:(-?\d+)D)?(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?\d*\.?\d+)S)?)?\Z"
)
_DAY_MICROS = 86_400_000_000


def days(value: Any) -> Form:
    """A date as days since 1970-01-01 of the proleptic Gregorian calendar, of any year; an infinity as text."""
    if value in ("infinity", "-infinity"):
        return value
    found = _DATE.match(value)
    if found is None:
        raise ValueError(value)
    year, month, day, era = found.groups()
    return _days_from_civil(1 - int(year) if era else int(year), int(month), int(day))


def _days_from_civil(year: int, month: int, day: int) -> int:
    # Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", days_from_civil: datetime ends at year 9999.
    year -= month <= 2
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def micros(value: Any) -> Form:
    """A timestamp as microseconds since 1970-01-01 UTC; one without a zone is taken as UTC; an infinity as text."""
    if value in ("infinity", "-infinity"):
        return value
    found = _MOMENT.match(value)
    if found is None:
        raise ValueError(value)
    date: int = days(found["date"] + (found["era"] or ""))
    return date * _DAY_MICROS + clock(found["time"]) - _offset(found["zone"])


def clock(value: Any) -> int:
    """A time of day as microseconds since midnight."""
    found = _TIME.match(value)
    if found is None:
        raise ValueError(value)
    hour, minute, second, fraction = found.groups()
    digits = (fraction or "").ljust(6, "0")
    if digits[6:].strip("0"):
        raise ValueError(value)
    return ((int(hour) * 60 + int(minute)) * 60 + int(second or 0)) * 1_000_000 + int(digits[:6])


def _offset(zone: str | None) -> int:
    if zone is None or zone == "Z":
        return 0
    digits = zone[1:].replace(":", "").ljust(6, "0")
    offset = ((int(digits[:2]) * 60 + int(digits[2:4])) * 60 + int(digits[4:6])) * 1_000_000
    return -offset if zone[0] == "-" else offset


def interval(value: Any) -> Form:
    """An ISO 8601 interval as PostgreSQL keeps it: months, days and microseconds."""
    found = _INTERVAL.match(value)
    if found is None:
        raise ValueError(value)
    years, months, weeks, day, hours, minutes = (int(part or 0) for part in found.groups()[:6])
    micro = Decimal(found[7] or 0) * 1_000_000 + (hours * 60 + minutes) * 60_000_000
    return ("interval", years * 12 + months, weeks * 7 + day, int(micro))
