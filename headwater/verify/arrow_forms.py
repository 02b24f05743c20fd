"""The lake's side: Arrow columns as forms."""

from collections.abc import Callable

import pyarrow as pa

from headwater.contract.types import Type
from headwater.verify.forms import Form, ToForm, float_bits, guarded, plain_text, unreadable, unscaled

_INT_TYPES = (pa.types.is_integer,)
_TEXT_TYPES = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BINARY_TYPES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
_ARROW_TYPES: dict[str, tuple[Callable[[pa.DataType], bool], ...]] = {
    "int": _INT_TYPES,
    "bigint": _INT_TYPES,
    "float": (pa.types.is_floating,),
    "double": (pa.types.is_floating,),
    "boolean": (pa.types.is_boolean,),
    "decimal": (pa.types.is_decimal,),
    "string": _TEXT_TYPES,
    "binary": _BINARY_TYPES,
    "date": (pa.types.is_date32,),
    "timestamp": (pa.types.is_timestamp,),
    "array": (pa.types.is_list, pa.types.is_large_list),
    "struct": (pa.types.is_struct,),
}
_MICROS_PER_UNIT = {"s": 1_000_000, "ms": 1000, "us": 1}


def arrow_forms(array: pa.Array, type_: Type, text: ToForm = plain_text) -> list[Form]:
    """The forms of an Arrow array of the contract's type ``type_``.

    ``text`` turns a text into its form if the column is a string or an array of strings; a text inside a struct is
    plain.
    """
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_null(array.type):
        return [None] * len(array)
    if not any(fits(array.type) for fits in _ARROW_TYPES[type_.kind]):
        return [None if value is None else unreadable(value) for value in array.to_pylist()]
    if type_.kind == "struct":
        return _struct_forms(array, type_)
    if type_.kind == "array" and type_.element is not None:
        return _list_forms(array, type_.element, text)
    if type_.kind == "timestamp":
        return _timestamp_forms(array)
    if type_.kind == "date":
        # As numbers, because datetime.date ends at year 9999.
        return list(array.view(pa.int32()).to_pylist())
    values = array.to_pylist()
    if type_.kind == "string":
        if text is plain_text:
            return list(values)
        to_form = guarded(text)
        return [None if value is None else to_form(value) for value in values]
    if type_.kind == "decimal":
        return [None if value is None else unscaled(value, type_.scale) for value in values]
    if type_.kind in ("float", "double"):
        # A double in a float's column has bits that a float lacks; it must not become equal by losing them.
        single = type_.kind == "float" and not pa.types.is_float64(array.type)
        return [None if value is None else float_bits(value, single=single) for value in values]
    if type_.kind == "binary":
        return [None if value is None else value.hex() for value in values]
    return list(values)


def _struct_forms(array: pa.StructArray, type_: Type) -> list[Form]:
    names = [array.type.field(at).name for at in range(array.type.num_fields)]
    children = array.flatten()
    columns = [
        arrow_forms(children[names.index(name)], field_type) if name in names else [None] * len(array)
        for name, field_type in type_.fields
    ]
    valid = array.is_valid().to_pylist()
    return [row if present else None for present, row in zip(valid, zip(*columns, strict=True), strict=True)]


def _list_forms(array: pa.ListArray, element: Type, text: ToForm) -> list[Form]:
    if len(array) == 0:
        return []
    offsets = array.offsets.to_pylist()
    start = offsets[0]
    items = arrow_forms(array.values.slice(start, offsets[-1] - start), element, text)
    valid = array.is_valid().to_pylist()
    return [
        tuple(items[offsets[at] - start : offsets[at + 1] - start]) if present else None
        for at, present in enumerate(valid)
    ]


def _timestamp_forms(array: pa.TimestampArray) -> list[Form]:
    numbers = array.view(pa.int64()).to_pylist()
    unit = array.type.unit
    if unit == "ns":
        return [
            None if value is None else value // 1000 if value % 1000 == 0 else unreadable(f"{value} ns")
            for value in numbers
        ]
    return [None if value is None else value * _MICROS_PER_UNIT[unit] for value in numbers]
