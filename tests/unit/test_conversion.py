"""The files of releases 0.1.0 and 0.2.0 are converted to this release."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from headwater.cli import app
from headwater.contract.reading import read_contracts
from headwater.conversion.checkouts import FormerCheckout
from headwater.conversion.environment_files import convert_environment
from headwater.environment.defaults import leaves
from headwater.environment.rules import from_document, read_environment
from headwater.errors import UserError
from headwater.lake_folder import EXAMPLE, LakeFolder
from headwater.new_folder import WRAPPER, of_release
from headwater.paths import ROOT
from headwater.yaml_files import load_yaml
from tests.former_releases import ACCOUNT, FIRST, SECOND, former_checkout

ADDRESS = "https://git.example.com/headwater.git"
AS_BEFORE = {
    "deployment.poll_seconds": 30,
    "deployment.settled_seconds": 90,
    "network.image_generation": 1,
    "network.endpoint_zones": "all",
    "lake.format": 1,
    "lake.query_principals": [],
    "lake.file_version_hours": 1,
    "lake.landing_days": 36500,
    "lake.tombstone_days": 36500,
    "lake.max_quarantined_share": 0.01,
    "lake.max_unfit_share": 0.01,
    "database.kind": "aurora",
    "database.name": "northwind",
    "database.root_certificate": None,
    "connect.sink_tasks": 1,
    "connect.missing_offsets": "accept",
    "connect.snapshot_mode": "initial",
    "connect.epoch": 2,
    "emr.market": "on-demand",
    "emr.idle_seconds_max": 1,
    "emr.web_interfaces": False,
    "emr.generation": 1,
    "key_value.kind": "created",
    "glue.jobs": "per-table",
    "glue.epoch": 2,
    "monitoring.runbooks": None,
    "monitoring.unfit_values": 0,
    "monitoring.comparison_minutes": None,
}
"""What comes nearest to what release 0.1.0 did."""
OF_POSTGRESQL = ("network", "database", "stream", "connect", "emr")
ENVIRONMENTS = [(FIRST, name) for name in ("dev", "stage", "prod")] + [
    (SECOND, name) for name in ("dev", "stage", "prod", "local")
]


@pytest.fixture
def checkout(tmp_path: Path) -> Callable[[str], Path]:
    return lambda release: former_checkout(release, tmp_path / "former")


def convert(text: str, name: str = "dev") -> str:
    return convert_environment(text, name, f"config/{name}.yaml")


def resolved(text: str, name: str = "dev") -> dict[str, Any]:
    """All values of an environment's file."""
    return dict(leaves(from_document(load_yaml(text, name), name, name)[0].document()))


def is_needed(field: str, text: str, name: str) -> bool:
    """Whether a file without a field would be refused, or have other values."""
    document = yaml.safe_load(text)
    *above, last = field.split(".")
    del (document[above[0]] if above else document)[last]
    try:
        return resolved(yaml.safe_dump(document), name) != resolved(text, name)
    except UserError:
        return True


def file_of(release: str, tmp_path: Path, name: str = "dev") -> str:
    return (former_checkout(release, tmp_path / release) / "config" / f"{name}.yaml").read_text()


def init(tmp_path: Path, source: Path, *, name: str = "lake") -> Result:
    arguments = ["init", str(tmp_path / name), "--from-checkout", str(source), "--repository", ADDRESS]
    return CliRunner().invoke(app, arguments, catch_exceptions=False)


def made(tmp_path: Path, source: Path) -> LakeFolder:
    done = init(tmp_path, source)
    assert done.exit_code == 0, done.output
    return LakeFolder(tmp_path / "lake")


def upgrade(folder: LakeFolder) -> str:
    done = CliRunner().invoke(app, ["upgrade", "--folder", str(folder.root)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def contents(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("release", "name"), ENVIRONMENTS)
def test_an_environment_keeps_its_values_in_fewer_lines(tmp_path: Path, release: str, name: str) -> None:
    before = file_of(release, tmp_path, name)
    after = convert(before, name)
    assert after.count("\n") <= 36
    now = resolved(after, name)
    for field, value in leaves(yaml.safe_load(before)):
        if field not in ("emr.epoch", "glue.epoch"):
            assert now[field] == value, field
    for field, _ in leaves(yaml.safe_load(after)):
        assert field == "size" or is_needed(field, after, name), field
    assert convert(after, name) == after


def test_what_the_first_release_did_is_what_its_file_says_now(tmp_path: Path) -> None:
    now = resolved(convert(file_of(FIRST, tmp_path)))
    assert {field: now[field] for field in AS_BEFORE} == AS_BEFORE


def test_a_raised_epoch_of_the_first_release_is_raised_once_more(tmp_path: Path) -> None:
    raised = file_of(FIRST, tmp_path).replace("  epoch: 1\nkey_value", "  epoch: 3  # lost slot\nkey_value")
    now = resolved(convert(raised))
    assert (now["connect.epoch"], now["glue.epoch"]) == (4, 2)


def test_the_second_releases_dev_is_eleven_lines(tmp_path: Path) -> None:
    assert convert(file_of(SECOND, tmp_path)) == (
        "# yaml-language-server: $schema=../schemas/environment.schema.json\n"
        "# The cheapest environment that runs all parts. "
        "`./headwater environment show --env dev` prints every field.\n"
        "region: eu-central-1\n"
        "size: small\n"
        "data:\n"
        "  retain: false\n"
        "  delete_with_stacks_of: dev      # the second of the two settings without which no data is deleted\n"
        "lake:\n"
        "  format: 1\n"
        "database:\n"
        "  name: northwind\n"
        "emr:\n"
        "  market: spot\n"
        "monitoring:\n"
        "  monthly_budget_usd: 1000\n"
    )


def test_comments_of_fields_that_stay_are_kept(tmp_path: Path) -> None:
    before = file_of(SECOND, tmp_path)
    before = before.replace("  cidr: 10.40.0.0/16\n", "  # Peered with sales.\n  cidr: 10.50.0.0/16   # ask Ann\n")
    before = before.replace("  readers: 0\n", "  # One was too much.\n  readers: 0\n")
    before = before.replace("log_days: 14\n", "\nlog_days: 14  # two weeks\n               # are enough\n\n")
    after = convert(before)
    assert "network:\n  # Peered with sales.\n  cidr: 10.50.0.0/16   # ask Ann\n" in after
    assert "enough" not in after
    assert "too much" not in after
    assert "\n\n\n" not in after


def test_sections_in_braces_are_converted(tmp_path: Path) -> None:
    before = file_of(SECOND, tmp_path)
    document = yaml.safe_load(before)
    sections = [
        f"{name}: {yaml.safe_dump(value, default_flow_style=True, width=9999)}"
        for name, value in document.items()
        if isinstance(value, dict)
    ]
    rest = yaml.safe_dump({name: value for name, value in document.items() if not isinstance(value, dict)})
    after = convert(rest + "".join(sections))
    assert "data: {delete_with_stacks_of: dev, retain: false}\n" in after
    assert resolved(after) == resolved(convert(before))


@pytest.mark.parametrize("sections", [OF_POSTGRESQL, ("key_value", "glue")])
def test_an_environment_of_one_source_stays_one(tmp_path: Path, sections: tuple[str, ...]) -> None:
    document = {**yaml.safe_load(file_of(SECOND, tmp_path)), **dict.fromkeys(sections)}
    now = yaml.safe_load(convert(yaml.safe_dump(document)))
    assert [name for name, value in now.items() if value is None] == sorted(sections)


def test_an_existing_database_stays_the_one_it_is(tmp_path: Path) -> None:
    document = yaml.safe_load(file_of(SECOND, tmp_path))
    document["database"] = {
        **{"kind": "existing", "host": "db.example.com", "port": 5432, "name": "shop", "secret": "shop/capture"},
        **{"secret_key": None, "root_certificate": None, "cidr": "10.60.0.0/16", "peering": None, "monitored": None},
    }
    now = yaml.safe_load(convert(yaml.safe_dump(document)))
    assert now["database"] == {
        **{"kind": "existing", "host": "db.example.com", "name": "shop"},
        **{"secret": "shop/capture", "cidr": "10.60.0.0/16"},
    }


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        (
            "prod",
            f"account: {ACCOUNT}",
            "account: null",
            "account: found None, expected 12 digits in quotes if data",
        ),
        ("dev", "10.40.0.0/16", "192.168.0.0/16", "network.cidr: found '192.168.0.0/16', expected an IPv4 network of"),
        ("dev", "flush_ms: 1000", "flush_ms: 90000", "connect.flush_ms: found 90000, expected at most 60 seconds"),
        ("dev", "window_seconds: 15", "window_seconds: 90", "glue.window_seconds: found 90, expected 1 to 60"),
        ("dev", "  epoch: 1\nkey", "  epoch: one\nkey", "emr.epoch: found 'one', expected a whole number, 1 or more"),
        ("dev", "name: dev", "name: div", "name: found 'div', expected dev, the name of the file"),
        ("dev", "capacity_max: 4", "capacity: 4", "database.capacity: found an unknown field, expected capacity_m"),
        (
            "dev",
            "readers: 0\n  backup_days: 1",
            "readers: &one 1\n  backup_days: *one",
            "found YAML that the upgrade cannot edit, such as an anchor",
        ),
        (
            "dev",
            "  readers: 0\n",
            # Without the second line, which states the default, the merged value would count.
            "  <<: {readers: 1}\n  readers: 0\n",
            "found YAML that the upgrade cannot edit, such as an anchor",
        ),
    ],
)
def test_what_cannot_be_carried_on_is_refused_by_name(
    tmp_path: Path, checkout: Callable[[str], Path], name: str, old: str, new: str, said: str
) -> None:
    source = checkout(FIRST)
    path = source / "config" / f"{name}.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(UserError) as error:
        init(tmp_path, source)
    assert str(error.value).startswith(f"{path}: ")
    assert said in str(error.value)
    assert not (tmp_path / "lake").exists()


def test_a_file_of_this_form_without_a_format_is_left_alone() -> None:
    text = "region: eu-central-1\nsize: small\n"
    assert convert(text) == text


def test_items_expire_as_in_the_first_release(tmp_path: Path, checkout: Callable[[str], Path]) -> None:
    folder = made(tmp_path, checkout(FIRST))
    [contract] = [contract for contract in read_contracts(folder.contracts) if contract.table == "accounts"]
    assert contract.source.time_to_live == "expires_at"
    text = (folder.contracts / "accounts.yaml").read_text()
    assert "source: {database: dynamodb, table: headwater-accounts, time_to_live: expires_at}\n" in text


def test_items_that_do_not_expire_go_on_so(tmp_path: Path, checkout: Callable[[str], Path]) -> None:
    source = checkout(SECOND)
    path = source / "contracts" / "accounts.yaml"
    path.write_text(path.read_text().replace(", time_to_live: expires_at", ""))
    folder = made(tmp_path, source)
    assert (folder.contracts / "accounts.yaml").read_text() == path.read_text()


@pytest.mark.parametrize("release", [FIRST, SECOND])
def test_a_checkout_becomes_a_lake_folder(tmp_path: Path, checkout: Callable[[str], Path], release: str) -> None:
    source = checkout(release)
    before = contents(source)
    folder = made(tmp_path, source)
    assert contents(source) == before
    for name in ("dev", "stage", "prod", "local"):
        assert read_environment(name, folder.config).lake.format == 1
    for part in ("database", "queries"):
        assert contents(folder.root / part) == contents(EXAMPLE.root / part)
    assert {path.name for path in folder.contracts.iterdir()} == {
        path.name for path in (source / "contracts").iterdir()
    }
    reviewed = source / ("tests/synth" if release == FIRST else "reviewed")
    assert contents(folder.baselines) == contents(reviewed / "baselines")
    assert folder.acknowledged.read_text() == (reviewed / folder.acknowledged.name).read_text()
    if release == SECOND:
        assert contents(folder.contract_baselines) == contents(reviewed / "contracts")
    # Nothing is left to convert.
    assert "All files fit this release already" in upgrade_without_baselines(folder)


def upgrade_without_baselines(folder: LakeFolder) -> str:
    """Upgrade where there is nothing to compare with, which takes minutes."""
    folder.baselines.rename(folder.root / "elsewhere")
    try:
        return upgrade(folder)
    finally:
        (folder.root / "elsewhere").rename(folder.baselines)


def test_own_sql_and_certificates_come_along(tmp_path: Path, checkout: Callable[[str], Path]) -> None:
    source = checkout(SECOND)
    (source / "database" / "91_own.sql").write_text("CREATE TABLE IF NOT EXISTS own (id int);\n")
    (source / "certs").mkdir()
    (source / "certs" / "ca.pem").write_text("ca")
    path = source / "config" / "dev.yaml"
    path.write_text(path.read_text().replace("root_certificate: null", "root_certificate: certs/ca.pem"))
    assert "example's SQL" not in init(tmp_path, source).output
    lake = tmp_path / "lake"
    assert (lake / "database" / "91_own.sql").read_text() == "CREATE TABLE IF NOT EXISTS own (id int);\n"
    assert (lake / "database" / "1_schema.sql").read_text() == (EXAMPLE.database / "1_schema.sql").read_text()
    assert (lake / "certs" / "ca.pem").read_text() == "ca"


def test_an_order_database_that_was_removed_stays_away(tmp_path: Path, checkout: Callable[[str], Path]) -> None:
    source = checkout(SECOND)
    (source / "database" / "1_schema.sql").write_text("CREATE SCHEMA IF NOT EXISTS mine;\n")
    (source / "database" / "2_outbox_payload.sql").unlink()
    (source / "database" / "5_own.sql").write_text("CREATE TABLE IF NOT EXISTS own (id int);\n")
    done = init(tmp_path, source)
    said = "differ from the release's: 1_schema.sql (changed), 2_outbox_payload.sql (missing). Aurora keeps"
    assert said in done.output
    assert [path.name for path in (tmp_path / "lake" / "database").iterdir()] == ["5_own.sql"]


@pytest.mark.parametrize("release", [FIRST, SECOND])
def test_any_shipped_file_that_is_gone_keeps_the_example_away(
    tmp_path: Path, checkout: Callable[[str], Path], release: str
) -> None:
    source = checkout(release)
    for path in sorted((source / "database").iterdir()):
        text = path.read_text()
        path.unlink()
        files = FormerCheckout(source).files(tmp_path / "lake")
        assert not [each for each in files if "database" in each.parts], path.name
        path.write_text(text)
    assert [path for path in FormerCheckout(source).files(tmp_path / "lake") if "database" in path.parts]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("own.sql", "SELECT 1;\n", "found this name, expected a number, an underscore and letters"),
        ("5_own.sql", "SELECT 1;\n", "found the number of 5_outbox_repair.sql, expected another number"),
        ("91_own.sql", "BEGIN;\nCOMMIT;\n", "expected no BEGIN, COMMIT or the like"),
    ],
)
def test_own_sql_that_cannot_run_is_refused_at_once(
    tmp_path: Path, checkout: Callable[[str], Path], name: str, text: str, said: str
) -> None:
    source = checkout(SECOND)
    path = source / "database" / name
    path.write_text(text)
    with pytest.raises(UserError) as error:
        init(tmp_path, source)
    assert str(error.value).startswith(str(path))
    assert said in str(error.value)
    assert not (tmp_path / "lake").exists()


def test_a_certificate_beside_the_checkout_is_refused(tmp_path: Path, checkout: Callable[[str], Path]) -> None:
    source = checkout(SECOND)
    (source.parent / "ca.pem").write_text("ca")
    path = source / "config" / "dev.yaml"
    path.write_text(path.read_text().replace("root_certificate: null", "root_certificate: ../ca.pem"))
    with pytest.raises(UserError) as error:
        init(tmp_path / "deep", source)
    assert str(error.value).startswith(f"{path}: database.root_certificate: found '../ca.pem', expected a path below")
    assert not (tmp_path / "deep").exists()


def test_a_checkout_without_reviewed_files_gives_none(tmp_path: Path, checkout: Callable[[str], Path]) -> None:
    source = checkout(SECOND)
    shutil.rmtree(source / "reviewed")
    (source / "contracts" / "notes.json").write_text("{}")
    assert not (made(tmp_path, source).root / "reviewed").exists()


@pytest.mark.parametrize("release", [FIRST, SECOND])
def test_the_first_error_leads_to_the_conversion(tmp_path: Path, checkout: Callable[[str], Path], release: str) -> None:
    source = checkout(release)
    expected = r"lake\.format: found nothing, expected 1 in a new file; for a file of release 0\.1\.0 or 0\.2\.0 run `"
    with pytest.raises(UserError, match=expected) as error:
        read_environment("dev", source / "config")
    upgraded, started = re.findall(r"`headwater ([^`]+)`", str(error.value))
    assert upgraded == "upgrade"
    words = [{"FOLDER": str(tmp_path / "lake"), "DIR": str(source)}.get(word, word) for word in started.split()]
    done = CliRunner().invoke(app, [*words, "--repository", ADDRESS], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert read_environment("dev", LakeFolder(tmp_path / "lake").config).lake.format == 1


def test_without_orders_the_examples_queries_stay_away(tmp_path: Path, checkout: Callable[[str], Path]) -> None:
    source = checkout(SECOND)
    (source / "contracts" / "orders.yaml").unlink()
    folder = made(tmp_path, source)
    assert folder.database.is_dir()
    assert not folder.queries.exists()


def test_without_aurora_the_examples_database_stays_away(tmp_path: Path, checkout: Callable[[str], Path]) -> None:
    source = checkout(SECOND)
    for path in (source / "config").iterdir():
        document = {
            **yaml.safe_load(path.read_text()),
            **dict.fromkeys(("network", "database", "stream", "connect", "emr")),
        }
        path.write_text(yaml.safe_dump(document))
    folder = made(tmp_path, source)
    assert not folder.database.exists()
    assert not folder.queries.exists()


def test_what_is_left_after_the_first_release_is_said(tmp_path: Path, checkout: Callable[[str], Path]) -> None:
    done = init(tmp_path, checkout(FIRST))
    assert "dev, prod, stage: connect.epoch and glue.epoch are raised: Kafka's topics are new" in done.output
    assert "docs/how-to/upgrade.md#from-010" in done.output


@pytest.mark.parametrize("other", ["a lake folder", "an empty folder", "this release"])
def test_another_folder_is_no_checkout_to_begin_with(
    tmp_path: Path, checkout: Callable[[str], Path], other: str
) -> None:
    source = made(tmp_path, checkout(SECOND)).root if other == "a lake folder" else tmp_path / "other"
    source.mkdir(exist_ok=True)
    if other == "this release":
        (source / "config").symlink_to(EXAMPLE.config)
    expected = "change `release` in headwater.yaml" if other == "a lake folder" else "found no environment of release 0"
    with pytest.raises(UserError, match=expected):
        init(tmp_path, source, name="second")
    assert not (tmp_path / "second").exists()


def test_upgrade_converts_and_writes_what_the_release_owns(tmp_path: Path, checkout: Callable[[str], Path]) -> None:
    source = checkout(SECOND)
    folder = made(tmp_path, source)
    subprocess.run(["git", "init", "--quiet", str(folder.root)], check=True)
    index = contents(folder.root / ".git")
    wanted = of_release(folder.root)
    dev = (folder.config / "dev.yaml").read_text()
    (folder.config / "dev.yaml").write_text((source / "config" / "dev.yaml").read_text())
    for path in wanted:
        path.write_text("old")
    (folder.root / WRAPPER).chmod(0o644)
    before = (folder.root / WRAPPER).open()
    said = upgrade_without_baselines(folder)
    assert "Wrote config/dev.yaml" in said
    assert "Wrote headwater\n" in said
    assert (folder.config / "dev.yaml").read_text() == dev
    assert {path: path.read_text() for path in wanted} == wanted
    assert (folder.root / WRAPPER).stat().st_mode & 0o111
    # Who runs the old script reads the old one.
    assert before.read() == "old"
    after = contents(folder.root)
    assert "All files fit this release already" in upgrade_without_baselines(folder)
    assert contents(folder.root) == after
    assert contents(folder.root / ".git") == index


def test_a_file_that_cannot_be_converted_leaves_all_as_it_was(tmp_path: Path, checkout: Callable[[str], Path]) -> None:
    source = checkout(SECOND)
    folder = made(tmp_path, source)
    for name in ("dev", "prod"):
        (folder.config / f"{name}.yaml").write_text((source / "config" / f"{name}.yaml").read_text())
    path = folder.config / "prod.yaml"
    path.write_text(path.read_text().replace("retain: true", "retain: false"))
    before = contents(folder.root)
    with pytest.raises(UserError, match=r"prod\.yaml: data\.retain: found False, expected true in prod"):
        upgrade(folder)
    assert contents(folder.root) == before


def former_folder(tmp_path: Path, source: Path) -> LakeFolder:
    """A lake folder with the environments and contracts of a checkout as they were."""
    folder = made(tmp_path, source)
    shutil.rmtree(folder.baselines)
    for part in ("config", "contracts"):
        shutil.copytree(source / part, folder.root / part, dirs_exist_ok=True)
    for path in of_release(folder.root):
        path.write_text("old")
    return folder


def test_an_interrupted_upgrade_ends_as_one_that_was_not(
    tmp_path: Path, checkout: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = checkout(FIRST)
    (source / "config" / "prod.yaml").unlink()
    folder = former_folder(tmp_path, source)
    for path in folder.root.glob("schemas/*"):
        path.write_text(of_release(folder.root)[path])
    former = tmp_path / "before"
    shutil.copytree(folder.root, former)
    sentences = [line for line in upgrade(folder).splitlines() if line.startswith(("dev, stage", "Steps that you do"))]
    assert len(sentences) == 2
    whole = contents(folder.root)
    number = sum(contents(former)[name] != text for name, text in whole.items())
    assert number == 4
    replace = Path.replace
    for stop in range(number):
        shutil.rmtree(folder.root)
        shutil.copytree(former, folder.root)
        done: list[Path] = []

        def stopped(path: Path, target: Path, stop: int = stop, done: list[Path] = done) -> Path:
            if len(done) == stop:
                raise KeyboardInterrupt
            done.append(target)
            return replace(path, target)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", stopped)
            said = CliRunner().invoke(app, ["upgrade", "--folder", str(folder.root)]).output
        assert len(done) == stop
        assert [line for line in said.splitlines() if line in sentences] == sentences
        upgrade(folder)
        assert contents(folder.root) == whole, stop


@pytest.mark.parametrize("kind", ["folder", "bytes"])
@pytest.mark.parametrize("name", ["headwater", "schemas/contract.schema.json"])
def test_what_is_in_the_way_of_the_releases_files_is_met_first(
    tmp_path: Path, checkout: Callable[[str], Path], kind: str, name: str
) -> None:
    folder = former_folder(tmp_path, checkout(SECOND))
    path = folder.root / name
    before = contents(folder.root)
    if kind == "bytes":
        path.write_bytes(b"\xff\xfe")
        assert f"Wrote {name}" in upgrade(folder)
        assert path.read_text() == of_release(folder.root)[path]
        return
    path.unlink()
    path.mkdir()
    with pytest.raises(UserError, match=rf"{path}: found Is a directory, expected a file that can be read"):
        upgrade(folder)
    assert contents(folder.root) == {each: text for each, text in before.items() if each != name}


def test_line_ends_of_files_that_stay_are_kept(tmp_path: Path, checkout: Callable[[str], Path]) -> None:
    folder = made(tmp_path, checkout(SECOND))
    path = folder.contracts / "orders.yaml"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    before = path.read_bytes()
    assert "All files fit this release already" in upgrade_without_baselines(folder)
    assert path.read_bytes() == before


def test_pages_are_named_as_they_are_found(
    tmp_path: Path, checkout: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = checkout(FIRST)
    folder = former_folder(tmp_path, source)
    monkeypatch.chdir(folder.root)
    (source / "database" / "1_schema.sql").write_text("SELECT 1;\n")
    for said in (upgrade(folder), init(tmp_path, source, name="second").output):
        assert f"Steps that you do yourself after 0.1.0: {ROOT}/docs/how-to/upgrade.md#from-010\n" in said
    assert f"({ROOT}/docs/how-to/database-files.md)" in said


@pytest.mark.parametrize(("release", "name"), ENVIRONMENTS)
def test_comments_lead_where_a_lake_folder_has_something(tmp_path: Path, release: str, name: str) -> None:
    after = convert(file_of(release, tmp_path, name), name)
    assert f"`./headwater environment show --env {name}` prints every field.\n" in after
    assert "make " not in after
    assert "docs/" not in after


def test_upgrade_names_the_other_releases_in_the_cache(
    tmp_path: Path, checkout: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made(tmp_path, checkout(SECOND))
    assert "Other releases" not in upgrade_without_baselines(folder)
    runs, other = (tmp_path / "cache" / (digit * 40) for digit in "12")
    for path in (runs, other, tmp_path / "cache" / f".{'3' * 40}.partial"):
        path.mkdir(parents=True)
    monkeypatch.setattr("headwater.commands.upgrade.ROOT", runs)
    said = upgrade_without_baselines(folder)
    assert f"no running local AWS uses:\n  {other}\n" in said
    assert str(runs) not in said
    other.rmdir()
    assert "Other releases" not in upgrade_without_baselines(folder)


def test_an_older_script_leads_to_the_verb_by_two_hyphens(tmp_path: Path, checkout: Callable[[str], Path]) -> None:
    folder = made(tmp_path, checkout(SECOND))
    folder.baselines.rename(folder.root / "elsewhere")
    (folder.root / WRAPPER).write_text("old")
    arguments = ["--", "upgrade", "--folder", str(folder.root)]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    assert "Wrote headwater\n" in done.output


def test_headwaters_own_clone_is_not_upgraded() -> None:
    with pytest.raises(UserError, match="Headwater's own clone, expected a lake folder"):
        upgrade(EXAMPLE)
