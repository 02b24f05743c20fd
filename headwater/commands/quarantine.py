"""``headwater quarantine``: list, show, replay and drop records that failed to decode."""

import json
import sys
from base64 import b64decode
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from headwater.commands import lakes
from headwater.commands.lakes import AnyLake
from headwater.commands.options import Folder
from headwater.commands.writer_requests import ENDPOINT, ENVIRONMENT, LAKE, REGION, s3_errors, watch
from headwater.console import say
from headwater.errors import UserError
from headwater.lake.base import quarantine
from headwater.lake.base.quarantine import BadEntry, Quarantine, QuarantineObject, is_chosen, kind_of
from headwater.lake.requests import replay_requests
from headwater.lake.requests.protocol import Requests
from headwater.lake.requests.replay_requests import Choice

app = typer.Typer(help="List, show, replay and drop records that could not be decoded.", no_args_is_help=True)

EnvironmentName = Annotated[str, ENVIRONMENT]
LakeUri = Annotated[str, LAKE]
TableName = Annotated[str, typer.Argument(metavar="TABLE", help="The lake table's name, as in its contract.")]
Objects = Annotated[
    list[str] | None, typer.Argument(metavar="OBJECT", help="Names of objects, as listed; without any, all objects.")
]
Reason = Annotated[str, typer.Option(help="Only records whose reason contains this text.")]
QuarantineUri = Annotated[
    str, typer.Option("--quarantine", help="Where bad records lie: s3://bucket/prefix; by default LAKE/_quarantine.")
]
Endpoint = Annotated[str, ENDPOINT]
Region = Annotated[str, REGION]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The lake table; without it, all tables.")] = "",
    environment: EnvironmentName = "",
    lake: LakeUri = "",
    uri: QuarantineUri = "",
    *,
    folder: Folder,
    endpoint: Endpoint = "",
    region: Region = "",
    as_json: AsJson = False,
) -> None:
    """List the objects of bad records: when each was stored, how many records it has, and why."""
    place = lakes.of_option(environment, folder, lake, endpoint, region)
    with s3_errors():
        s3, where = place.s3, _folder(place, uri)
        listed = [
            _summary(name, object_, aside.read(object_.name) or [])
            for name in ([table] if table else quarantine.tables(s3, where))
            for aside in [Quarantine(s3, where, name)]
            for object_ in aside.listed()
        ]
    if as_json:
        _print_json(listed)
    elif not listed:
        say(f"No bad records in {where}")
    else:
        _print_list(listed)


@app.command()
def show(
    table: TableName,
    objects: Objects = None,
    reason: Reason = "",
    environment: EnvironmentName = "",
    lake: LakeUri = "",
    uri: QuarantineUri = "",
    *,
    folder: Folder,
    endpoint: Endpoint = "",
    region: Region = "",
    as_json: AsJson = False,
) -> None:
    """Show bad records: each with its reason, position, key and content."""
    place = lakes.of_option(environment, folder, lake, endpoint, region)
    with s3_errors():
        aside = _quarantine(place, uri, table)
        shown = [
            {"object": object_.name, **readable(entry)}
            for object_ in _named(aside, table, objects or [])
            for entry in aside.read(object_.name) or []
            if is_chosen(entry, reason)
        ]
    if as_json:
        _print_json(shown)
        return
    for record in shown:
        say(f"{record['object']} {record['position']}")
        for name in ("reason", "epoch", "key", "content"):
            if record[name] is not None:
                text = record[name] if isinstance(record[name], str) else json.dumps(record[name], ensure_ascii=False)
                say(f"  {name}: {text}")


@app.command()
def replay(
    table: TableName,
    objects: Objects = None,
    reason: Reason = "",
    withdraw: Annotated[bool, typer.Option("--withdraw", help="Withdraw the requests for the table instead.")] = False,
    environment: EnvironmentName = "",
    lake: LakeUri = "",
    uri: QuarantineUri = "",
    *,
    folder: Folder,
    endpoint: Endpoint = "",
    region: Region = "",
) -> None:
    """Have the running writer decode bad records again with its current contract, and watch the writer.

    The writer commits each record that fits. The record keeps its order, so a later change of the row wins. Other
    records stay in quarantine with their new reason. Ctrl-C stops only the watching. The status is 1 if records stay.
    """
    place = lakes.of_option(environment, folder, lake, endpoint, region)
    with s3_errors():
        aside = _quarantine(place, uri, table)
        requests = Requests(place.s3, place.uri, table)
        if withdraw:
            say(f"Withdrawn: {len(replay_requests.withdraw(requests)):,} requests")
            return
        chosen = [object_ for object_ in _named(aside, table, objects or []) if objects or not object_.is_sample]
        choice = Choice(tuple(object_.name for object_ in chosen), reason)
        if not chosen:
            say(
                f"Nothing to replay: the objects of {table} are only samples of refused batches, which the writer "
                "reads again from the source"
            )
            return
        say(f"Requested: the records in {len(chosen):,} objects of {table}")
        status = watch(requests, replay_requests.ask(requests, choice), "objects", "records")
    if status is not None:
        say(f"Done: {status.records - status.kept:,} records are in the lake, {status.kept:,} stay in quarantine")
        if status.kept:
            raise typer.Exit(1)


@app.command()
def drop(
    table: TableName,
    objects: Objects = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    environment: EnvironmentName = "",
    lake: LakeUri = "",
    uri: QuarantineUri = "",
    *,
    folder: Folder,
    endpoint: Endpoint = "",
    region: Region = "",
) -> None:
    """Delete objects of bad records. Only the source may still have their content."""
    place = lakes.of_option(environment, folder, lake, endpoint, region)
    with s3_errors():
        aside = _quarantine(place, uri, table)
        chosen = _named(aside, table, objects or [])
        if not yes:
            typer.confirm(f"Delete {len(chosen):,} objects of bad records of {table}?", abort=True)
        for object_ in chosen:
            aside.delete(object_.name)
    say(f"Deleted: {len(chosen):,} objects of {table}")


def readable(entry: BadEntry) -> dict[str, Any]:
    """Return a bad record as a person can read it.

    The result has the reason, the record's position, its epoch, its key and its content. Key and content are parsed if
    they are JSON.
    """
    record = entry.record if isinstance(entry.record, dict) else {}
    position: Any
    content: Any
    key: Any = None
    # A record comes from a topic, from an export, or from a stream.
    if "value" in record:
        position = "/".join(str(record[name]) for name in ("source", "offset") if name in record)
        key, content = (_parsed(_decoded(record.get(name))) for name in ("key", "value"))
    elif "exported_at" in record:
        position, content = record.get("position"), _parsed(record.get("item", _decoded(record.get("item_base64"))))
    else:
        position, content = record.get("position"), _parsed(record.get("data", _decoded(record.get("data_base64"))))
        if isinstance(content, dict) and isinstance(content.get("dynamodb"), dict):
            key = content["dynamodb"].get("Keys")
    return {"position": position, "reason": entry.reason, "epoch": entry.epoch, "key": key, "content": content}


def _decoded(base64: str | None) -> str | None:
    return None if base64 is None else b64decode(base64).decode("utf-8", "backslashreplace")


def _parsed(text: str | None) -> Any:
    try:
        # Decimal numbers stay texts, so that no digit is lost.
        return None if text is None else json.loads(text, parse_float=str)
    except ValueError:
        return text


def _summary(table: str, object_: QuarantineObject, entries: Sequence[BadEntry]) -> dict[str, Any]:
    reasons = Counter(kind_of(entry.reason) for entry in entries)
    return {
        "table": table,
        "object": object_.name,
        "stored": object_.stored.isoformat(),
        "sample": object_.is_sample,
        "records": len(entries),
        "reasons": dict(reasons.most_common()),
    }


def _print_list(listed: Sequence[Mapping[str, Any]]) -> None:
    grid = Table("table", "stored", title="Bad records", title_justify="left")
    grid.add_column("object", overflow="fold")
    grid.add_column("records", justify="right")
    grid.add_column("reasons", overflow="fold")
    for summary in listed:
        reasons = [f"{count:,} × {reason}" for reason, count in summary["reasons"].items()]
        if summary["sample"]:
            reasons.insert(0, "sample of a refused batch, which the writer reads again")
        cells = (summary["table"], summary["stored"], summary["object"], f"{summary['records']:,}", "\n".join(reasons))
        grid.add_row(*cells)
    Console(markup=False).print(grid)


def _print_json(document: Any) -> None:
    sys.stdout.write(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def _quarantine(place: AnyLake, uri: str, table: str) -> Quarantine:
    return Quarantine(place.s3, _folder(place, uri), table)


def _folder(place: AnyLake, uri: str) -> str:
    return uri or f"{place.uri.rstrip('/')}/_quarantine"


def _named(aside: Quarantine, table: str, names: Sequence[str]) -> list[QuarantineObject]:
    """Return the objects of these names, or without names all objects. Raises UserError if one is missing."""
    listed = aside.listed()
    missing = sorted(set(names) - {object_.name for object_ in listed})
    if missing or not listed:
        wanted = f"the objects {', '.join(missing)}" if missing else "objects"
        raise UserError(
            f"{aside.address('')}: found none of {wanted}, expected bad records of {table}: see headwater quarantine "
            "list"
        )
    return [object_ for object_ in listed if not names or object_.name in names]
