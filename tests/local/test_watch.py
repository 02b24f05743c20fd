"""The comparison that never ends, beside a real pipeline under load: it names and mends every lost row, and names
nothing else."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

import psycopg
import pytest

from headwater.contract.reading import read_contracts
from headwater.lake_folder import EXAMPLE
from headwater.paths import ROOT
from headwater.waiting import cpu_seconds, wait_until
from rig.benchmark import change_log
from rig.local.aws import REGION
from rig.local.pipeline import DATABASE, LAKE, LAKE_BUCKET, LANDING_BUCKET, Pipeline, bytes_of_part
from rig.samples import orders
from rig.samples.loading import load_folder
from tests.background import going_on
from tests.lake_folders import lake_folder

LOST = {"GONE": "extra", "WRONG": "different", "NEVER": "missing"}
ROWS = 1_000_000
PAYMENTS = f"""
CREATE SCHEMA shop;
CREATE TABLE shop.payments (id bigint PRIMARY KEY, account_id bigint, region text, status text, amount numeric(12, 2),
    placed_at timestamptz, updated_at timestamptz, version bigint, note text);
INSERT INTO shop.payments SELECT number, number * 31 % 100003, 'region-' || number % 60, 'new', number / 100.0, now(),
    now(), 0, repeat('lorem ipsum dolor ', 10) FROM generate_series(1, {ROWS}) AS number;
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    contracts = tmp_path / "contracts"
    folder = lake_folder(tmp_path / "lake", contracts)
    folder.database.symlink_to(EXAMPLE.database)
    # DynamoDB's stream is asked for by its environment alone.
    shutil.copytree(EXAMPLE.contracts, contracts, ignore=shutil.ignore_patterns("accounts.yaml"), dirs_exist_ok=True)
    orders.generate(0.1, 1, tmp_path / "data")
    with Pipeline(tmp_path / "run", read_contracts(contracts), folder) as pipeline:

        def load(owner: psycopg.Connection) -> None:
            load_folder(owner, tmp_path / "data")
            owner.execute(
                "INSERT INTO northwind.customers (customer_id, company_name) VALUES ('GONE', 'a'), ('WRONG', 'b')"
            )

        pipeline.start(lambda text: nullcontext(), load)
        pipeline.drain()
        yield pipeline


@pytest.fixture
def many_rows(tmp_path: Path) -> Iterator[Pipeline]:
    contracts = tmp_path / "contracts"
    contracts.mkdir()
    folder = lake_folder(tmp_path / "lake", contracts)
    (contracts / "payments.yaml").write_text(change_log.contract_text(16))
    with Pipeline(tmp_path / "run", read_contracts(contracts), folder, sql=PAYMENTS) as pipeline:
        pipeline.start(lambda text: nullcontext(), lambda owner: None)
        pipeline.drain()
        yield pipeline


def pay(pipeline: Pipeline, stop: threading.Event) -> None:
    """Ten changes a second, from the other end of the keys than the row that is lost."""
    with pipeline.source() as owner:
        for number in itertools.count():
            if stop.wait(0.1):
                return
            owner.execute("UPDATE shop.payments SET version = version + 1 WHERE id = %s", (ROWS - number,))


def change_other_rows(pipeline: Pipeline, stop: threading.Event) -> None:
    """Change rows, but none that the test makes the lake lose."""
    with pipeline.source() as owner:
        for number in itertools.count():
            if stop.wait(0.02):
                return
            busy = f"L{number % 50}"
            owner.execute("DELETE FROM northwind.customers WHERE customer_id = %s", (busy,))
            for city in ("Rome", f"Rome {number}"):
                owner.execute(
                    "INSERT INTO northwind.customers (customer_id, company_name, city) VALUES (%s, 'busy', %s) "
                    "ON CONFLICT (customer_id) DO UPDATE SET city = excluded.city",
                    (busy, city),
                )
            owner.execute("UPDATE northwind.orders SET freight = %s WHERE order_id %% 10 = %s", (number, number % 10))


@contextmanager
def comparison(pipeline: Pipeline, *options: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """The command, and what it has said so far."""
    command = [
        *(sys.executable, "-m", "headwater.cli", "verify", "--watch", "--every", "5", "--sink-seconds", "3", *options),
        *("--folder", str(pipeline.lake_folder.root), "--region", REGION, "--endpoint", pipeline.aws.s3_endpoint),
        *("--lake", LAKE, "--landing", f"s3://{LANDING_BUCKET}/{pipeline.settings.landing_prefix}"),
        *("--port", str(pipeline.postgres.port), "--user", "postgres", "--database", DATABASE),
    ]
    environment = {**pipeline.aws.environment(), "HEADWATER_DB_PASSWORD": pipeline.postgres.password}
    ignored = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    signal.signal(signal.SIGINT, ignored)
    lines: list[str] = []

    def listen() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.rstrip())

    reader = threading.Thread(target=listen)
    reader.start()
    try:
        yield process, lines
    finally:
        process.kill()
        process.wait()
        reader.join()


def test_what_was_lost_is_named_and_mended_while_all_writes_go_on(pipeline: Pipeline) -> None:
    s3 = pipeline.aws.client("s3")

    def kept() -> dict[str, object]:
        body = s3.get_object(Bucket=LAKE_BUCKET, Key="lake/_verify/customers.json")["Body"].read()
        known: dict[str, object] = json.loads(body)
        return known

    with going_on(partial(change_other_rows, pipeline)), comparison(pipeline, "--repair") as (process, said):
        wait_until(
            "the first round", lambda: sum("rows compared" in line for line in said) >= 3, lambda: said[-1:], poll=0.2
        )
        with pipeline.source() as owner, owner.transaction():
            # No event tells of these.
            owner.execute("ALTER PUBLICATION headwater DROP TABLE northwind.customers")
            owner.execute("DELETE FROM northwind.customers WHERE customer_id = 'GONE'")
            owner.execute("UPDATE northwind.customers SET company_name = 'new' WHERE customer_id = 'WRONG'")
            owner.execute("INSERT INTO northwind.customers (customer_id, company_name) VALUES ('NEVER', 'c')")
        with pipeline.source() as owner:
            owner.execute("ALTER PUBLICATION headwater ADD TABLE northwind.customers")

        def mended() -> bool:
            assert process.poll() is None, "\n".join(said)
            return sum("equal again" in line for line in said) == len(LOST)

        try:
            wait_until("what was lost to be mended", mended, lambda: said[-1:], poll=0.2)
        finally:
            sys.stdout.write("\n".join(said))
        process.send_signal(signal.SIGINT)
        wait_until("the comparison to end", lambda: process.poll() is not None)
        assert process.poll() == 0, "\n".join(said)
    text = "\n".join(said)
    named = re.findall(r"(\w+) (\w+) = (\S+): (extra|different|missing)", text)
    assert {(table, key, kind) for table, _, key, kind in named} == {
        ("customers", key, kind) for key, kind in LOST.items()
    }, text
    assert "company_name: source new | lake b" in text
    assert (kept()["ended"], kept()["missing"], kept()["error"]) == (True, 0, "")
    pipeline.drain()
    assert all(table.equal for table in pipeline.verify())


@pytest.mark.drill
def test_a_row_of_a_million_that_is_lost_is_named_at_a_bounded_load(
    many_rows: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    figures: dict[str, float] = {}
    with going_on(partial(pay, many_rows)):
        time.sleep(30)
        before, began = cpu_seconds(many_rows.postgres.pid), time.monotonic()
        time.sleep(60)
        alone = (cpu_seconds(many_rows.postgres.pid) - before) / (time.monotonic() - began)
        with comparison(many_rows, "--every", "300") as (process, said):
            before, began = cpu_seconds(many_rows.postgres.pid), time.monotonic()

            def rounds() -> int:
                assert process.poll() is None, "\n".join(said)
                return sum("rows compared" in line for line in said)

            wait_until("the first round", lambda: rounds() > 0, lambda: said[-1:], poll=0.2)
            figures["seconds_of_a_round"] = time.monotonic() - began
            taken = (cpu_seconds(many_rows.postgres.pid) - before) / figures["seconds_of_a_round"]
            figures["cores_of_postgresql"] = taken - alone
            figures["mib_of_the_comparison"] = bytes_of_part(process.pid) / 2**20
            with many_rows.source() as owner:
                owner.execute("ALTER PUBLICATION headwater DROP TABLE shop.payments")
                owner.execute("UPDATE shop.payments SET status = 'lost' WHERE id = 1")
                owner.execute("ALTER PUBLICATION headwater ADD TABLE shop.payments")
            lost = time.monotonic()
            wait_until(
                "it to be named",
                lambda: rounds() > 0 and any(": different" in line for line in said),
                lambda: said[-1:],
                poll=0.2,
            )
            figures["seconds_until_named"] = time.monotonic() - lost
    named = [line for line in said if re.search("different|missing|extra", line)]
    assert [line.split(" ", 1)[1] for line in named] == ["payments id = 1: different"]
    with capsys.disabled():
        sys.stdout.write(", ".join(f"{name} {value:.3g}" for name, value in figures.items()) + "\n")
