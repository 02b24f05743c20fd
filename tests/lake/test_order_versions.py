"""Tables whose rows were ordered by an older layout of ``_order``."""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict

import pytest
from pyspark.sql import SparkSession

from headwater.lake.base.progress import Progress
from headwater.lake.decoding import dynamodb_decoder
from headwater.lake.table import writer
from rig.local.aws import AwsApi
from tests.lake.accounts import Accounts, change, item
from tests.lake.pipeline import Pipeline, account, event

LATE = 1_769_860_800_000_000


@pytest.fixture
def accounts(spark: SparkSession, endpoint: str, aws_api: AwsApi) -> Accounts:
    return Accounts(spark, aws_api, f"o-{uuid.uuid4().hex[:8]}")


def write_as_before(patch: pytest.MonkeyPatch) -> None:
    """Let the writer be as it was before orders had versions: its commits carry none, and the orders of DynamoDB's
    changes have version 1."""

    def to_json(progress: Progress) -> str:
        return json.dumps({name: value for name, value in asdict(progress).items() if name != "order_version"})

    patch.setattr(Progress, "to_json", to_json)
    patch.setattr(writer, "order_version", lambda contract: 1)
    patch.setattr(dynamodb_decoder, "_order", lambda epoch, micros, kind, tie: f"{epoch}{kind}{micros:020d}{tie}")


def test_a_table_with_an_older_order_is_refused_until_the_epoch_is_raised(
    accounts: Accounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        write_as_before(patch)
        accounts.start()
        accounts.stream(change(LATE, None, item("1")), change(LATE, None, item("2")))
    with pytest.raises(ValueError, match=r"accounts: layout of _order: found version 1, .* expected 2.*glue\.epoch"):
        accounts.start()
    for _ in ("the first job of the epoch", "the next"):
        accounts.start(epoch=2)
        accounts.stream(change(1, item("1"), item("1", name="Bea")))
        assert accounts.alive() == [("1", "2024-01", "Bea"), ("2", "2024-01", "Ann")]


def test_a_relational_table_from_before_versions_goes_on(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        write_as_before(patch)
        pipeline.land(event("c", 10, after=account(1)))
        pipeline.drain()
    pipeline.land(event("u", 20, before=account(1), after=account(1, name="Bea")))
    pipeline.drain()
    assert pipeline.alive() == [account(1, name="Bea")]
