"""Tables whose contract changes after rows are stored: old and new rows stand side by side, for every reader."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame

from headwater.contract.evolution import layout
from headwater.contract.model import Column, Contract
from headwater.contract.types import Type, parse_type
from headwater.lake.base.progress import Progress
from headwater.lake.decoding.debezium_decoder import PostgresDecoder
from headwater.lake.table import hudi_table as table
from headwater.lake.table.hudi_table import HudiTable
from tests.lake.pipeline import BUCKET, Pipeline, account, event
from tests.lake.readers import Hudi015, assert_same_to_every_reader

WIDE = "123456789012345678.25"


def retyped(contract: Contract, **types: str) -> Contract:
    columns = [
        replace(column, type=parse_type(types[column.name])) if column.name in types else column
        for column in contract.columns
    ]
    return replace(contract, columns=tuple(columns))


def test_rows_of_an_old_contract_and_of_a_new_one_stand_side_by_side(
    pipeline: Pipeline, hudi_015: Hudi015, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_old_table(pipeline, monkeypatch)
    old = pipeline.contract
    wider = retyped(old, balance="decimal(20,2)")
    columns = [column for column in wider.columns if column.name != "name"][::-1]
    pipeline.contract = replace(wider, columns=(*columns, Column("colour", Type("string"), "text", ("colour",))))
    unnamed = {name: value for name, value in account(6, balance=WIDE).items() if name != "name"}
    pipeline.land(
        event("c", 30, after={**account(5, balance=WIDE), "colour": "red"}),
        event("c", 31, after=unnamed),
        event("u", 32, before=account(2), after={**account(2, balance=WIDE), "colour": "blue"}),
        event("c", 33, after=account(7, balance="NAN")),
    )
    pipeline.drain()
    stored = pipeline.stored()
    assert [(row["id"], str(row["balance"]), row["colour"], row["name"], row["_unfit"]) for row in stored] == [
        (1, "3.50", None, "log", None),
        (2, WIDE, "blue", None, None),
        (3, "1.50", None, "Ann", None),
        (5, WIDE, "red", None, None),
        (6, WIDE, None, None, None),
        (7, "None", None, None, ["balance"]),
    ]
    assert_same_to_every_reader(pipeline, hudi_015)
    # The old contract, whose decimals are narrower and which has another column, is no error either.
    pipeline.contract = old
    pipeline.land(event("c", 40, after=account(8)))
    pipeline.drain()
    assert [(row["id"], str(row["balance"]), row["name"]) for row in pipeline.stored()][-1] == (8, "1.50", "Ann")


def test_a_column_is_added_while_log_files_lack_it(pipeline: Pipeline, hudi_015: Hudi015) -> None:
    pipeline.land(*(event("c", 10 + id_, after=account(id_)) for id_ in (1, 2, 3)))
    pipeline.drain()
    pipeline.land(
        event("u", 20, before=account(1), after=account(1, name="log")),
        event("u", 21, before=account(3), after=account(3, name="log", balance="NAN")),
    )
    pipeline.drain()
    pipeline.land(
        event("u", 22, before=account(1), after=account(1, name="log again")),
        event("c", 23, after=account(4)),
    )
    pipeline.drain()
    colour = Column("colour", Type("string"), "text", ("colour",))
    pipeline.contract = replace(pipeline.contract, columns=(*pipeline.contract.columns, colour))
    pipeline.land(
        event("u", 30, before=account(1), after={**account(1, name="again"), "colour": "red"}),
        event("u", 31, before=account(2), after={**account(2), "colour": "blue"}),
    )
    pipeline.drain()
    stored = [(row["id"], row["name"], row["colour"], row["_unfit"]) for row in pipeline.stored()]
    assert stored == [
        (1, "again", "red", None),
        (2, "Ann", "blue", None),
        (3, "log", None, ["balance"]),
        (4, "Ann", None, None),
    ]
    assert_same_to_every_reader(pipeline, hudi_015)


def test_a_type_that_changed_otherwise_is_refused_before_anything_is_written(pipeline: Pipeline) -> None:
    pipeline.land(event("c", 10, after=account(1)))
    pipeline.drain()
    before = timeline(pipeline)
    old = pipeline.contract
    wide = "decimal(20,2)"
    for types, refused in (
        (
            {"balance": "decimal(14,4)"},
            r"balance is decimal\(12,2\) in the table and decimal\(14,4\) in the contract\.",
        ),
        ({"balance": wide, "name": "int"}, r"name is string in the table and int in the contract\."),
        (
            {"id": "bigint", "lines": "array<string>"},
            r"id is int .* and bigint .*, lines is array<struct.* and array<string>",
        ),
    ):
        pipeline.contract = retyped(old, **types)
        with pytest.raises(ValueError, match=rf"accounts: .*: {refused}.*describe a new table"):
            pipeline.writer()
    assert timeline(pipeline) == before


def timeline(pipeline: Pipeline) -> list[str]:
    """The keys of the table's instants, completed or not, in their order."""
    prefix = f"{pipeline.lake.partition(BUCKET + '/')[2]}/accounts/.hoodie/"
    listed = pipeline.s3.list_objects_v2(Bucket=BUCKET, Prefix=prefix, Delimiter="/")["Contents"]
    return sorted(entry["Key"] for entry in listed if entry["Key"].removeprefix(prefix)[:1].isdigit())


def test_an_ordinary_compaction_joins_narrow_and_wide_decimals(
    pipeline: Pipeline, hudi_015: Hudi015, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_old_table(pipeline, monkeypatch)
    pipeline.contract = retyped(pipeline.contract, balance="decimal(20,2)")
    pipeline.land(event("u", 30, before=account(1), after=account(1, balance=WIDE)))
    pipeline.drain()
    compacted = compactions(pipeline)
    monkeypatch.setitem(table._OPTIONS, "hoodie.compact.inline.max.delta.commits", "1")
    monkeypatch.setitem(table._OPTIONS, "hoodie.compaction.logfile.num.threshold", "1")
    # A narrow row in a log file beside a wide one, then a compaction, then both kinds in log files again.
    pipeline.land(event("u", 40, before=account(2), after=account(2, name="Bea", balance="4.50")))
    pipeline.drain()
    assert len(compactions(pipeline)) == len(compacted) + 1
    monkeypatch.setitem(table._OPTIONS, "hoodie.compact.inline.max.delta.commits", "20")
    pipeline.land(
        event("u", 50, before=account(1), after=account(1, name="Cid", balance="7.25")),
        event("u", 51, before=account(3, month="2024-02"), after=account(3, month="2024-02", balance=WIDE)),
    )
    pipeline.drain()
    assert balances(pipeline) == [(1, "7.25", "Cid"), (2, "4.50", "Bea"), (3, WIDE, "Ann")]
    assert_same_to_every_reader(pipeline, hudi_015)


def test_a_crash_while_a_decimal_grows_costs_nothing(
    pipeline: Pipeline, hudi_015: Hudi015, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_old_table(pipeline, monkeypatch)
    pipeline.contract = retyped(pipeline.contract, balance="decimal(20,2)")
    pipeline.writer()
    # The first writer is killed in its compaction, the second behind it, the third in its first commit of a wide row.
    assert forget_last_instant(pipeline) == "commit"
    pipeline.writer()
    pipeline.land(
        event("c", 30, after=account(5, balance=WIDE)),
        event("u", 31, before=account(1), after=account(1, balance=WIDE)),
    )
    pipeline.drain()
    assert forget_last_instant(pipeline) == "deltacommit"
    pipeline.drain()
    assert balances(pipeline) == [(1, WIDE, "Ann"), (2, "1.50", "Ann"), (3, "1.50", "Ann"), (5, WIDE, "Ann")]
    assert_same_to_every_reader(pipeline, hudi_015)


def compactions(pipeline: Pipeline) -> list[str]:
    """The table's completed compactions."""
    return [key for key in timeline(pipeline) if key.endswith(".commit")]


def forget_last_instant(pipeline: Pipeline) -> str:
    """Leave the table as a kill just before the end of the last commit does. The commit is not on the timeline, but the
    markers of its files are there, by which Hudi takes them back. Returns the action."""
    last = [key for key in timeline(pipeline) if key.endswith("commit")][-1]
    stored = json.loads(pipeline.s3.get_object(Bucket=BUCKET, Key=last)["Body"].read())
    folder, _, name = last.rpartition("/")
    instant, action = name.split(".")
    for statistics in stored["partitionToWriteStats"].values():
        for path in (entry["path"] for entry in statistics):
            kind = "MERGE" if path.endswith(".parquet") else "APPEND"
            pipeline.s3.put_object(Bucket=BUCKET, Key=f"{folder}/.temp/{instant}/{path}.marker.{kind}", Body=b"")
    pipeline.s3.delete_object(Bucket=BUCKET, Key=last)
    return action


def balances(pipeline: Pipeline) -> list[tuple[int, str, str]]:
    return [(row["id"], str(row["balance"]), row["name"]) for row in pipeline.stored() if not row["_deleted"]]


def create_old_table(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three rows as they were written before ``_unfit``, one of them in a log file."""
    contract = pipeline.contract
    columns = contract.lake_columns()

    def rows(*events: dict[str, Any]) -> DataFrame:
        decoder = PostgresDecoder(contract)
        decoded = [row for event in events for row in decoder.decode(json.dumps(event).encode(), "old/0/0").rows]
        schema = ", ".join(f"`{name}` {type_.ddl()}" for name, type_ in columns)
        return pipeline.spark.createDataFrame(decoded, schema, verifySchema=False).drop("_unfit")

    progress = Progress(layout=layout(contract))
    with monkeypatch.context() as patch:
        patch.setattr(Contract, "lake_columns", lambda _: [column for column in columns if column[0] != "_unfit"])
        hudi = HudiTable(pipeline.spark, contract, pipeline.lake, 2)
        created = (event("c", 10 + id_, after=account(id_, month=f"2024-0{max(id_ - 1, 1)}")) for id_ in (1, 2, 3))
        hudi.insert(rows(*created), progress)
        hudi.upsert(rows(event("u", 20, before=account(1), after=account(1, name="log", balance="3.50"))), progress)


def test_history_that_landed_before_a_column_was_added_and_after_it_was_dropped_is_replayed(pipeline: Pipeline) -> None:
    def without_name(id_: int) -> dict[str, Any]:
        return {name: value for name, value in account(id_).items() if name != "name"}

    changes = [
        event("c", 10, after=without_name(1)),
        event("u", 20, before=without_name(1), after=account(1, name="Bea")),
        event("u", 30, before=account(1, name="Bea"), after=without_name(1)),
        event("c", 40, after=account(2)),
        event("d", 50, before=without_name(2)),
    ]
    for order in (changes, changes[::-1]):
        pipeline.land(*order)
        pipeline.drain()
    assert [(row["id"], row["name"], row["_deleted"]) for row in pipeline.stored()] == [
        (1, None, False),
        (2, None, True),
    ]
    assert not [entry for entry in pipeline.events if entry["event"] == "quarantine"]
