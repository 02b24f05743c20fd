"""``headwater init`` makes a lake folder, and never overwrites."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import boto3
import msgspec
import pytest
import yaml
from moto import mock_aws
from typer.testing import CliRunner, Result

from headwater import new_folder
from headwater.cli import app
from headwater.contract.reading import read_contracts
from headwater.environment import model as environment
from headwater.environment.rules import read_environment
from headwater.errors import UserError
from headwater.lake_folder import EXAMPLE, LakeFolder
from headwater.new_folder import clones
from headwater.paths import ROOT, SCHEMAS
from tests.command_line import understood

ADDRESS = "https://git.example.com/headwater.git"
ALWAYS = {
    ".gitignore",
    "README.md",
    "config/dev.yaml",
    "config/local.yaml",
    "headwater",
    "headwater.yaml",
    "schemas/contract.schema.json",
    "schemas/environment.schema.json",
}


def run(*arguments: str | Path) -> Result:
    words = ["init", *map(str, arguments), "--repository", ADDRESS]
    return CliRunner().invoke(app, words, catch_exceptions=False)


def made(folder: Path, *arguments: str) -> LakeFolder:
    assert run(folder, *arguments).exit_code == 0
    return LakeFolder(folder)


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def git(folder: Path, *arguments: str) -> str:
    own = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", str(folder)]
    return subprocess.run([*own, *arguments], check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def users(tmp_path: Path) -> Path:
    """The user's git repository."""
    folder = tmp_path / "data"
    folder.mkdir()
    git(folder, "init", "--quiet")
    return folder


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone of a repository that has one release."""
    origin = tmp_path / "origin"
    origin.mkdir()
    git(origin, "init", "--quiet")
    git(origin, "commit", "--quiet", "--allow-empty", "--message", "a")
    git(origin, "tag", "--annotate", "--message", "a", "v0.3.0")
    git(origin, "tag", "unrelated")
    git(tmp_path, "clone", "--quiet", str(origin), "clone")
    return tmp_path / "clone"


@pytest.mark.parametrize("is_there", [False, True])
def test_a_lake_folder_is_made_in_a_new_or_an_empty_one(tmp_path: Path, is_there: bool) -> None:
    root = tmp_path / "My Lake"
    if is_there:
        root.mkdir()
    folder = made(root)
    assert files(root) == ALWAYS | {".github/workflows/headwater-my-lake.yaml"}
    assert folder.settings.name == "my-lake"
    assert folder.settings.repository == ADDRESS
    assert folder.contracts.is_dir()
    assert (root / ".gitignore").read_text() == "/build/\n/cdk.out/\n"
    assert os.access(root / "headwater", os.X_OK)
    assert {path.name: path.read_text() for path in (root / "schemas").iterdir()} == {
        path.name: path.read_text() for path in SCHEMAS.iterdir()
    }
    assert environment.names(folder.config) == ["dev", "local"]
    assert [read_environment(name, folder.config).name for name in ("dev", "local")] == ["dev", "local"]


@pytest.mark.parametrize("name", ["dev", "local"])
def test_a_new_environment_has_nothing_of_the_example(tmp_path: Path, name: str) -> None:
    folder = made(tmp_path / "lake")
    text = (folder.config / f"{name}.yaml").read_text()
    assert 6 <= text.count("\n") <= 25
    assert "northwind" not in text.lower()
    own, example = read_environment(name, folder.config), read_environment(name, EXAMPLE.config)
    assert isinstance(own.database, environment.Aurora)
    assert isinstance(example.database, environment.Aurora)
    assert own.database.name == "lake"
    assert own == msgspec.structs.replace(example, database=msgspec.structs.replace(example.database, name="lake"))


def test_with_the_example_the_environments_are_its(tmp_path: Path) -> None:
    folder = made(tmp_path / "lake", "--example")
    texts = [{path.name: path.read_text() for path in each.config.iterdir()} for each in (folder, EXAMPLE)]
    assert texts[0] == texts[1]


def test_the_folder_wants_the_release_that_runs(tmp_path: Path) -> None:
    settings = made(tmp_path / "lake").settings
    head = git(ROOT, "rev-parse", "HEAD")
    assert (settings.release, settings.commit) in ((head, None), (version("headwater"), head))


def test_a_release_is_named_by_its_tag_and_its_commit(clone: Path) -> None:
    head = git(clone, "rev-parse", "HEAD")
    assert clones.release(clone) == ("0.3.0", head)
    git(clone, "commit", "--quiet", "--allow-empty", "--message", "b")
    git(clone, "tag", "v0.3.1-trial")
    later = git(clone, "rev-parse", "HEAD")
    assert clones.release(clone) == (later, None)


def test_what_is_no_clone_by_git_is_refused(clone: Path, tmp_path: Path) -> None:
    (clone / "unpacked").mkdir()
    for folder in (clone / "unpacked", tmp_path):
        with pytest.raises(UserError, match="found no git clone"):
            clones.release(folder)
    git(tmp_path, "init", "--quiet", "empty")
    with pytest.raises(UserError, match="found no commit"):
        clones.release(tmp_path / "empty")


def test_the_address_is_where_the_clone_comes_from(clone: Path) -> None:
    assert clones.address(clone) == str(clone.parent / "origin")
    git(clone, "remote", "set-url", "origin", "../origin")
    assert clones.address(clone) == str(clone.parent / "origin")
    git(clone, "remote", "set-url", "origin", "git@git.example.com:us/headwater.git")
    assert clones.address(clone) == "git@git.example.com:us/headwater.git"
    git(clone, "remote", "set-url", "origin", "https://me:secret@git.example.com/headwater.git")
    assert clones.address(clone) == ADDRESS
    git(clone, "remote", "remove", "origin")
    assert clones.address(clone) == str(clone)


def test_the_example_brings_its_folders(tmp_path: Path) -> None:
    folder = made(tmp_path / "lake", "--example")
    assert read_contracts(folder.contracts) == read_contracts(EXAMPLE.contracts)
    assert environment.names(folder.config) == environment.names(EXAMPLE.config)
    for name in new_folder.OF_EXAMPLE:
        assert files(folder.root / name) == files(EXAMPLE.root / name)
    assert "reviewed" not in {path.name for path in folder.root.iterdir()}


@pytest.fixture
def accounts() -> Iterator[Any]:
    with mock_aws():
        client = boto3.client("dynamodb", "eu-central-1", aws_access_key_id="a", aws_secret_access_key="b")
        client.create_table(
            TableName="Accounts",
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        client.put_item(TableName="Accounts", Item={"id": {"S": "1"}, "paid": {"N": "12.5"}})
        yield client


def test_contracts_are_written_for_the_sources_named(tmp_path: Path, accounts: Any) -> None:
    folder = made(tmp_path / "lake", "--from-dynamodb", "Accounts", "--region", "eu-central-1")
    [contract] = read_contracts(folder.contracts)
    assert [column.name for column in contract.columns] == ["id", "paid"]
    assert environment.names(folder.config) == ["dev", "local"]


def test_a_source_that_cannot_be_read_leaves_no_folder(tmp_path: Path, accounts: Any) -> None:
    for source in (["--from-dynamodb", "Other", "--region", "eu-central-1"], ["--table", "film"]):
        with pytest.raises(UserError, match=source[0]):
            run(tmp_path / "lake", *source)
    assert not (tmp_path / "lake").exists()


def test_the_example_and_sources_are_not_mixed(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--example: found --from-checkout, --schema or --from-dynamodb, too"):
        run(tmp_path / "lake", "--example", "--from-dynamodb", "Accounts")
    with pytest.raises(UserError, match="--from-checkout: found --schema or --from-dynamodb, too"):
        run(tmp_path / "lake", "--from-checkout", tmp_path, "--schema", "public")


@pytest.mark.parametrize(
    "in_the_way", [*sorted(ALWAYS), ".github/workflows/headwater-lake.yaml", "config", "README.md/x"]
)
def test_nothing_is_written_where_a_file_is_in_the_way(tmp_path: Path, in_the_way: str) -> None:
    path = tmp_path / "lake" / in_the_way
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    with pytest.raises(UserError) as error:
        run(tmp_path / "lake")
    assert f"found {in_the_way.removesuffix('/x')}, expected none of them; nothing was written" in str(error.value)
    assert files(tmp_path / "lake") == {in_the_way}
    assert path.read_text() == "mine"


def test_a_contract_that_is_in_the_way_is_kept(tmp_path: Path, accounts: Any) -> None:
    path = tmp_path / "lake" / "contracts" / "accounts.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    with pytest.raises(UserError, match=r"found contracts/accounts\.yaml, expected none"):
        run(tmp_path / "lake", "--from-dynamodb", "Accounts", "--region", "eu-central-1")
    with pytest.raises(UserError, match=r"found contracts/accounts\.yaml, expected none"):
        run(tmp_path / "lake", "--example")
    assert files(tmp_path / "lake") == {"contracts/accounts.yaml"}


def test_a_link_that_leads_nowhere_is_in_the_way_too(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "README.md").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match=r"found README\.md"):
        run(tmp_path / "lake")
    assert not (tmp_path / "elsewhere").exists()


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("mine")
    with pytest.raises(UserError, match=r"lake: found \., expected none of them"):
        run(tmp_path / "lake")


def test_the_checkout_of_headwater_is_no_place_for_a_lake() -> None:
    with pytest.raises(UserError, match="inside Headwater's own clone, expected a folder elsewhere"):
        run(ROOT / "lake")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--name", "My Lake"], "name: found 'My Lake', expected lower-case letters, digits and hyphens"),
        (["--repository=-x"], "repository: found '-x', expected a git address"),
        (["--repository", 'a"b'], "repository: found 'a\"b', expected a git address"),
    ],
)
def test_a_field_that_cannot_be_is_named(tmp_path: Path, arguments: list[str], said: str) -> None:
    words = ["init", str(tmp_path / "lake"), *arguments]
    with pytest.raises(UserError, match=re.escape(said)):
        CliRunner().invoke(app, words, catch_exceptions=False)
    assert not (tmp_path / "lake").exists()


def test_a_folder_without_a_letter_needs_a_name(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="name: found '2024', expected lower-case letters"):
        run(tmp_path / "2024")
    assert made(tmp_path / "2024", "--name", "sales").settings.name == "sales"


def test_inside_a_repository_the_workflow_is_in_its_root(users: Path) -> None:
    folder = made(users / "lakes" / "sales")
    assert files(folder.root) == ALWAYS
    workflow = yaml.safe_load((users / ".github" / "workflows" / "headwater-sales.yaml").read_text())
    paths = ["lakes/sales/**", ".github/workflows/headwater-sales.yaml"]
    assert workflow[True]["pull_request"]["paths"] == workflow[True]["push"]["paths"] == paths
    review = workflow["jobs"]["review"]
    assert review["defaults"]["run"]["working-directory"] == "lakes/sales"
    assert "hashFiles('lakes/sales/headwater.yaml')" in str(review["steps"])
    assert "../../.github/workflows/headwater-sales.yaml" in (folder.root / "README.md").read_text()
    # What is built is not for git, and all else is.
    for built in ("build", "cdk.out"):
        (folder.root / built).mkdir()
        (folder.root / built / "file").touch()
    git(users, "add", ".")
    assert set(git(users, "ls-files").splitlines()) == {f"lakes/sales/{name}" for name in ALWAYS} | {paths[1]}


def test_the_root_of_an_empty_repository_may_be_a_lake(users: Path) -> None:
    folder = made(users)
    workflow = yaml.safe_load((users / ".github" / "workflows" / "headwater-data.yaml").read_text())
    assert workflow[True]["pull_request"]["paths"][0] == "**"
    assert workflow["jobs"]["review"]["defaults"]["run"]["working-directory"] == "."
    assert folder.settings.name == "data"


def test_a_repository_may_have_several_lakes(users: Path) -> None:
    made(users / "north" / "sales")
    with pytest.raises(UserError) as error:
        run(users / "south" / "sales")
    assert "found ../../.github/workflows/headwater-sales.yaml, expected none of them" in str(error.value)
    assert "give another --name" in str(error.value)
    assert not (users / "south").exists()
    made(users / "south" / "sales", "--name", "south")
    names = {path.name for path in (users / ".github" / "workflows").iterdir()}
    assert names == {"headwater-sales.yaml", "headwater-south.yaml"}


def test_a_path_that_no_workflow_can_name_is_refused(users: Path) -> None:
    with pytest.raises(UserError, match=r"FOLDER: found 'a\*b' in the repository"):
        run(users / "a*b")


@pytest.mark.parametrize("arguments", [[], ["--example"], ["--from-dynamodb", "Accounts", "--region", "eu-central-1"]])
def test_the_readme_has_the_next_three_commands(tmp_path: Path, accounts: Any, arguments: list[str]) -> None:
    done = run(tmp_path / "lake", *arguments)
    readme = (tmp_path / "lake" / "README.md").read_text()
    assert readme.count("\n") <= 25
    assert "@" not in readme
    commands = re.findall(r"^\./headwater (.*?) +#", readme, re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        understood(*shlex.split(command))
        assert f"  ./headwater {command} " in done.stdout
    for named in re.findall(r"^\| `([^`]*)`", readme, re.MULTILINE):
        assert named == "reviewed/" or (tmp_path / "lake" / named).exists()


def test_who_names_a_folder_of_this_machine_is_told(tmp_path: Path) -> None:
    words = ["init", str(tmp_path / "lake"), "--repository", str(tmp_path)]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert "A workflow cannot fetch from this machine" in done.stdout
    assert "A workflow cannot" not in run(tmp_path / "other").stdout
