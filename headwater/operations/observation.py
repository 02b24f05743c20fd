"""The state of a whole environment, asked of all its parts at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from botocore.exceptions import BotoCoreError, ClientError

from headwater.contract.model import Contract, lake_tables
from headwater.errors import UserError
from headwater.operations import alarms, connectors, database, kafka, key_value, tables, writers
from headwater.operations.deployed import Deployed
from headwater.operations.measurements import Measurements, measured
from headwater.operations.state import Alarm, Part, Problem, Runbook, State

_AT_ONCE = 16
_MEASURED_SECONDS = 3600.0
# How the codes of errors begin that say nothing of the part, but of who asks, or how often.
_OF_WHO_ASKS = (
    "AccessDenied",
    "AuthFailure",
    "ExpiredToken",
    "Forbidden",
    "InvalidClientTokenId",
    "OptInRequired",
    "RequestLimitExceeded",
    "Throttl",
    "TooManyRequests",
    "Unauthorized",
    "UnrecognizedClient",
)
_NOT_THERE = "ValidationError"

_Asked = Future[list[Part]]


def observe(deployed: Deployed, query: database.Query | None) -> State:
    """Ask all parts, and PostgreSQL by ``query``, where there is a way to it. Where one cannot be asked it says why,
    and the others are asked all the same. Raises UserError where the credentials are of another account, or the
    environment is not deployed."""
    now = time.time()
    _find(deployed)
    with ThreadPoolExecutor(_AT_ONCE, "state") as pool:
        ringing = pool.submit(_alarms, deployed)
        catalog = pool.submit(tables.catalogued, deployed)
        measurements = _measure(deployed, now)

        def ask(name: str, runbook: Runbook, question: Callable[[], Part | Sequence[Part]]) -> _Asked:
            return pool.submit(_ask, name, runbook, question)

        parts: list[_Asked] = []
        writer_of: dict[str, _Asked] = {}
        if deployed.relational:
            step = ask(writers.STEP, "ended", partial(writers.observe_step, deployed))
            writer_of |= {contract.table: step for contract in deployed.relational}
            source = ask(database.NAME, "connector", partial(database.observe, deployed, query))
            parts += [
                source,
                ask(kafka.NAME, "connector", partial(kafka.observe, deployed)),
                ask("connectors", "connector", lambda: connectors.observe(deployed, measurements, *source.result())),
                step,
            ]
        for contract in deployed.key_value:
            name = key_value.part_name(contract)
            parts.append(ask(name, "replication", partial(key_value.observe, deployed, measurements, contract)))
        for name in deployed.job_names:
            job = ask(name, "ended", partial(writers.observe_job, deployed, name))
            writer_of |= {each.table: job for each in deployed.key_value if deployed.job_name(each) == name}
            parts.append(job)
        # These wait for the answers of some before them.
        asked_tables = [
            ask(
                table.table,
                "writer",
                partial(_table, deployed, measurements, table, writer_of[contract.table], catalog),
            )
            for contract in deployed.contracts
            for table in lake_tables([contract])
        ]
        rings, unasked = ringing.result()
        return State(deployed.environment.name, now, _all(parts), _all(asked_tables), rings, unasked)


def _all(asked: Sequence[_Asked]) -> list[Part]:
    return [part for each in asked for part in each.result()]


def _find(deployed: Deployed) -> None:
    """See that the environment is in the account of the credentials."""
    try:
        _ = deployed.account, deployed.lake, deployed.landing
    except (BotoCoreError, ClientError) as error:
        code = error.response["Error"]["Code"] if isinstance(error, ClientError) else ""
        name, region = deployed.environment.name, deployed.environment.region
        if code == _NOT_THERE:
            raise UserError(
                f"{name}: found nothing in {region} of this account, expected a deployed environment: "
                f"make deploy ENV={name}"
            ) from None
        raise UserError(
            f"AWS in {region}: found {error}, expected an answer: use credentials of the environment's account that "
            "may read (docs/how-to/operate.md)"
        ) from None


def _measure(deployed: Deployed, now: float) -> Measurements:
    asked = [*tables.metrics(deployed), *connectors.metrics(deployed), *key_value.metrics(deployed)]
    try:
        return measured(deployed.client("cloudwatch"), asked, now, _MEASURED_SECONDS)
    except (BotoCoreError, ClientError) as error:
        return Measurements(now, {}, f"no metrics: {error}")


def _table(
    deployed: Deployed,
    measurements: Measurements,
    contract: Contract,
    writer: _Asked,
    catalog: Future[dict[str, str]],
) -> Part:
    (written_by,) = writer.result()
    return tables.observe(deployed, measurements, contract, written_by, catalog.result())


def _ask(name: str, runbook: Runbook, question: Callable[[], Part | Sequence[Part]]) -> list[Part]:
    try:
        answer = question()
    except (BotoCoreError, ClientError, UserError) as error:
        told = " ".join(str(error).split())
        code = error.response["Error"]["Code"] if isinstance(error, ClientError) else ""
        if code and not code.startswith(_OF_WHO_ASKS):
            advice = "see what has become of it; make deploy makes what is missing"
            return [Part(name, "does not answer", problems=[Problem(told, advice, runbook)])]
        return [Part(name, "could not be asked", unasked=told)]
    return [answer] if isinstance(answer, Part) else list(answer)


def _alarms(deployed: Deployed) -> tuple[list[Alarm], str]:
    try:
        return alarms.observe(deployed), ""
    except (BotoCoreError, ClientError) as error:
        return [], " ".join(str(error).split())
