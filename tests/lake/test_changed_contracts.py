"""Tables whose contract changes after rows are stored: old and new rows stand side by side, for every reader."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from headwater.contract.model import Column, Contract
from headwater.contract.types import Type, parse_type
from headwater.lake.debezium_decoder import PostgresDecoder
from headwater.lake.progress import Progress
from headwater.lake.table import HudiTable, layout
from tests.lake.pipeline import Pipeline, account, event
from tests.lake.readers import comparable, read_by_hudi_015, read_by_writer

WIDE = "123456789012345678.25"


def retyped(contract: Contract, **types: str) -> Contract:
    columns = [
        replace(column, type=parse_type(types[column.name])) if column.name in types else column
        for column in contract.columns
    ]
    return replace(contract, columns=tuple(columns))


def test_rows_of_an_old_contract_and_of_a_new_one_stand_side_by_side(
    pipeline: Pipeline, endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_old_table(pipeline, monkeypatch)
    old = pipeline.contract
    wider = retyped(old, balance="decimal(20,2)")
    columns = [column for column in wider.columns if column.name != "name"]
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
    uri = f"{pipeline.lake}/accounts"
    by_rust = [comparable(row) for row in stored]
    (by_athenas,) = read_by_hudi_015([uri], endpoint, tmp_path)
    assert read_by_writer(pipeline.spark, uri) == by_rust
    assert by_athenas == by_rust
    # The old contract, whose decimals are narrower and which has another column, is no error either.
    pipeline.contract = old
    pipeline.land(event("c", 40, after=account(8)))
    pipeline.drain()
    assert [(row["id"], str(row["balance"]), row["name"]) for row in pipeline.stored()][-1] == (8, "1.50", "Ann")


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
        table = HudiTable(pipeline.spark, contract, pipeline.lake, 2)
        created = (event("c", 10 + id_, after=account(id_, month=f"2024-0{max(id_ - 1, 1)}")) for id_ in (1, 2, 3))
        table.insert(rows(*created), progress)
        table.upsert(rows(event("u", 20, before=account(1), after=account(1, name="log", balance="3.50"))), progress)


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
