"""The cost of single changes and commits, measured by bursts of changes on an idle pipeline.

A burst is one transaction. The next one follows when the lake has it, so that nothing waits for anything else. Orders
are documents of 4.5 KiB, with one file group per month. Payments are rows of 1.1 KiB.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

from headwater.console import Announce
from headwater.contract.reading import read_contracts
from headwater.definitions import connectors
from headwater.folder_lock import claimed_empty
from headwater.lake_folder import EXAMPLE
from headwater.waiting import wait_until
from rig.benchmark import change_log
from rig.benchmark.pipeline import landed_end
from rig.demo.freshness import PublishedInstants
from rig.demo.waterfall import PassedS3, passed_s3
from rig.demo.workloads import SEED
from rig.local.pipeline import DATABASE, Pipeline
from rig.samples.loading import load_generated

_ORDERS = "orders"
_ONE = "order_id = (SELECT min(order_id) FROM northwind.orders WHERE order_date IS NOT NULL)"
_MONTHS = "order_id IN (SELECT min(order_id) FROM northwind.orders GROUP BY date_trunc('month', order_date))"
_ALL = "true"
_WARMING, _ROUNDS = 8, 12
_PAYMENTS = 100_000
_PAYMENTS_TABLE = f"""
CREATE SCHEMA shop;
CREATE TABLE shop.payments (id bigint PRIMARY KEY, account_id bigint, region text, status text, amount numeric(12, 2),
    placed_at timestamptz, updated_at timestamptz, version bigint, note text);
INSERT INTO shop.payments SELECT number, number * 31 % 100003, 'region-' || number % {change_log.REGIONS}, 'new',
    number / 100.0, now(), now(), 0, repeat('lorem ipsum dolor ', 10) FROM generate_series(1, {_PAYMENTS}) AS number;
"""


@dataclass(frozen=True)
class UnitCosts:
    """The costs of single steps in seconds: medians of many measurements."""

    transport: float
    """A single change from its source into Kafka."""
    commit: float
    """A commit of one change."""
    file_group: float
    """Each further file group in a commit."""
    order_capture: float
    """Each further order on its way into Kafka."""
    order_decoding: float
    """Each further order in a commit."""
    payment_capture: float
    """Each payment on its way into Kafka."""
    payment_landing: float
    """Each payment in the sink alone."""


def run(announce: Announce, folder: Path = EXAMPLE.run / "bursts") -> UnitCosts:
    """Measure on this machine, in about four minutes."""
    with claimed_empty(folder, "the benchmark"):
        costs = _of_orders(announce, folder / "orders")
        return UnitCosts(**costs, **_of_payments(announce, folder / "payments"))


def _of_orders(announce: Announce, folder: Path) -> dict[str, float]:
    with Pipeline(folder, read_contracts(EXAMPLE.contracts)) as pipeline:
        pipeline.start(announce, partial(load_generated, scale=1, seed=SEED))
        pipeline.drain()
        s3 = pipeline.aws.client("s3")
        watch = PublishedInstants(s3, pipeline.lake().uri, pipeline.contracts)
        with watch as instants, announce("Changing orders, few or many at once"):
            for _ in range(_WARMING):
                _change_each_way(pipeline)
            since = time.time()
            for _ in range(_ROUNDS):
                _change_each_way(pipeline)
        captured = passed_s3(s3, pipeline.landing, pipeline.topics, instants, since)[_ORDERS]
        commits = [each for each in pipeline.commits() if each["table"] == _ORDERS and each["completed_at"] > since]
        with pipeline.postgres.connect(DATABASE) as owner:
            (months,) = owner.execute(f"SELECT count(*) FROM northwind.orders WHERE {_MONTHS}".encode()).fetchone()  # type: ignore[misc]
    return {**_transport(captured), **_commit(commits, months)}


def _transport(captured: Iterable[PassedS3]) -> dict[str, float]:
    # All changes of a transaction have the same time in the source.
    by_source = sorted(captured, key=lambda change: (change.source, change.kafka))
    bursts = [list(changes) for _, changes in groupby(by_source, key=lambda change: change.source)]
    largest = max(map(len, bursts))
    return {
        "transport": median(burst[0].kafka - burst[0].source for burst in bursts if len(burst) == 1),
        "order_capture": median(
            (burst[-1].kafka - burst[0].kafka) / (largest - 1) for burst in bursts if len(burst) == largest
        ),
    }


def _commit(commits: Iterable[Mapping[str, Any]], months: int) -> dict[str, float]:
    taken = [(int(commit["changes"]), float(commit["seconds"])) for commit in commits]
    one = median(seconds for changes, seconds in taken if changes == 1)
    # The orders of different months lie in different file groups; a part of all orders lies in all file groups.
    both = median((seconds - one) / (months - 1) for changes, seconds in taken if changes == months)
    decoding = median(
        (seconds - one - both * (months - 1)) / (changes - months) for changes, seconds in taken if changes > 3 * months
    )
    return {"commit": one, "file_group": both - decoding, "order_decoding": decoding}


def _of_payments(announce: Announce, folder: Path) -> dict[str, float]:
    contract = change_log.contract(4)
    with Pipeline(folder, [contract], sql=_PAYMENTS_TABLE) as pipeline:
        with announce(f"Landing {_PAYMENTS:,} payments"):
            pipeline.start_source()
            pipeline.start_stream()
            pipeline.start_connect()
            _await_in_kafka(pipeline, _PAYMENTS)
        with announce("Capturing an update of each"), pipeline.postgres.connect(DATABASE) as owner:
            owner.execute("UPDATE shop.payments SET status = 'paid'")
            started = time.monotonic()
            _await_in_kafka(pipeline, 2 * _PAYMENTS)
            capture = time.monotonic() - started
        with announce("Landing the same payments by the sink alone"):
            sink = connectors.sink_connector(pipeline.contracts, pipeline.settings)
            pipeline.connect.delete(sink[0])
            with pipeline.postgres.connect(DATABASE) as owner:
                owner.execute("UPDATE shop.payments SET status = 'held'")
            _await_in_kafka(pipeline, 3 * _PAYMENTS)
            before = _landed(pipeline)
            pipeline.connect.put(*sink)
            wait_until("the first payments to land", lambda: _landed(pipeline) > before, poll=0.05)
            first, started = _landed(pipeline), time.monotonic()
            wait_until("all payments to land", lambda: _landed(pipeline) >= 3 * _PAYMENTS, poll=0.05)
            landing = (time.monotonic() - started) / (3 * _PAYMENTS - first)
    return {"payment_capture": capture / _PAYMENTS, "payment_landing": landing}


def _change_each_way(pipeline: Pipeline) -> None:
    with pipeline.postgres.connect(DATABASE) as owner:
        for which in (_ONE, _MONTHS, _ALL):
            wanted = _in_kafka(pipeline)
            update = f"UPDATE northwind.orders SET freight = freight + 1 WHERE {which}"
            wanted += owner.execute(update.encode()).rowcount
            _await_in_kafka(pipeline, wanted)
            wait_until("the changes to reach the lake", partial(_committed, pipeline, wanted), poll=0.05)


def _in_kafka(pipeline: Pipeline) -> int:
    return sum(pipeline.broker.ends(connectors.table_topics(pipeline.contracts, pipeline.settings)).values())


def _await_in_kafka(pipeline: Pipeline, records: int) -> None:
    wait_until(f"{records:,} changes in Kafka", lambda: _in_kafka(pipeline) >= records, poll=0.05)


def _committed(pipeline: Pipeline, records: int) -> bool:
    return sum(pipeline.events.cursor().values()) >= records


def _landed(pipeline: Pipeline) -> int:
    """The offset up to which the topic's only partition has landed."""
    (topic,) = connectors.table_topics(pipeline.contracts, pipeline.settings)
    return landed_end(pipeline, f"{topic}/0")
