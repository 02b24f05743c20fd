"""The state of a whole environment. All its parts are checked at the same time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from botocore.exceptions import BotoCoreError, ClientError

from headwater.contract.model import Contract, lake_tables
from headwater.errors import UserError
from headwater.operations import alarms, connectors, database, kafka, key_value, tables, writers
from headwater.operations.deployed import Deployed
from headwater.operations.measurements import Measurements, measured
from headwater.operations.state import WELL, Alarm, Part, Problem, Runbook, State

_AT_ONCE = 16
_MEASURED_SECONDS = 3600.0
# Texts in the error codes that are about the part itself. All other codes are about our rights, our rate, or AWS.
_OF_THE_PART = (
    "BadRequest",
    "DatabaseErrorException",
    "DatabaseUnavailable",
    "InvalidRequestException",
    "NoSuch",
    "NotFound",
)

_Asked = Future[list[Part]]


def observe(deployed: Deployed, query: database.Query | None) -> State:
    """Check all parts of an environment, and return its state.

    If a part cannot be checked, it says why, and the others are still checked. Raises UserError if the credentials are
    of another account, or the environment is not deployed.

    Args:
        deployed: The environment.
        query: Runs a query in PostgreSQL; None if there is no way to it.
    """
    deployed.find()
    now = deployed.now()
    with ThreadPoolExecutor(_AT_ONCE, "state") as pool:
        ringing = pool.submit(_alarms, deployed)
        measurements = _measure(deployed, now)

        def ask(name: str, runbook: Runbook, question: Callable[[], Part | Sequence[Part]]) -> _Asked:
            return pool.submit(_ask, name, runbook, question)

        # Begin the checks of all parts, from the sources to the lake.
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
        catalog = ask(tables.CATALOG, "catalog", partial(tables.observe_catalog, deployed))
        parts.append(catalog)
        # These checks wait for the results of some checks above.
        asked_tables = [
            ask(
                table.table,
                "writer",
                partial(_table, deployed, measurements, table, writer_of[contract.table], catalog, query),
            )
            for contract in deployed.contracts
            for table in lake_tables([contract])
        ]
        rings, unasked = ringing.result()
        return State(deployed.environment.name, now, _all(parts), _all(asked_tables), rings, unasked)


def _all(asked: Sequence[_Asked]) -> list[Part]:
    return [part for each in asked for part in each.result()]


def _measure(deployed: Deployed, now: float) -> Measurements:
    asked = [*tables.metrics(deployed), *connectors.metrics(deployed), *key_value.metrics(deployed)]
    try:
        return measured(deployed.client("cloudwatch"), asked, now, _MEASURED_SECONDS)
    except Exception as error:  # whatever the error is, the parts are still checked
        return Measurements(now, {}, f"no metrics: {_told(error)}")


def _table(
    deployed: Deployed,
    measurements: Measurements,
    contract: Contract,
    writer: _Asked,
    catalog: _Asked,
    query: database.Query | None,
) -> Part:
    (written_by,), (catalogued,) = writer.result(), catalog.result()
    # A catalog that could not be read is reported once, not for each table.
    found = catalogued.facts if catalogued.state == WELL else None
    return tables.observe(deployed, measurements, contract, written_by, found, query)


def _ask(name: str, runbook: Runbook, question: Callable[[], Part | Sequence[Part]]) -> list[Part]:
    try:
        answer = question()
    except Exception as error:  # whatever the error is, the other parts are still checked
        if isinstance(error, ClientError) and speaks_of_the_part(error.response["Error"]["Code"]):
            advice = "look for it in AWS; if it was deleted, headwater deploy creates it again"
            return [Part(name, "does not answer", problems=[Problem(_told(error), advice, runbook)])]
        return [Part(name, "could not be checked", unasked=_told(error))]
    return [answer] if isinstance(answer, Part) else list(answer)


def speaks_of_the_part(code: str) -> bool:
    """Whether an error code of AWS is about the part, rather than about the request, its rights or its rate."""
    return any(text in code for text in _OF_THE_PART)


def _alarms(deployed: Deployed) -> tuple[list[Alarm], str]:
    try:
        return alarms.observe(deployed), ""
    except Exception as error:  # as above
        return [], _told(error)


def _told(error: Exception) -> str:
    """The message of an error, in one line."""
    kind = "" if isinstance(error, (BotoCoreError, ClientError, UserError)) else f"{type(error).__name__}: "
    return kind + " ".join(str(error).split())
