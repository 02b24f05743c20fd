"""Comparing a source with its lake table, with rows made by hand."""

import datetime as dt
import io
import math
import struct
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from headwater.commands.comparison_output import comparison_table
from headwater.contract.model import Contract
from headwater.contract.reading import from_document
from headwater.errors import UserError
from headwater.verify import (
    MAX_EXAMPLES,
    TableComparison,
    compare,
    load_queries,
    read_lake,
    read_live_table,
    s3_options,
)
from headwater.verify.compare import lake_rows
from headwater.verify.forms import Row, clock, days, interval, micros
from headwater.verify.postgresql_source import PostgresqlTable
from headwater.verify.spelling import spelled_date, spelled_interval, spelled_moment, spelled_time

UTC = dt.UTC


def contract_of(*columns: dict[str, str], key: str = "id", **fields: Any) -> Contract:
    identity = {"name": "id", "type": "int", "source_type": "integer"}
    document = {
        "table": "things",
        "description": "For tests.",
        "source": {"database": "postgresql", "table": "northwind.things"},
        "key": [key],
        "partition_by": [],
        "buckets": 1,
        "columns": [identity, *columns],
        **fields,
    }
    return from_document(document, "things.yaml")


def one_column(type_: str, source_type: str, **fields: Any) -> Contract:
    return contract_of({"name": "value", "type": type_, "source_type": source_type, **fields})


class Given(PostgresqlTable):
    """A table whose rows are given as PostgreSQL's texts, not read."""

    def __init__(self, contract: Contract, texts: Sequence[tuple[str | None, ...]]) -> None:
        connection: psycopg.Connection = None  # type: ignore[assignment]  # nothing is read
        super().__init__(contract, connection, None)
        self._texts = texts

    def rows(self) -> Iterator[Row]:
        return map(self.row, self._texts)


def compared(contract: Contract, texts: list[tuple[str | None, ...]], lake: pa.Table | None) -> TableComparison:
    return compare(Given(contract, texts), [] if lake is None else lake.to_batches())


def counts_of(table: TableComparison) -> tuple[int, int, int, int, int]:
    return table.source_rows, table.lake_rows, table.missing, table.extra, table.different


NAMES = one_column("string", "text")


def names_lake(*rows: tuple[int, str | None, bool | None]) -> pa.Table:
    ids, values, deleted = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.table(
        {
            "id": pa.array(ids, pa.int32()),
            "value": pa.array(values, pa.string()),
            "_deleted": pa.array(deleted, pa.bool_()),
        }
    )


class TestRows:
    def test_equal_rows_in_another_order_are_equal(self) -> None:
        table = compared(NAMES, [("1", "a"), ("2", None)], names_lake((2, None, False), (1, "a", False)))
        assert counts_of(table) == (2, 2, 0, 0, 0)
        assert table.equal
        assert table.examples == ()

    def test_a_key_that_only_the_source_has_is_missing(self) -> None:
        table = compared(NAMES, [("1", "a"), ("2", "b")], names_lake((1, "a", False)))
        assert counts_of(table) == (2, 1, 1, 0, 0)
        assert [(example.kind, example.key) for example in table.examples] == [("missing", {"id": "2"})]

    def test_a_key_that_only_the_lake_has_is_extra(self) -> None:
        assert counts_of(compared(NAMES, [("1", "a")], names_lake((1, "a", False), (2, "b", False)))) == (1, 2, 0, 1, 0)

    def test_other_content_is_different_and_the_example_says_where(self) -> None:
        table = compared(NAMES, [("1", "a")], names_lake((1, "b", False)))
        assert counts_of(table) == (1, 1, 0, 0, 1)
        assert table.examples[0].columns == {"value": ("a", "b")}

    def test_an_empty_text_is_not_null(self) -> None:
        assert compared(NAMES, [("1", "")], names_lake((1, None, False))).different == 1

    def test_a_text_that_reads_null_is_not_null(self) -> None:
        assert compared(NAMES, [("1", "None")], names_lake((1, None, False))).different == 1

    def test_an_unfit_value_is_counted_and_makes_no_row_different(self) -> None:
        lake = names_lake((1, None, False), (2, None, False), (3, "c", False), (4, None, True))
        lake = lake.append_column("_unfit", pa.array([["value"], None, [], ["value"]], pa.list_(pa.string())))
        table = compared(NAMES, [("1", "a"), ("2", None), ("3", "c")], lake)
        assert (counts_of(table), table.unfit, table.equal) == ((3, 3, 0, 0, 0), 1, False)
        (example,) = table.examples
        assert (example.kind, example.key, example.columns) == ("unfit", {"id": "1"}, {"value": ("a", "null")})

    def test_a_row_with_an_unfit_value_can_be_different_missing_or_extra_too(self) -> None:
        contract = contract_of(
            {"name": "value", "type": "string", "source_type": "text"},
            {"name": "other", "type": "string", "source_type": "text"},
        )
        lake = pa.table(
            {
                "id": pa.array([1, 2, 3], pa.int32()),
                "value": pa.array([None] * 3, pa.string()),
                "other": pa.array(["x", "y", "z"]),
                "_unfit": pa.array([["value"]] * 3, pa.list_(pa.string())),
            }
        )
        table = compared(contract, [("1", "a", "x"), ("2", "b", "stale"), ("4", "d", "z")], lake)
        assert (counts_of(table), table.unfit) == ((3, 3, 1, 1, 1), 3)
        assert {example.kind for example in table.examples} == {"extra", "missing", "different", "unfit"}

    def test_a_tombstone_is_no_row(self) -> None:
        assert counts_of(compared(NAMES, [("1", "a")], names_lake((1, "a", None), (2, "b", True)))) == (1, 1, 0, 0, 0)

    def test_a_tombstone_of_a_row_that_the_source_has_leaves_it_missing(self) -> None:
        assert counts_of(compared(NAMES, [("1", "a")], names_lake((1, "a", True)))) == (1, 0, 1, 0, 0)

    def test_a_second_copy_is_extra_even_if_it_is_the_same(self) -> None:
        assert counts_of(compared(NAMES, [("1", "a")], names_lake((1, "a", False), (1, "a", False)))) == (1, 2, 0, 1, 0)

    @pytest.mark.parametrize("order", [("a", "old"), ("old", "a")])
    def test_a_stale_copy_in_another_partition_is_extra_wherever_it_comes(self, order: tuple[str, str]) -> None:
        lake = names_lake(*((1, value, False) for value in order))
        assert counts_of(compared(NAMES, [("1", "a")], lake)) == (1, 2, 0, 1, 0)

    def test_a_table_never_written_has_no_rows(self) -> None:
        assert counts_of(compared(NAMES, [("1", "a")], None)) == (1, 0, 1, 0, 0)

    def test_examples_are_few(self) -> None:
        table = compared(NAMES, [(str(number), "a") for number in range(100)], None)
        assert (table.missing, len(table.examples)) == (100, MAX_EXAMPLES)

    def test_a_key_that_the_source_repeats_is_an_error_that_names_it(self) -> None:
        with pytest.raises(UserError, match=r"things: the source has id = 7 twice, expected once"):
            compared(NAMES, [("7", "a"), ("7", "b")], names_lake())

    def test_a_column_that_the_lake_lacks_is_null_there(self) -> None:
        lake = names_lake((1, "a", False), (2, "a", False)).drop(["value"])
        assert counts_of(compared(NAMES, [("1", None), ("2", "a")], lake)) == (2, 2, 0, 0, 1)

    @settings(deadline=None)
    @given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from("ab"), st.booleans()), max_size=12))
    def test_counts_add_up_whatever_the_lake_holds(self, rows: list[tuple[int, str, bool]]) -> None:
        table = compared(NAMES, [("1", "a"), ("2", "a"), ("3", "b")], names_lake(*rows))
        live = [row[:2] for row in rows if not row[2]]
        keys = {key for key, _ in live}
        assert table.lake_rows == len(live)
        assert table.missing == len({1, 2, 3} - keys)
        assert table.extra == len(live) - len(keys & {1, 2, 3})
        right = {(1, "a"), (2, "a"), (3, "b")}
        assert table.different == len((keys & {1, 2, 3}) - {key for key, value in live if (key, value) in right})


NAN_WITH_PAYLOAD = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000123))[0]


class TestValues:
    @pytest.mark.parametrize(
        ("type_", "source_type", "text", "lake"),
        [
            ("int", "smallint", "-5", pa.array([-5], pa.int32())),
            ("bigint", "bigint", "9223372036854775807", pa.array([2**63 - 1])),
            ("decimal(12,4)", "numeric(12,4)", "1.50", pa.array([Decimal("1.5000")], pa.decimal128(12, 4))),
            ("decimal(12,4)", "numeric(12,4)", "-0.0001", pa.array([Decimal("-0.0001")], pa.decimal128(12, 4))),
            ("decimal(38,0)", "numeric(38,0)", "9" * 38, pa.array([Decimal("9" * 38)], pa.decimal128(38, 0))),
            ("string", "numeric", "1.50", pa.array(["1.50"])),
            ("float", "real", "0.1", pa.array([0.1], pa.float32())),
            ("double", "double precision", "0.1", pa.array([0.1])),
            ("double", "double precision", "-0", pa.array([-0.0])),
            ("double", "double precision", "NaN", pa.array([NAN_WITH_PAYLOAD])),
            ("double", "double precision", "-Infinity", pa.array([-math.inf])),
            ("boolean", "boolean", "f", pa.array([False])),
            ("string", "character(5)", "ab   ", pa.array(["ab   "])),
            ("string", "text", "späß\n\t\\", pa.array(["späß\n\t\\"], pa.large_string())),
            ("binary", "bytea", "\\x00ff", pa.array([b"\x00\xff"])),
            ("date", "date", "1996-07-04", pa.array([dt.date(1996, 7, 4)])),
            ("date", "date", "0044-03-15 BC", pa.array([-735160], pa.int32()).view(pa.date32())),
            ("string", "date", "1996-07-04", pa.array(["1996-07-04"])),
            (
                "timestamp",
                "timestamp with time zone",
                "1996-07-04 10:00:00.12+00",
                pa.array([dt.datetime(1996, 7, 4, 10, 0, 0, 120_000, UTC)]),
            ),
            (
                "timestamp",
                "timestamp without time zone",
                "1969-12-31 23:59:59.999999",
                pa.array([-1000], pa.timestamp("ns")),
            ),
            ("string", "timestamp without time zone", "1996-07-04 10:00:00", pa.array(["1996-07-04T10:00:00"])),
            ("string", "timestamp with time zone", "1996-07-04 10:00:00+00", pa.array(["1996-07-04T10:00:00.000000Z"])),
            ("string", "time without time zone", "10:00:00.5", pa.array(["10:00:00.500000"])),
            ("string", "interval", "P1Y2M-3DT4H5M6.7S", pa.array(["P1Y2M-3DT4H5M6.7S"])),
            ("string", "interval", "PT0S", pa.array(["P0Y0M0DT0H0M0.0S"])),
            ("string", "uuid", "8c5b0b5e", pa.array(["8c5b0b5e"])),
            ("string", "text", "a", pa.array(["a"]).dictionary_encode()),
            ("array<int>", "integer[]", "[1,null,3]", pa.array([[1, None, 3]], pa.list_(pa.int32()))),
            ("array<double>", "double precision[]", '[-0, "NaN"]', pa.array([[-0.0, math.nan]])),
            ("array<string>", "text[]", '["a","null",null]', pa.array([["a", "null", None]])),
            ("array<string>", "numeric[]", '[1.50,0.00000001,"NaN"]', pa.array([["1.50", "0.00000001", "NaN"]])),
            ("array<int>", "integer[]", "[]", pa.array([[]], pa.list_(pa.int32()))),
        ],
    )  # fmt: skip
    def test_the_same_value_is_equal_however_each_side_writes_it(
        self, type_: str, source_type: str, text: str, lake: pa.Array
    ) -> None:
        table = pa.table({"id": pa.array([1], pa.int32()), "value": lake})
        comparison = compared(one_column(type_, source_type), [("1", text)], table)
        assert comparison.equal, comparison.examples

    @pytest.mark.parametrize(
        ("type_", "source_type", "text", "lake"),
        [
            ("int", "integer", "5", pa.array(["5"])),
            ("bigint", "bigint", "9007199254740993", pa.array([9007199254740992])),
            ("decimal(12,4)", "numeric(12,4)", "1.5000", pa.array([Decimal("1.5001")], pa.decimal128(12, 4))),
            ("decimal(12,4)", "numeric(12,4)", "NaN", pa.array([Decimal(0)], pa.decimal128(12, 4))),
            ("decimal(12,4)", "numeric(12,4)", "1.5", pa.array([1.5])),
            ("string", "numeric", "1.50", pa.array(["1.5"])),
            ("float", "real", "0.1", pa.array([0.1], pa.float64())),
            ("double", "double precision", "0", pa.array([-0.0])),
            ("double", "double precision", "0.1", pa.array([0.1], pa.float32())),
            ("double", "double precision", "NaN", pa.array([None], pa.float64())),
            ("boolean", "boolean", "t", pa.array([1])),
            ("string", "character(5)", "ab   ", pa.array(["ab"])),
            ("binary", "bytea", "\\x00ff", pa.array([b"\x00"])),
            ("binary", "bytea", "\\x", pa.array([None], pa.binary())),
            ("date", "date", "1996-07-04", pa.array([dt.date(1996, 7, 5)])),
            ("date", "date", "infinity", pa.array([dt.date(9999, 12, 31)])),
            (
                "timestamp",
                "timestamp without time zone",
                "1996-07-04 10:00:00.000001",
                pa.array([dt.datetime(1996, 7, 4, 10)]),
            ),
            ("timestamp", "timestamp without time zone", "1970-01-01 00:00:00", pa.array([1], pa.timestamp("ns"))),
            ("string", "interval", "P30D", pa.array(["P1M"])),
            ("array<int>", "integer[]", "[1]", pa.array([[1, None]], pa.list_(pa.int32()))),
            ("array<int>", "integer[]", "[]", pa.array([None], pa.list_(pa.int32()))),
        ],
    )  # fmt: skip
    def test_another_value_is_different(self, type_: str, source_type: str, text: str, lake: pa.Array) -> None:
        table = pa.table({"id": pa.array([1], pa.int32()), "value": lake})
        assert compared(one_column(type_, source_type), [("1", text)], table).different == 1

    @pytest.mark.parametrize(
        ("transform", "source_type", "text", "part"),
        [
            ("month", "date", "1996-07-04", "1996-07"),
            ("day", "timestamp without time zone", "1996-07-04 23:59:59.9", "1996-07-04"),
            ("hour", "timestamp with time zone", "1996-07-04 09:00:00.12+00", "1996-07-04-09"),
            ("hour(seconds)", "bigint", "-1", "1969-12-31-23"),
            ("day(milliseconds)", "bigint", "1709251199999", "2024-02-29"),
            ("bucket(16)", "integer", "1", 7),
            ("bucket(16)", "text", "späß", 15),
        ],
    )
    def test_a_part_of_a_value_is_equal_to_that_of_the_source(
        self, transform: str, source_type: str, text: str, part: str | int
    ) -> None:
        contract = one_column("int" if transform[0] == "b" else "string", source_type, transform=transform)
        assert compared(contract, [("1", text)], pa.table({"id": [1], "value": [part]})).equal
        other = f"{part}0" if isinstance(part, str) else part + 1
        assert compared(contract, [("1", text)], pa.table({"id": [1], "value": [other]})).different == 1

    @pytest.mark.parametrize("text", ["0044-03-15 BC", "infinity", "10000-01-01", "0044-03-15 10:00:00 BC"])
    def test_a_time_without_a_part_that_the_lake_could_have_is_different(self, text: str) -> None:
        lake = pa.table({"id": [1], "value": [text[:7]]})
        assert (
            compared(
                one_column("string", "timestamp without time zone", transform="month"), [("1", text)], lake
            ).different
            == 1
        )

    @settings(deadline=None)
    @given(st.dates())
    def test_dates_are_counted_as_python_counts_them(self, day: dt.date) -> None:
        table = pa.table({"id": pa.array([1], pa.int32()), "value": pa.array([day])})
        assert compared(one_column("date", "date"), [("1", day.isoformat())], table).equal


DOCUMENT = contract_of(
    {"name": "customer", "type": "struct<customer_id:string,since:date>", "from": "payload.customer"},
    {
        "name": "items",
        "type": "array<struct<product_id:int,unit_price:decimal(12,4),product:struct<name:string>>>",
        "from": "payload.items",
    },
    {"name": "placed_at", "type": "timestamp", "from": "payload.order.placed_at"},
)
PAYLOAD = """{"items": [{"product_id": 1, "unit_price": 14.0000, "product": {"name": "a", "unnamed": 1}},
 {"product_id": 2, "unit_price": null, "product": null}],
 "order": {"placed_at": "1996-07-04T12:00:00+02:00"}, "customer": {"since": "1990-01-01", "customer_id": "ALFKI"}}"""


class TestSpelling:
    """Times that the lake holds as text are spelled as PostgreSQL reads them."""

    @pytest.mark.parametrize(
        ("source_type", "text", "spelled"),
        [
            ("date", "2024-02-29", "2024-02-29"),
            ("date", "0044-03-15 BC", "0044-03-15 BC"),
            ("date", "infinity", "infinity"),
            ("time without time zone", "24:00", "24:00:00.000000"),
            ("timestamp without time zone", "1969-12-31T23:59:59.5", "1969-12-31 23:59:59.500000"),
            ("timestamp with time zone", "12024-02-29T10:00:00+02:00", "12024-02-29 08:00:00.000000Z"),
            ("timestamp with time zone", "0001-01-01 00:00:00+00 BC", "0001-01-01 00:00:00.000000Z BC"),
            ("interval", "P1Y-2M3DT-4H-5M-6.7S", "P10M3DT-4H-5M-6.700000S"),
            ("numeric(4,2)", "1.50", "1.50"),
        ],
    )
    def test_a_difference_shows_a_time_as_one(self, source_type: str, text: str, spelled: str) -> None:
        lake = pa.table({"id": pa.array([1], pa.int32()), "value": ["no time"]})
        table = compared(one_column("string", source_type), [("1", text)], lake)
        assert table.examples[0].columns["value"][0] == spelled

    @settings(deadline=None)
    @given(st.integers(-5_000_000, 5_000_000), st.integers(-(10**18), 10**18), st.integers(0, 86_400_000_000))
    def test_what_is_spelled_is_read_as_the_same(self, day: int, moment: int, time: int) -> None:
        assert days(spelled_date(day)) == day
        assert micros(spelled_moment(moment)) == micros(spelled_moment(moment, "Z")) == moment
        assert clock(spelled_time(time)) == time
        form = ("interval", day, -day, moment)
        assert interval(spelled_interval(form)) == form


def documents(price: str = "14", company: str | None = "ALFKI") -> pa.Table:
    items = pa.list_(
        pa.struct(
            [
                ("product_id", pa.int32()),
                ("unit_price", pa.decimal128(12, 4)),
                ("product", pa.struct([("name", pa.string())])),
            ]
        )
    )
    row = [
        {"product_id": 1, "unit_price": Decimal(price), "product": {"name": "a"}},
        {"product_id": 2, "unit_price": None, "product": None},
    ]
    return pa.table(
        {
            "id": pa.array([1], pa.int32()),
            "customer": pa.array([{"customer_id": company, "since": dt.date(1990, 1, 1)}]),
            "items": pa.array([row], items),
            "placed_at": pa.array([dt.datetime(1996, 7, 4, 10, tzinfo=UTC)]),
        }
    )


class TestDocuments:
    def test_paths_into_json_are_typed_structs(self) -> None:
        table = compared(DOCUMENT, [("1", PAYLOAD)], documents())
        assert table.equal, table.examples

    def test_a_document_that_python_cannot_parse_is_as_unfit_as_the_lake_says(self) -> None:
        names = ["customer", "items", "placed_at"]
        lake = pa.table({"id": pa.array([1], pa.int32()), "_unfit": pa.array([names])})
        deep = '{"customer": ' + "[" * 100_000 + "]" * 100_000 + "}"
        table = compared(DOCUMENT, [("1", deep)], lake)
        assert (table.different, table.unfit) == (0, 3)

    def test_an_integer_of_many_digits_is_no_hindrance(self) -> None:
        more = PAYLOAD.replace('"unnamed": 1', f'"unnamed": {"1" * 5_000}')
        assert compared(DOCUMENT, [("1", more)], documents()).equal

    def test_a_nested_value_that_differs_is_shown_readably(self) -> None:
        table = compared(DOCUMENT, [("1", PAYLOAD)], documents(price="15.5"))
        assert table.examples[0].columns["items"] == (
            "[{product_id: 1, unit_price: 14.0000, product: {name: a}}, "
            "{product_id: 2, unit_price: null, product: null}]",
            "[{product_id: 1, unit_price: 15.5000, product: {name: a}}, "
            "{product_id: 2, unit_price: null, product: null}]",
        )

    def test_a_null_inside_a_struct_differs_from_a_value(self) -> None:
        assert compared(DOCUMENT, [("1", PAYLOAD)], documents(company=None)).different == 1

    def test_a_null_struct_differs_from_a_struct_of_nulls(self) -> None:
        nulls = pa.array([{"customer_id": None, "since": None}], documents().schema.field("customer").type)
        lake = documents().set_column(1, "customer", nulls)
        assert compared(DOCUMENT, [("1", PAYLOAD.replace('"customer":', '"other":'))], lake).different == 1

    def test_slices_of_nested_arrays_keep_their_rows(self) -> None:
        rows = pa.concat_tables([documents(price=str(price)) for price in range(4)]).combine_chunks()
        batch = rows.to_batches()[0]
        fields = Given(DOCUMENT, []).fields
        whole = list(lake_rows(fields, batch))
        assert list(lake_rows(fields, batch.slice(1, 2))) == whole[1:3]


class TestReading:
    def test_a_table_that_was_never_written_gives_nothing(self, tmp_path: Path) -> None:
        uri = (tmp_path / "orders").as_uri()
        assert list(read_lake(uri, {})) == []
        assert read_live_table(uri, {}) is None

    def test_a_table_without_a_commit_gives_nothing(self, tmp_path: Path) -> None:
        folder = tmp_path / "my orders"
        (folder / ".hoodie").mkdir(parents=True)
        properties = {"name": "orders", "type": "MERGE_ON_READ", "version": 6, "timeline.timezone": "UTC"}
        lines = [f"hoodie.table.{name}={value}\n" for name, value in properties.items()]
        (folder / ".hoodie" / "hoodie.properties").write_text("".join([*lines, "hoodie.timeline.layout.version=1\n"]))
        assert list(read_lake(folder.as_uri(), {})) == []

    def test_a_folder_that_is_no_hudi_table_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "orders" / ".hoodie").mkdir(parents=True)
        (tmp_path / "orders" / ".hoodie" / "hoodie.properties").write_text("nonsense")
        with pytest.raises(UserError, match="orders cannot be read as a Hudi table"):
            list(read_lake((tmp_path / "orders").as_uri(), {}))

    def test_batches_stream(self) -> None:
        def batches() -> Iterator[pa.RecordBatch]:
            yield from names_lake((1, "a", False)).to_batches()
            yield from names_lake((2, "a", False)).to_batches()

        assert compare(Given(NAMES, [("1", "a"), ("2", "a")]), batches()).equal

    def test_an_s3_endpoint_is_addressed_by_path(self) -> None:
        assert s3_options("eu-central-1", "http://127.0.0.1:9000") == {
            "aws_region": "eu-central-1",
            "aws_endpoint_url": "http://127.0.0.1:9000",
            "aws_allow_http": "true",
            "aws_virtual_hosted_style_request": "false",
        }

    def test_a_query_that_is_not_there_is_an_error_with_its_path(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match=r"things.yaml: verify_with: .*absent.sql cannot be read"):
            load_queries([contract_of(verify_with="absent.sql")], tmp_path)

    def test_queries_are_found_beside_their_contract(self, tmp_path: Path) -> None:
        (tmp_path / "things.sql").write_text("SELECT 1")
        assert load_queries([contract_of(verify_with="things.sql"), NAMES], tmp_path) == {"things": "SELECT 1"}


def test_a_comparison_has_the_whole_names_of_its_tables() -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(comparison_table([TableComparison("packages_apt_postgresql_org", 50, 50, 0, 0, 0)]))
    lines = [line.split("│") for line in console.export_text().splitlines()]
    assert "".join(cells[1].strip() for cells in lines if len(cells) > 1) == "packages_apt_postgresql_org"
