"""``headwater init``: make a lake folder."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from headwater import new_folder
from headwater.commands import inferred_contracts, sources
from headwater.commands.advice import advise
from headwater.console import say
from headwater.conversion.checkouts import FormerCheckout
from headwater.conversion.lake_files import left_to_do, of_first_release
from headwater.definitions.source_database import READER_ROLE
from headwater.errors import UserError
from headwater.lake_folder import LakeFolder, LakeSettings
from headwater.new_folder import WRAPPER, NewFolder, clones
from headwater.paths import ROOT
from headwater.yaml_files import convert

_CHECK = "contract check", "check the contracts"
_LOCAL = "deploy --env local", "deploy the lake to this machine"
_BASELINES = "baselines", "write what each environment deploys into reviewed/"
_ANY = "--host HOST --port 5432 --database DATABASE", " --user USER"
_FIRST = {
    "empty": (("contract infer --schema SCHEMA {at}{user}", "describe your tables"), _CHECK, _BASELINES),
    "example": (_CHECK, _LOCAL, _BASELINES),
    "dynamodb": (_CHECK, _LOCAL, _BASELINES),
    "checkout": (("upgrade", "show the changes of this release in each environment"), _BASELINES, _LOCAL),
    "postgresql": (
        _CHECK,
        ("db capture {at}{user}", "prepare your database"),
        ("replicate {at}", "read it into a lake on this machine"),
    ),
}
"""The first three commands in a lake folder, by the kind of its first contracts.

``{at}`` and ``{user}`` stand for the options of the database that the user has named.
"""


def init(
    place: Annotated[Path, typer.Argument(metavar="FOLDER", help="The lake folder: a new one, or an empty one.")],
    *,
    name: Annotated[str, typer.Option(show_default="the folder's name", help="The lake's name.")] = "",
    repository: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            show_default="the origin of the running clone, or its path",
            help="The git address from which the lake folder fetches Headwater.",
        ),
    ] = "",
    example: Annotated[bool, typer.Option("--example", help="Begin with the example's files.")] = False,
    from_checkout: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Begin with your files in a checkout of release 0.1.0 or 0.2.0."),
    ] = None,
    schema: inferred_contracts.Schema = "",
    table: inferred_contracts.Table = None,
    from_dynamodb: inferred_contracts.FromDynamodb = None,
    sample: inferred_contracts.Sample = 1000,
    database_url: sources.DatabaseUrl = "",
    host: inferred_contracts.Host = "localhost",
    port: inferred_contracts.Port = 5432,
    database: inferred_contracts.Database = "",
    user: inferred_contracts.User = READER_ROLE,
    dynamodb_endpoint: sources.DynamodbEndpoint = "",
    region: sources.Region = "",
) -> None:
    """Make a lake folder: without contracts, from the example, or with contracts for existing tables.

    With --from-checkout the folder begins with your files in a checkout of release 0.1.0 or 0.2.0, converted to this
    release.

    The folder has the environments dev and local, a script that fetches and runs this release of Headwater, and a
    workflow for GitHub Actions. Inside a git repository the workflow goes into the repository's root. If a file is in
    the way, nothing is written. The status is 1 if a table cannot be captured.
    """
    begins_with = "--example" if example else "--from-checkout" if from_checkout else ""
    if (example and from_checkout) or (begins_with and (schema or from_dynamodb)):
        others = "--from-checkout, --schema or --from-dynamodb" if example else "--schema or --from-dynamodb"
        raise UserError(f"{begins_with}: found {others}, too, expected one kind of contracts")
    # Gather all files before anything is written: the folder's own, then those of its kind, then the contracts.
    new = _new_folder(place, name, repository)
    root = new.folder.root
    former = FormerCheckout(from_checkout.resolve()) if from_checkout else None
    kind = begins_with.rpartition("-")[2] or ("postgresql" if schema else "dynamodb" if from_dynamodb else "empty")
    of_postgresql = inferred_contracts.Tables(schema, table or (), database_url, host, port, database, user)
    commands = _commands(kind, *(_options(of_postgresql) if schema else _ANY))
    files = new.files(commands)
    if former:
        files |= former.files(root)
    else:
        files |= new_folder.of_example(root) if example else new_folder.environments(root)
    _refuse_to_overwrite(new, files)
    of_dynamodb = inferred_contracts.Items(from_dynamodb or (), sample, dynamodb_endpoint, region)
    found = inferred_contracts.infer(of_postgresql, of_dynamodb)
    contracts = {new.folder.contracts / f"{each.name}.yaml": each.text for each in found if not each.refused}
    _refuse_to_overwrite(new, contracts)
    _write(new, {**files, **contracts})
    if former:
        _tell_of_checkout(former)
    _tell(new, commands)
    if found:
        inferred_contracts.show(found, new.folder.contracts)


def _new_folder(place: Path, name: str, repository: str) -> NewFolder:
    root = place.resolve()
    if root.is_relative_to(ROOT):
        raise UserError(f"FOLDER: found {root}, inside Headwater's own clone, expected a folder elsewhere")
    release, commit = clones.release()
    known = {
        "name": name or re.sub(r"[^a-z0-9]+", "-", root.name.lower()).strip("-"),
        "release": release,
        "repository": repository or clones.address(),
        "commit": commit,
        "commit_of": release if commit else None,
    }
    settings = convert(known, LakeSettings, "init: headwater.yaml")
    return NewFolder(LakeFolder(root), settings, clones.repository_of(root) or root)


def _options(named: inferred_contracts.Tables) -> tuple[str, str]:
    """Return the command line's options for the database that the user has named, and the option for its role.

    The option for the role is empty if the user has named no role, because each verb has its own default role.
    """
    parts = {"host": named.host, "port": named.port, "dbname": named.database, "user": named.user}
    if named.database_url:
        parts |= sources.parts_of_url(named.database_url)
    options = {"host": parts["host"], "port": parts["port"], "database": parts["dbname"]}
    at = " ".join(f"--{option} {shlex.quote(str(value))}" for option, value in options.items())
    return at, "" if parts["user"] == READER_ROLE else f" --user {shlex.quote(str(parts['user']))}"


def _commands(kind: str, at: str, user: str) -> list[str]:
    lines = [(f"./{WRAPPER} {command.format(at=at, user=user)}", meaning) for command, meaning in _FIRST[kind]]
    width = max(len(command) for command, _ in lines)
    return [f"{command:{width}}  # {meaning}" for command, meaning in lines]


def _refuse_to_overwrite(new: NewFolder, files: Iterable[Path]) -> None:
    root = new.folder.root
    in_the_way = sorted(path for path in files if os.path.lexists(path))
    for path in files:
        # A file is also in the way if a folder of its name is needed.
        in_the_way += [each for each in path.parents if os.path.lexists(each) and not each.is_dir()]
    if in_the_way:
        listed = ", ".join(dict.fromkeys(os.path.relpath(path, root) for path in in_the_way))
        another = "; for another workflow, give another --name" if in_the_way == [new.workflow] else ""
        raise UserError(
            f"{root}: found {listed}, expected none of them; nothing was written. Name a new or an "
            f"empty folder{another}"
        )


def _write(new: NewFolder, files: Mapping[Path, str]) -> None:
    try:
        new.folder.contracts.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        (new.folder.root / WRAPPER).chmod(0o755)
    except OSError as error:
        raise UserError(f"{error.filename}: found {error.strerror}, expected a folder that can be written to") from None


def _tell_of_checkout(former: FormerCheckout) -> None:
    if unlike := former.without_example_sql():
        advise(
            f"The example's SQL is not in the lake folder, because these files of database/ differ from the release's: "
            f"{', '.join(f'{name} ({fate})' for name, fate in unlike.items())}. Aurora keeps its tables. Write the SQL "
            "that a new Aurora needs into files of your own (docs/how-to/database-files.md)"
        )
    for line in left_to_do(of_first_release(LakeFolder(former.root))):
        advise(line)


def _tell(new: NewFolder, commands: Iterable[str]) -> None:
    settings, root = new.settings, new.folder.root
    say(f"Made the lake folder {root}, and its workflow {new.workflow}")
    say(f"Its script fetches release {settings.release} of Headwater from {settings.repository}")
    if Path(settings.repository or "").is_absolute():
        say("A workflow cannot fetch from this machine: for a workflow, write another address into headwater.yaml")
    say("The next commands:")
    for command in (f"cd {shlex.quote(os.path.relpath(root))}", *commands):
        say(f"  {command}")
