"""DynamoDB as a source: its items as forms, read by a Scan, or in bunches of its pages while others write.

The contract's columns are compared, and ``_rest``. It must hold each value that the contract neither names nor leaves
out, with its type. Masked values are masked first.
"""

import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from decimal import Context, Decimal
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
from boto3.dynamodb.types import Binary
from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError

from headwater.contract.masks import masked, needed_key
from headwater.contract.model import DROP, HMAC, Column, Contract, Mask
from headwater.contract.types import Type
from headwater.errors import UserError
from headwater.verify import dynamodb_forms
from headwater.verify.arrow_forms import arrow_forms
from headwater.verify.bunches import Bunch, Found, Pace, bunch_of
from headwater.verify.compare import Field
from headwater.verify.forms import (
    Form,
    Row,
    ToForm,
    days,
    guarded,
    integer,
    micros,
    part_form,
    plain_text,
    unreadable,
    unscaled,
)
from headwater.verify.spelling import HIDDEN, hides, spelled, spelled_hidden

_KEYS_AT_ONCE = 100  # BatchGetItem's limit
_KEY_BYTES = (2048, 1024)  # at most, of a partition key and of a sort key
_PAGE_UNITS = 256.0  # what a page of a Scan takes at most: a unit for each 4 KB of 1 MB
_REFUSED_SECONDS = (1, 2, 4, 8, 16, 30)
_THROTTLED = ("ProvisionedThroughputExceededException", "RequestLimitExceeded", "ThrottlingException")
_DIGITS = Context(prec=38)
_SETS = ("SS", "NS", "BS")
_DOCUMENTS = ("M", "L")


class DynamoDbSource:
    """Reads the tables of DynamoDB.

    Args:
        client: boto3's low-level client.
        tables: By the contract's table, the DynamoDB table's name if it is not the contract's ``source.table``.
        mask_key: The key of masks.
        read_units: How many read units per second reading in bunches may use, for each table.
        paces: The pace of each DynamoDB table, by its name. Missing ones are added.
    """

    def __init__(
        self,
        client: Any,
        tables: Mapping[str, str] | None = None,
        mask_key: bytes | None = None,
        read_units: float = 100.0,
        paces: dict[str, Pace] | None = None,
    ) -> None:
        self._client = client
        self._read_units = read_units
        self._mask_key = mask_key
        self._tables = tables or {}
        self._paces = {} if paces is None else paces

    def reading(self) -> AbstractContextManager[None]:
        """Does nothing: a Scan has no snapshot, so it may or may not see concurrent changes."""
        return nullcontext()

    def table(self, contract: Contract) -> "DynamoDbTable":
        """Return a contract's table. Raises UserError if it needs the key of masks and there is none."""
        table = self._tables.get(contract.table, contract.source.table)
        pace = self._paces.setdefault(table, Pace())
        return DynamoDbTable(contract, self._client, table, self._mask_key, self._read_units, pace)


class DynamoDbTable:
    """A contract's items in DynamoDB, as forms in the order of the contract's columns, with ``_rest`` at the end.

    An item whose time to live has run out counts as long as a Scan returns it.
    """

    def __init__(
        self,
        contract: Contract,
        client: Any,
        table: str,
        mask_key: bytes | None = None,
        read_units: float = 100.0,
        pace: Pace | None = None,
    ) -> None:
        self.contract = contract
        self.pace = pace or Pace()
        self._read_units = read_units
        self._mask_key = needed_key(contract, mask_key)
        self.fields = (*(_field(contract, column) for column in contract.columns), _rest_field(contract))
        self._client = client
        self._table = table
        self._plan = [(column.path, _column_form(column)) for column in contract.columns]
        self._named = _Named.by(contract)
        self._key_names: tuple[str, ...] = ()

    def rows(self) -> Iterator[Row]:
        """Stream the items' rows, with strongly consistent reads. Raises UserError if the table cannot be read."""
        with self._errors():
            for page in self._client.get_paginator("scan").paginate(TableName=self._table, ConsistentRead=True):
                for item in page["Items"]:
                    yield self.row(item)

    def bunches(self, rows: int, after: Any | None = None) -> Iterator[Bunch]:
        """Stream the items in bunches of at most ``rows``, each a page of a strongly consistent Scan.

        The stream begins after the item whose ``Found.asked`` is ``after``. Raises UserError as ``rows`` does.
        """
        named = self._named_key()
        request = {"TableName": self._table, "ConsistentRead": True, "Limit": rows, "ReturnConsumedCapacity": "TOTAL"}
        if after is not None:
            request["ExclusiveStartKey"] = after
        while True:
            with self._errors():
                page = self._client.scan(**request)
            self._rest_for(page.get("ConsumedCapacity"), _PAGE_UNITS)
            yield self._bunch(page["Items"], named)
            if "LastEvaluatedKey" not in page:
                return
            request["ExclusiveStartKey"] = page["LastEvaluatedKey"]

    def rows_at(self, asked: Sequence[Any]) -> Iterator[Bunch]:
        """Stream the items with these keys, by strongly consistent reads.

        The keys come from ``Found.asked`` or ``asked_of``. Raises UserError as ``rows`` does, and if DynamoDB returns
        nothing for a minute.
        """
        # DynamoDB may leave out keys (UnprocessedKeys): they are requested again, after rests that grow.
        waiting = list(asked)
        refusals = 0
        while waiting:
            now, waiting = waiting[:_KEYS_AT_ONCE], waiting[_KEYS_AT_ONCE:]
            with self._errors():
                answer = self._client.batch_get_item(
                    RequestItems={self._table: {"Keys": now, "ConsistentRead": True}}, ReturnConsumedCapacity="TOTAL"
                )
            for consumed in answer.get("ConsumedCapacity") or [None]:
                self._rest_for(consumed, len(now))
            left = answer.get("UnprocessedKeys", {}).get(self._table, {}).get("Keys", ())
            refusals = refusals + 1 if len(left) == len(now) else 0
            if refusals > len(_REFUSED_SECONDS):
                raise UserError(self._throttled("BatchGetItem gives nothing"))
            if left:
                self.pace.rest(_REFUSED_SECONDS[max(refusals - 1, 0)])
            waiting = [*left, *waiting]
            yield self._bunch(answer.get("Responses", {}).get(self._table, ()), tuple(now[0]))

    def asked_of(self, key: Row) -> dict[str, dict[str, Any]] | None:
        """Return the key of an item that only the lake has, as ``rows_at`` takes it.

        Returns None for a key that no item can have, which DynamoDB would refuse.
        """
        values: dict[str, dict[str, Any]] = {}
        for name, form in zip(self.contract.key, key, strict=True):
            column = self.contract.column(name)
            if form is None or isinstance(form, tuple):
                return None
            text = next(each for each in self.fields if each.name == name).spell(form)
            source_type = column.source_type or ""
            values[column.path[0]] = {source_type: bytes.fromhex(text) if source_type == "B" else text}
        named = self._named_key()
        if set(values) != set(named):
            return None
        fits = all(_is_key_value(values[name], most) for name, most in zip(named, _KEY_BYTES, strict=False))
        return {name: values[name] for name in named} if fits else None

    def _bunch(self, items: Iterable[Mapping[str, Any]], named: Sequence[str]) -> Bunch:
        return bunch_of(self, (Found(self.row(item), {name: item[name] for name in named}) for item in items))

    def _rest_for(self, consumed: Mapping[str, Any] | None, otherwise: float) -> None:
        """Rest for the units that a request has consumed, or for ``otherwise`` units if the API does not say."""
        units = otherwise if consumed is None else consumed.get("CapacityUnits", otherwise)
        self.pace.rest(units / self._read_units)

    def _named_key(self) -> tuple[str, ...]:
        """The names of the table's own key."""
        if not self._key_names:
            with self._errors():
                described = self._client.describe_table(TableName=self._table)["Table"]["KeySchema"]
            self._key_names = tuple(element["AttributeName"] for element in described)
        return self._key_names

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (BotoCoreError, ClientError) as error:
            if isinstance(error, ClientError) and error.response["Error"]["Code"] in _THROTTLED:
                raise UserError(self._throttled(error.response["Error"]["Code"])) from None
            # Without the error as a cause, because its own text may repeat values of items.
            raise UserError(
                f"{self.contract.table}: reading the DynamoDB table {self._table} failed: {_told(error)}. Check "
                "--dynamodb-table, --dynamodb-endpoint, --region and the AWS credentials, which need dynamodb:Scan, "
                "and for --watch dynamodb:DescribeTable and dynamodb:BatchGetItem."
            ) from None

    def _throttled(self, how: str) -> str:
        return (
            f"{self.contract.table}: the DynamoDB table {self._table} is throttled: {how}. Read it more slowly, with a "
            "lower --read-units, or give it more read capacity."
        )

    def row(self, item: Mapping[str, Any]) -> Row:
        """One item's forms, from its attributes as the client returns them."""
        values: Mapping[str, Any] = dynamodb_forms.deserialized(item)
        # If something other than maps is on the way to a hidden value, the lake has nothing of the whole attribute.
        unknown = {path[0] for path in self.contract.hidden_inside if isinstance(_at(values, path), _NoMap)}
        values = {name: value for name, value in values.items() if name not in unknown}
        for path in self.contract.exclude:
            values = _without(values, path)
        for mask in self.contract.masks:
            values = self._with_mask(values, mask, mask.path)
        return (*(to_form(_at(values, path)) for path, to_form in self._plan), self._rest(values))

    def _with_mask(self, values: Mapping[str, Any], mask: Mask, path: tuple[str, ...]) -> Mapping[str, Any]:
        """Return the map with the mask in place of the value at the path."""
        name, *inner = path
        if name not in values:
            return values
        value = values[name]
        if not inner:
            kept = masked(value, self._mask_key) if mask.how == HMAC and isinstance(value, str) else None
            return {**values, name: kept}
        return {**values, name: self._with_mask(value, mask, tuple(inner))} if isinstance(value, Mapping) else values

    def _rest(self, values: Mapping[str, Any]) -> Form:
        if self.contract.unnamed == DROP:
            return None
        return tuple(sorted(self._named.leftovers(values, ()))) or None


def _is_key_value(value: Mapping[str, Any], most: int) -> bool:
    """Whether DynamoDB accepts a value as a key of at most this many bytes. A number has 38 digits."""
    ((source_type, content),) = value.items()
    if source_type == "N":
        number = Decimal(content).normalize(_DIGITS)
        return number.is_finite() and number == Decimal(content) and -130 <= number.adjusted() <= 125
    return 0 < len(content if source_type == "B" else content.encode()) <= most


def _told(error: BotoCoreError | ClientError) -> str:
    """An error's text, without the values of items that requests repeat."""
    if isinstance(error, ParamValidationError):
        return type(error).__name__
    if isinstance(error, ClientError) and error.response["Error"]["Code"] == "ValidationException":
        return f"{error.operation_name} is refused (ValidationException)"
    return str(error)


_ABSENT = object()


class _NoMap(NamedTuple):
    """A value that a path passes through and that is not a map. No column's type takes it."""

    name: str
    """The next name in the path, which a map would have to hold."""
    value: Any


def _without(values: Mapping[str, Any], path: tuple[str, ...]) -> Mapping[str, Any]:
    """Return the map without the value at the path."""
    name, *inner = path
    if not inner:
        return {key: value for key, value in values.items() if key != name}
    held = values.get(name)
    return {**values, name: _without(held, tuple(inner))} if isinstance(held, Mapping) else values


def _at(values: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """Return the value at a path into maps.

    It is ``_ABSENT`` if there is no value, and None if it or a map around it is NULL. If something other than a map is
    around it, a ``_NoMap`` is returned.
    """
    value: Any = values
    for name in path:
        if value is None or value is _ABSENT:
            return value
        if not isinstance(value, Mapping):
            return _NoMap(name, value)
        value = value.get(name, _ABSENT)
    return value


# --- What no column names -------------------------------------------------------------------------------------------


@dataclass
class _Named:
    """The parts of a value that a contract's columns hold."""

    held: bool = False
    """Whether a column holds the value itself, whole or as a struct of its parts."""
    whole: bool = False
    """Whether a column holds all of it."""
    parts: dict[str, "_Named"] = field(default_factory=dict)
    """The parts of a map that columns hold, by name."""
    element: "_Named | None" = None
    """The parts of a list's elements that columns hold."""

    @staticmethod
    def by(contract: Contract) -> "_Named":
        """Return the parts of an item that a contract's columns hold."""
        item = _Named()
        for column in contract.columns:
            named = item
            for name in column.path:
                named = named.parts.setdefault(name, _Named())
            named._add(column.type)
        return item

    def _add(self, type_: Type) -> None:
        self.held = True
        if type_.kind == "struct":
            for name, field_type in type_.fields:
                self.parts.setdefault(name, _Named())._add(field_type)
        elif type_.kind == "array" and type_.element is not None and type_.element.kind in ("array", "struct"):
            self.element = self.element or _Named()
            self.element._add(type_.element)
        else:
            self.whole = True

    def leftovers(self, value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Form]]:
        """Stream the path and the form of each value that no column holds.

        A column is null if its attribute is absent, is NULL, or lies in an empty map. To tell the three apart, NULL and
        the empty map are left over too.
        """
        if value is None:
            yield path, _whole_form(None)
        elif self.whole:
            return
        elif isinstance(value, Mapping):
            if not value and not self.held:
                yield path, _whole_form(value)
            for name, inner in value.items():
                named = self.parts.get(name)
                if named is None:
                    yield (*path, name), _whole_form(inner)
                else:
                    yield from named.leftovers(inner, (*path, name))
        elif isinstance(value, list) and self.element is not None:
            for at, inner in enumerate(value):
                yield from self.element.leftovers(inner, (*path, str(at)))


_whole_form = guarded(dynamodb_forms.of_value)


def _rest_field(contract: Contract) -> Field:
    """The lake's ``_rest``, a JSON object that holds typed values by their path."""
    known = {column.path[0] for column in contract.columns}

    def form(text: Any) -> Form:
        document = dynamodb_forms.parse_json(text)
        if not isinstance(document, dict):
            raise ValueError(text)
        rest = [(_path(name, known), dynamodb_forms.of_json(value)) for name, value in document.items()]
        return tuple(sorted(rest)) or None

    paths = {column.name: column.path for column in contract.columns}

    def beside(form: Form, unfit: Set[str]) -> Form:
        kept = [paths[name] for name in unfit if name in paths]
        if form is None or not isinstance(form[0], tuple):
            return form
        return tuple(entry for entry in form if not any(_along(entry[0], path) for path in kept)) or None

    return Field(
        "_rest", partial(arrow_forms, type_=Type("string"), text=form), partial(_spelled_rest, contract), beside
    )


def _along(path: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether one of two paths begins with the other. ``_rest`` keeps values that do not fit at such paths."""
    shorter = min(len(path), len(other))
    return path[:shorter] == other[:shorter]


def _path(name: str, known: Container[str]) -> tuple[str, ...]:
    """Return the path that a name in ``_rest`` stands for.

    The name is a path of several names if it begins with a quote, or with an attribute that columns hold.
    """
    if name.startswith('"') or name.partition(".")[0] in known:
        return dynamodb_forms.split_path(name)
    return (name,)


def _spelled_rest(contract: Contract, form: Form) -> str:
    """``_rest`` without the values that the contract masks or excludes, which older rows of the lake may have."""
    if form is None:
        return "null"
    if not isinstance(form[0], tuple):
        return HIDDEN if contract.exclude or contract.masks else spelled(form, Type("string"))
    rest = {}
    for path, value in form:
        written = dynamodb_forms.to_json(value)
        is_hidden = written != {"NULL": True} and any(hides(contract, each) for each in _possible_paths(path))
        rest[dynamodb_forms.join_path(path)] = HIDDEN if is_hidden else written
    return json.dumps(rest, ensure_ascii=False)


def _possible_paths(path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The paths that a name in ``_rest`` may stand for.

    The columns of an earlier contract, which decided whether a dot separates two names, are not known.
    """
    name = ".".join(path)
    yield from (path, (name,))
    with suppress(ValueError):
        yield dynamodb_forms.split_path(name)


# --- Columns --------------------------------------------------------------------------------------------------------


def _field(contract: Contract, column: Column) -> Field:
    type_, source_type = column.type, column.source_type
    is_hidden = hides(contract, column.path)
    spell: Callable[[Form], str] = spelled_hidden if is_hidden else partial(spelled, type_=type_)
    if source_type in _SETS:
        element = dynamodb_forms.number if source_type == "NS" else plain_text
        return Field(column.name, partial(_set_forms, type_=type_, text=element), spell)
    if type_.kind == "string" and source_type in _DOCUMENTS:
        spell = spelled_hidden if is_hidden else _spelled_document
        return Field(column.name, partial(arrow_forms, type_=type_, text=_document_form), spell)
    text = dynamodb_forms.number if source_type == "N" and column.transform is None else plain_text
    return Field(column.name, partial(arrow_forms, type_=type_, text=text), spell)


def _set_forms(array: pa.Array, type_: Type, text: ToForm) -> list[Form]:
    return [None if members is None else _in_any_order(members) for members in arrow_forms(array, type_, text)]


def _in_any_order(members: Iterable[Form]) -> Form:
    # Sorted by their text: the form of a member that its type cannot hold has no order among numbers.
    return tuple(sorted(members, key=repr))


def _document_form(text: Any) -> Form:
    return dynamodb_forms.of_json(dynamodb_forms.parse_json(text))


def _spelled_document(form: Form) -> str:
    if form is None or form[0] not in _DOCUMENTS:
        return spelled(form, Type("string"))
    return json.dumps(dynamodb_forms.to_json(form), ensure_ascii=False)


def _column_form(column: Column) -> ToForm:
    """The function that turns a column's attribute, or ``_ABSENT``, into its form."""
    source_type = column.source_type or ""
    if column.transform is None:
        to_form = _value_form(column.type, source_type)
    else:
        part = part_form(column.transform)
        is_text = source_type == "N" and column.transform.unit is None
        to_form = _of_type(source_type, (lambda value: part(dynamodb_forms.number(value))) if is_text else part)
    return lambda value: column.absent if value is _ABSENT or value is None else to_form(value)


# The Python type that boto3 makes of each DynamoDB type, and the DynamoDB type that each lake type inside a map or a
# list comes from.
_PYTHON_TYPES = {
    "S": str, "N": Decimal, "B": Binary, "BOOL": bool, "M": dict, "L": list, "SS": set, "NS": set, "BS": set,
}  # fmt: skip
_INNER_TYPES = {
    "string": "S", "date": "S", "int": "N", "bigint": "N", "decimal": "N", "binary": "B", "boolean": "BOOL",
    "array": "L", "struct": "M",
}  # fmt: skip


def _value_form(type_: Type, source_type: str) -> ToForm:
    """The function that turns a value into its form; a value that is not of ``source_type`` is unreadable."""
    return _of_type(source_type, _typed_form(type_, source_type))


def _of_type(source_type: str, to_form: ToForm) -> ToForm:
    expected = _PYTHON_TYPES[source_type]
    return guarded(lambda value: to_form(value) if isinstance(value, expected) else unreadable(value))


def _typed_form(type_: Type, source_type: str) -> ToForm:
    if type_.element is not None:
        element = _value_form(
            type_.element, source_type[0] if source_type in _SETS else _INNER_TYPES[type_.element.kind]
        )
        ordered = _in_any_order if source_type in _SETS else tuple
        return lambda value: ordered(None if member is None else element(member) for member in value)
    if type_.kind == "struct":
        fields = [(name, _value_form(field_type, _INNER_TYPES[field_type.kind])) for name, field_type in type_.fields]
        return lambda value: tuple(
            None if value.get(name) is None else to_form(value[name]) for name, to_form in fields
        )
    if type_.kind == "string" and source_type in _DOCUMENTS:
        return dynamodb_forms.of_value
    if type_.kind == "decimal":
        return lambda value: unscaled(value, type_.scale)
    scalars: dict[str, ToForm] = {
        "int": integer,
        "bigint": integer,
        "boolean": bool,
        "string": dynamodb_forms.number if source_type == "N" else plain_text,
        "binary": lambda value: dynamodb_forms.raw_bytes(value).hex(),
        "date": days,
        "timestamp": micros,
    }
    return scalars[type_.kind]
