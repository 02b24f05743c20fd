"""S3 is slow, refuses, and loses answers, for the sink and for both writers: nothing is lost and nothing doubled."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import nullcontext
from functools import partial
from http import HTTPStatus
from pathlib import Path
from random import Random

import psycopg
import pytest

from headwater.console import say
from headwater.contract.reading import read_contracts
from headwater.lake_folder import EXAMPLE
from rig.local.key_value import KeyValuePipeline
from rig.local.pipeline import Pipeline
from rig.samples import dynamodb_tables, items_workload, orders, orders_workload
from rig.samples.loading import load_folder
from rig.samples.paced_workers import WorkloadPlan
from tests.aws_recorder import ApiWithS3Behind, Recorder

pytestmark = pytest.mark.drill

# The share of requests that meets each fault, and how long a slow one takes.
SHARES = {"slow": 0.02, "refused": 0.03, "unanswered": 0.01}
SLOW_SECONDS = 3.0
SECONDS = 40


class FaultyS3(Recorder):
    """A proxy in front of S3 that does to requests what S3 and networks do to them now and then."""

    def __init__(self, target: str, seed: int) -> None:
        super().__init__(target)
        self.faults: Counter[str] = Counter()
        self._random = Random(seed)
        self._drawing = threading.Lock()

    def refusal(self, method: str, path: str) -> HTTPStatus | None:
        if self._happens("slow", method):
            time.sleep(SLOW_SECONDS)
        return HTTPStatus.SERVICE_UNAVAILABLE if self._happens("refused", method) else None

    def answers(self, method: str, path: str) -> bool:
        return not self._happens("unanswered", method)

    def _happens(self, fault: str, method: str) -> bool:
        with self._drawing:
            happens = self._random.random() < SHARES[fault]
            self.faults[f"{method} {fault}"] += happens
            return happens

    def _keep(self, *_: object) -> None:
        """Keep nothing."""


def _load(folder: Path, owner: psycopg.Connection) -> None:
    load_folder(owner, folder)


def test_a_slow_refusing_and_silent_store_costs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    contracts = read_contracts(EXAMPLE.contracts)
    orders.generate(0.1, 1, tmp_path / "data")
    with Pipeline(tmp_path / "relational", contracts) as relational:
        relational.aws = api = ApiWithS3Behind(tmp_path / "aws", partial(FaultyS3, seed=1))
        relational.start(lambda text: nullcontext(), partial(_load, tmp_path / "data"))
        with KeyValuePipeline(tmp_path / "key_value", contracts, api) as key_value:
            key_value.start_source()
            (accounts,) = key_value.contracts
            dynamodb_tables.fill(key_value.client(), accounts, 0.2, 1)
            key_value.start_writer()
            accounts_plan = WorkloadPlan(SECONDS, changes=400, workers=2, seed=5)
            changing = threading.Thread(target=items_workload.run, args=(key_value.client, accounts, accounts_plan))
            changing.start()
            orders_workload.run(relational.application, WorkloadPlan(SECONDS, changes=400, workers=4, seed=3))
            changing.join()
            relational.drain(600)
            key_value.drain(600)
            met = dict(api.s3_recorder.faults)
            differing = [table for table in [*relational.verify(), *key_value.verify()] if not table.equal]
    with capsys.disabled():
        say(f"met: {', '.join(f'{count} {fault}' for fault, count in sorted(met.items()) if count)}")
    assert differing == []
    assert {f"{method} {fault}" for method in ("PUT", "GET", "HEAD") for fault in SHARES} <= {
        fault for fault, count in met.items() if count
    }
