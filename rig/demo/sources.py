"""The sources of a demonstration on this machine: each with its pipeline, its rows and its workload."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import psycopg
import pyarrow as pa

from headwater.console import Announce
from headwater.contract.model import POSTGRESQL, Contract, of_database
from headwater.definitions.connectors import CaptureSettings
from headwater.lake.base.idle_pause import FIRST_PAUSE_SECONDS
from headwater.verify import Lake, TableComparison, read_live_table
from rig.demo import workloads
from rig.demo.freshness import PublishedInstants
from rig.demo.report import revenue_by_customer
from rig.demo.waterfall import Passed, passed_kinesis, passed_s3
from rig.demo.workloads import SEED, LiveWorkload
from rig.local.key_value import WINDOW_SECONDS, KeyValuePipeline
from rig.local.pipeline import Pipeline
from rig.samples import dynamodb_tables
from rig.samples.loading import load_folder, load_generated

RELATIONAL, KEY_VALUE = "relational", "key_value"
"""The names of the pipelines in a report."""
_ORDERS = "orders"

Say = Callable[[str], None]


@dataclass(frozen=True)
class Pace:
    """How long the parts wait before they pass changes on. The defaults are the demo's own."""

    flush_ms: int = CaptureSettings.flush_ms
    """The longest time between two writes of the sink: ``connect.flush_ms``."""
    idle_seconds_max: float = FIRST_PAUSE_SECONDS
    """The EMR step's longest pause between two polls: ``emr.idle_seconds_max``."""
    window_seconds: int = WINDOW_SECONDS
    """The seconds between two commits of the Glue job's script: ``glue.window_seconds``."""


@dataclass(frozen=True)
class DemoPlan:
    """The size and length of a demonstration."""

    data: Path | None
    """A folder of Northwind's CSV files; None to generate data."""
    scale: float
    """The size of generated data; 1 is Northwind's."""
    seconds: float
    """The duration of the live workload."""
    rate: float
    """The workload's transactions on orders per second, and the same number of item changes."""
    pace: Pace = Pace()
    """The waiting times of the parts."""


class DemoSource(Protocol):
    """A source of a demonstration, beside the methods that both pipelines have."""

    name: str
    """The pipeline's key in ``report.json``."""
    loaded_items: int
    """The number of DynamoDB items that were loaded."""

    def begin(self, announce: Announce, plan: DemoPlan) -> None:
        """Start the parts, and load the source."""

    def workload(self) -> LiveWorkload[Any]:
        """Return the workload that changes the source."""

    def passed(self, instants: PublishedInstants, since: float) -> Mapping[str, Sequence[Passed]]:
        """Return the changes after ``since``, in epoch seconds, that are in the lake, by table."""

    def drain(self) -> None:
        """Wait until every change so far is in the lake."""

    def verify(self) -> list[TableComparison]:
        """Compare the source with the lake."""

    def commits(self) -> list[dict[str, Any]]:
        """Return the writer's commits so far."""

    def memory_bytes(self) -> dict[str, int]:
        """Return the private memory of each part in bytes, now."""

    def addresses(self) -> dict[str, str]:
        """Return an address or a command for a person to reach each part, by the part's name."""


class OrdersPipeline(Pipeline):
    """The order database of PostgreSQL."""

    name = RELATIONAL
    loaded_items = 0

    def begin(self, announce: Announce, plan: DemoPlan) -> None:
        """See ``DemoSource``."""
        self.start(announce, lambda owner: load(owner, plan), idle_seconds_max=plan.pace.idle_seconds_max)

    def workload(self) -> LiveWorkload[Any]:
        """See ``DemoSource``."""
        return workloads.of_orders(self.application)

    def passed(self, instants: PublishedInstants, since: float) -> Mapping[str, Sequence[Passed]]:
        """See ``DemoSource``."""
        return passed_s3(self.aws.client("s3"), self.landing, self.topics, instants, since, self.commits())


class ItemsPipeline(KeyValuePipeline):
    """The tables of DynamoDB."""

    name = KEY_VALUE
    loaded_items = 0

    def begin(self, announce: Announce, plan: DemoPlan) -> None:
        """See ``DemoSource``."""
        with announce("Starting DynamoDB, its streams to Kinesis, and the Glue job's script"):
            self.start_source()
            self.loaded_items = fill(self.client(), self.contracts, plan)
            self.start_writer(window_seconds=plan.pace.window_seconds)

    def workload(self) -> LiveWorkload[Any]:
        """See ``DemoSource``."""
        return workloads.of_items(self.client, self.contracts)

    def passed(self, instants: PublishedInstants, since: float) -> Mapping[str, Sequence[Passed]]:
        """See ``DemoSource``."""
        return passed_kinesis(self.aws.client("kinesis"), self.streams, instants, since, self.commits())


def load(owner: psycopg.Connection, plan: DemoPlan) -> None:
    """Fill the empty order database with the rows of a plan."""
    if plan.data is not None:
        load_folder(owner, plan.data)
    else:
        load_generated(owner, plan.scale, SEED)


def fill(client: Any, contracts: Sequence[Contract], plan: DemoPlan) -> int:
    """Put a plan's items into the empty DynamoDB tables of ``contracts``. Returns their number.

    ``client`` is boto3's.
    """
    return sum(dynamodb_tables.fill(client, contract, plan.scale / len(contracts), SEED) for contract in contracts)


def lake_orders(lake: Lake, contracts: Sequence[Contract]) -> pa.Table | None:
    """Return the live rows of the lake's orders, after the first snapshot; None if no contract describes them."""
    if not any(contract.table == _ORDERS for contract in of_database(contracts, POSTGRESQL)):
        return None
    table = read_live_table(f"{lake.uri}/{_ORDERS}", lake.storage)
    if table is None:
        raise AssertionError("the lake has caught up with its sources, but has no orders")
    return table


def say_contents(orders_of_lake: pa.Table | None, loaded_items: int, say: Say) -> list[str]:
    """Print the lake's contents before the workload, and return the customers with the most revenue."""
    held = [] if orders_of_lake is None else [f"{orders_of_lake.num_rows:,} orders"]
    held += [f"{loaded_items:,} DynamoDB items"] if loaded_items else []
    if held:
        say(f"The lake holds {' and '.join(held)}.")
    if orders_of_lake is None:
        return []
    leaders = [customer.customer_id for customer in revenue_by_customer(orders_of_lake)[:3]]
    say(f"The customers with the most revenue are {', '.join(leaders)}.")
    return leaders


def sources_of(contracts: Sequence[Contract]) -> str:
    """Return a phrase for the sources with which these contracts' lake is compared."""
    return "its source" if len({contract.source.database for contract in contracts}) == 1 else "its sources"
