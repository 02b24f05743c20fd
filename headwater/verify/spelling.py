"""Forms as text for people."""

import struct

import pyarrow as pa

from headwater.contract.types import Type
from headwater.verify.forms import Form

_LONGEST = 200


def shortened(text: str) -> str:
    """A text, cut to a readable length."""
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def spelled(form: Form, type_: Type) -> str:
    """The value of the contract's type ``type_`` that a form stands for, as a person would write it."""
    if form is None:
        return "null"
    if isinstance(form, tuple):
        if type_.kind == "struct" and len(form) == len(type_.fields):
            fields = zip(type_.fields, form, strict=True)
            return "{" + ", ".join(f"{name}: {spelled(value, kind)}" for (name, kind), value in fields) + "}"
        if type_.kind == "array" and type_.element is not None:
            return "[" + ", ".join(spelled(item, type_.element) for item in form) + "]"
        return " ".join(str(part) for part in form)
    if isinstance(form, int) and not isinstance(form, bool):
        return _spelled_number(form, type_)
    return str(form)


def _spelled_number(form: int, type_: Type) -> str:
    if type_.kind == "decimal":
        digits = str(abs(form)).rjust(type_.scale + 1, "0")
        whole, fraction = digits[: len(digits) - type_.scale], digits[len(digits) - type_.scale :]
        return ("-" if form < 0 else "") + whole + (f".{fraction}" if fraction else "")
    if type_.kind == "float" and form < 2**32:
        return repr(struct.unpack("<f", form.to_bytes(4, "little"))[0])
    if type_.kind in ("float", "double"):
        return repr(struct.unpack("<d", form.to_bytes(8, "little"))[0])
    if type_.kind == "date":
        return str(pa.scalar(form, pa.date32()).cast(pa.string()))
    if type_.kind == "timestamp":
        return str(pa.scalar(form, pa.timestamp("us")).cast(pa.string())) + "Z"
    return str(form)
