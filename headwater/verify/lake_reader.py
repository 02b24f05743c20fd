"""The lake's side: a Hudi table read with hudi-rs, and Arrow columns as forms.

hudi-rs shares no code with the library that writes the lake, so the writer does not vouch for itself.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc
from hudi import HudiReadOptions, HudiTableBuilder

from headwater.contract.types import Type
from headwater.errors import UserError
from headwater.verify.forms import Form, ToForm, float_bits, guarded, plain_text, unreadable, unscaled

BATCH_ROWS = 8192


def s3_options(
    region: str, endpoint: str | None = None, access_key: str | None = None, secret_key: str | None = None,
    session_token: str | None = None,
) -> dict[str, str]:  # fmt: skip
    """hudi-rs's storage options for S3; with an ``endpoint`` (http allowed), buckets are addressed in the path.
    Without keys, those of the environment or of the machine's role are taken."""
    options = {
        "aws_region": region,
        "aws_access_key_id": access_key,
        "aws_secret_access_key": secret_key,
        "aws_session_token": session_token,
    }
    if endpoint is not None:
        options |= {
            # The name that the environment's AWS_ENDPOINT_URL becomes: another one would lose to it now and then.
            "aws_endpoint_url": endpoint,
            "aws_allow_http": "true",
            "aws_virtual_hosted_style_request": "false",
        }
    return {name: value for name, value in options.items() if value is not None}


def read_lake(uri: str, storage: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    """Stream a Hudi table's current snapshot, tombstones included; nothing where the table was never written.

    Raises UserError where it cannot be read.
    """
    try:
        table = HudiTableBuilder.from_base_uri(uri).with_storage_options(dict(storage)).build()
        yield from table.read_stream(HudiReadOptions().with_batch_size(BATCH_ROWS))
    except Exception as error:
        # hudi-rs raises one class for everything and tells only in its text what happened.
        if _never_written(str(error)):
            return
        raise UserError(
            f"{uri} cannot be read as a Hudi table: {error}. Check --lake, --endpoint and the AWS credentials"
        ) from error


def _never_written(message: str) -> bool:
    return "hoodie.properties not found" in message and "NoSuchBucket" not in message


def live_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Leave out tombstones: rows whose ``_deleted`` is true."""
    for batch in batches:
        at = batch.schema.get_field_index("_deleted")
        if at < 0:
            yield batch
        else:
            deleted = pc.fill_null(batch.column(at), False)
            yield batch.filter(pc.invert(deleted))


def read_live_table(uri: str, storage: Mapping[str, str]) -> pa.Table | None:
    """A lake table's live rows as one Arrow table, or None where it was never written."""
    batches = list(live_rows(read_lake(uri, storage)))
    return pa.Table.from_batches(batches) if batches else None


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
    """The forms of an Arrow array that a contract has as ``type_``. ``text`` is what a text means that stands in the
    column itself or in its array; a text inside a struct is plain."""
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
        # As a number, since datetime.date ends at year 9999.
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
        # A double in a float's column keeps bits that a float has not, and must not compare equal by losing them.
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
