"""Nobody else gets in: another user of this machine, or a page in a browser, learns and changes nothing of a run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from secrets import token_hex

import pytest

from headwater.waiting import wait_until
from rig.demo import run as demo
from rig.demo.sources import DemoPlan, ItemsPipeline, OrdersPipeline
from rig.local import spark
from rig.local.aws import AwsApi
from rig.local.key_value import KeyValuePipeline
from rig.local.pipeline import DATABASE, LANDING_BUCKET, SECRET_NAME, Pipeline
from rig.local.spark import SparkJob
from rig.local_aws.daemon import Running, log_of
from tests.lake_folders import lake_folder
from tests.local.strangers import PY4J, PYTHON_WORKER, SILENT, SPARK, Run, attack

ROW = f"stranger-row-{token_hex(8)}"
"""A value of a row of the source, which comes to every store."""


class Parts:
    """The pipelines of a demo, to know their secrets."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.relational: Pipeline
        self.key_value: KeyValuePipeline
        parts = self

        class Relational(OrdersPipeline):
            def __enter__(self) -> Relational:
                parts.relational = self
                return self

        class KeyValue(ItemsPipeline):
            def __enter__(self) -> KeyValue:
                parts.key_value = self
                return self

        patch.setattr(demo, "OrdersPipeline", Relational)
        patch.setattr(demo, "ItemsPipeline", KeyValue)

    def secrets(self) -> dict[str, str]:
        """Every secret, by what it is."""
        relational = self.relational
        return {
            "the superuser's password": relational.postgres.password,
            "the mask key": relational.mask_key.decode(),
            "the run's key of AWS": relational.aws.credentials["AWS_SECRET_ACCESS_KEY"],
            "Kafka's password": relational.broker.access.password,
            "Connect's password": relational.connect._password,
            **{f"the password of {role}": password for role, password in relational.passwords.items()},
        }


WAITS = """
import sys, threading, time
from pathlib import Path
from pyspark.sql import SparkSession
from headwater.lake.base import jvm_signals

session = SparkSession.builder.getOrCreate()
stop = threading.Event()
jvm_signals.forward_to(stop, session)
# This starts the process that forks Python's workers.
session.sparkContext.parallelize([0]).map(str).collect()
Path(sys.argv[1]).touch()
stop.wait()
"""
"""A job that opens all ports that a writer opens."""


def quietly(text: str) -> AbstractContextManager[None]:
    return nullcontext()


@pytest.mark.drill
def test_a_stranger_gets_nothing_of_a_demo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder, parts = lake_folder(tmp_path), Parts(monkeypatch)
    problems: list[str] = []

    def keep(addresses: Mapping[str, str]) -> None:
        with parts.relational.postgres.connect(DATABASE) as owner:
            owner.execute("UPDATE northwind.customers SET company_name = %s", [ROW])
        parts.relational.drain()
        problems.extend(
            attack(
                Run(
                    os.getpid(),
                    [folder.run / "demo", folder.build / "demo"],
                    parts.secrets(),
                    {"a row": ROW},
                    names=[SECRET_NAME, LANDING_BUCKET, *(of.name for of in parts.key_value.tables.values())],
                )
            )
        )

    demo.run(folder, DemoPlan(None, 0.1, 2, 10), quietly, lambda text: None, keep)
    assert not problems, "\n".join(problems)


def test_a_stranger_gets_nothing_of_the_local_aws(tmp_path: Path) -> None:
    folder = tmp_path / "account"
    running = Running.start(folder)
    try:
        secret = f"the stranger's secret {token_hex(8)}"
        running.client("secretsmanager").create_secret(Name=SECRET_NAME, SecretString=secret)
        key_id = running.environment["AWS_ACCESS_KEY_ID"]
        secrets = {"a secret": secret, "the account's key": running.environment["AWS_SECRET_ACCESS_KEY"]}
        problems = attack(Run(running.pid, [folder], secrets, key_id=key_id, names=[SECRET_NAME]))
        assert log_of(folder).stat().st_mode & 0o077 == 0
    finally:
        running.stop(folder)
    assert not problems, "\n".join(problems)


def test_a_stranger_gets_nothing_of_a_spark_job(aws_api: AwsApi, tmp_path: Path) -> None:
    script, started = tmp_path / "runner.py", tmp_path / "started"
    script.write_text(WAITS)
    with spark.submit(SparkJob(script, [str(started)]), tmp_path / "run", aws_api) as job:
        wait_until("the job to have started", started.exists)
        spoken: set[str] = set()
        secrets = {"the run's key of AWS": aws_api.credentials["AWS_SECRET_ACCESS_KEY"]}
        problems = attack(Run(job.pid, [tmp_path / "run"], secrets), spoken)
    assert not problems, "\n".join(problems)
    assert spoken == {SPARK, PY4J, PYTHON_WORKER, SILENT}
