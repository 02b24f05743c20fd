"""``headwater status``: show how an environment is, and what to do next."""

import datetime as dt
import json
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from headwater.commands import environments, sources
from headwater.commands.advice import as_typed
from headwater.commands.environments import printable
from headwater.commands.options import Folder, Observed
from headwater.contract.model import POSTGRESQL
from headwater.operations.database import through_data_api
from headwater.operations.observation import observe
from headwater.operations.state import UNASKED, UNWRITTEN, WELL, WRONG, Part, Problem, State

STATUSES = {WELL: 0, WRONG: 1, UNASKED: 3, UNWRITTEN: 4}
"""The exit status by the environment's state. A wrong argument ends with status 2."""
_COLOURS = {WELL: "green", WRONG: "bold red", UNASKED: "yellow", UNWRITTEN: "yellow"}
_LISTED = 5
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


def status(
    environment: Observed = "local",
    *,
    folder: Folder,
    database_url: Annotated[
        str,
        typer.Option(
            help="Query PostgreSQL by this connection string, in place of Aurora's Data API. Leave the password out of "
            "it. Use it for a database of your own."
        ),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with all facts.")] = False,
) -> None:
    """Show the state of an environment, and what to do about its problems. The command changes nothing.

    It shows each part, from the sources to the lake's tables. The status is 0 if all is well, and 1 if something is
    wrong or an alarm rings. It is 3 if nothing was found wrong, but a part could not be checked. It is 4 if the only
    finding is a table without a commit whose source has rows, or may have rows.
    """
    deployed = environments.deployed(environment, folder)
    if database_url:
        sources.refuse_without_contract(deployed.contracts, POSTGRESQL, "--database-url")
    with ExitStack() as opened:
        query = through_data_api(deployed)
        if database_url:
            connection = opened.enter_context(sources.connector(database_url)())
            query = partial(sources.first_value, connection)
        state = observe(deployed, query)
    if as_json:
        sys.stdout.write(json.dumps(state.document(), indent=1, ensure_ascii=False) + "\n")
    else:
        _show(state)
    raise typer.Exit(STATUSES[state.verdict])


def _show(state: State) -> None:
    console = Console(highlight=False)
    at = dt.datetime.fromtimestamp(state.at, dt.UTC)
    console.print(f"[bold]{state.environment}[/] at {at:%Y-%m-%d %H:%M:%S} UTC: {_verdict(state)}")
    console.print(_parts(state))
    console.print(_tables(state))
    if state.alarms:
        rings = Table("alarm that rings", "since", "what it says", "page")
        for alarm in state.alarms:
            name = f"[bold red]{escape(alarm.name)}[/]" if alarm.urgent else escape(alarm.name)
            rings.add_row(name, _ago(state.at - alarm.since), escape(alarm.text), alarm.runbook)
        console.print(rings)
    else:
        console.print(f"alarms: {escape(state.alarms_unasked) or 'none rings'}")
    for part in (*state.parts, *state.tables):
        if part.unasked:
            console.print(f"{escape(part.name)} could not be checked: {escape(as_typed(printable(part.unasked)))}")
    _list(console, "Nothing written yet", "which is fine only while a source is empty", _grouped(state.unwritten))
    problems = [(part.name, problem) for part in state.parts for problem in part.problems]
    problems += _grouped([(table.name, problem) for table in state.tables for problem in table.problems])
    _list(console, "What to do", "the first part first, since others may follow from it", problems)


def _list(console: Console, title: str, remark: str, problems: Sequence[tuple[str, Problem]]) -> None:
    if problems:
        console.print(f"\n[bold]{title}[/], {remark}:")
    for number, (name, problem) in enumerate(problems, 1):
        for line in (
            f"{number}. [bold]{escape(name)}[/]: {escape(printable(problem.found))}",
            f"   {escape(as_typed(problem.next))}",
            f"   {escape(as_typed(f'docs/runbooks/{problem.runbook}.md'))}",
        ):
            console.print(line, soft_wrap=True)


def _grouped(problems: Sequence[tuple[str, Problem]]) -> list[tuple[str, Problem]]:
    """Return the tables' problems. Problems with the same runbook and advice are joined under their first table."""
    # Advice for two tables is the same if it differs only in the table's name.
    by_advice: dict[tuple[str, str], list[tuple[str, Problem]]] = {}
    for table, problem in problems:
        advice = re.sub(rf"\b{re.escape(table)}\b", "", problem.next)
        by_advice.setdefault((problem.runbook, advice), []).append((table, problem))
    found = []
    for (name, problem), *others in by_advice.values():
        also = list(dict.fromkeys(other for other, _ in others if other != name))
        if also:
            listed = ", ".join(also[:_LISTED]) + (" …" if len(also) > _LISTED else "")
            name = f"{name} and {len(also)} more ({listed})"
        found.append((name, problem))
    return found


def _verdict(state: State) -> str:
    found = len(state.problems)
    told = [f"{found} problem{'s' * (found != 1)}"] if found else []
    if state.alarms:
        told.append(f"{len(state.alarms)} alarm{'s' * (len(state.alarms) != 1)} ring{'s' * (len(state.alarms) == 1)}")
    told = told or ([] if state.verdict == WELL else ["nothing found wrong"])
    if state.verdict == UNASKED:
        told.append("but not all could be checked")
    if state.unwritten:
        told.append(f"{UNWRITTEN} into {len(state.unwritten)} table{'s' * (len(state.unwritten) != 1)}")
    return f"[{_COLOURS[state.verdict]}]{', '.join(told) or 'all is well'}[/]"


def _parts(state: State) -> Table:
    grid = Table("part", "state", "what it says")
    for part in state.parts:
        grid.add_row(escape(part.name), _coloured(part), escape(part.says))
    return grid


def _tables(state: State) -> Table:
    # Long names wrap and are not cut: a history's name differs from its table's only at the end.
    grid = Table(Column("table", overflow="fold"), "state")
    for heading in ("committed", "unread", "fresh", "aside", "unfit", "compared", "differ"):
        grid.add_column(heading, justify="right")
    for table in state.tables:
        facts = table.facts
        committed = facts.get("last_commit_at")
        grid.add_row(
            escape(table.name),
            _coloured(table),
            _never(table, state.at) if committed is None else _ago(state.at - committed),
            _count(facts.get("waiting_records")),
            "" if facts.get("freshness_seconds") is None else f"{facts['freshness_seconds']:,.1f} s",
            _count(facts.get("quarantine_objects")),
            _count(facts.get("unfit_values_of_an_hour")),
            _compared(facts, state.at),
            _differ(facts),
        )
    return grid


def _never(table: Part, now: float) -> str:
    """Say how long a table has had no commit."""
    since = table.facts.get("expected_since")
    if table.facts.get("source_is_empty"):
        return "no rows yet"
    return "never" if since is None else f"never in {_ago(now - since)}"


def _compared(facts: Mapping[str, Any], now: float) -> str:
    """Say how long ago all of a table's rows were compared, and whether somebody has ended the comparison."""
    if facts.get("comparison_said_at") is None:
        return ""
    compared, ended = facts["compared_at"], facts["comparison_ended"]
    ago = "not yet" if compared is None else _ago(now - compared)
    return f"{ago}, ended" if ended else ago


def _differ(facts: Mapping[str, Any]) -> str:
    untold = facts.get("rows_not_told")
    return _count(facts.get("rows_that_differ")) + (f" ({untold:,} not told)" if untold else "")


def _coloured(part: Part) -> str:
    return f"[{_COLOURS[part.state]}]{part.state}[/]"


def _count(value: Any) -> str:
    return "" if value is None else f"{value:,.0f}"


def _ago(seconds: float) -> str:
    for unit, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:,.0f} {name}"
    return f"{max(seconds, 0):,.0f} s"
