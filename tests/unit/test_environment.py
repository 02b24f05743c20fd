import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from typer.testing import CliRunner

from headwater.cli import app
from headwater.environment import model as environment
from headwater.environment.defaults import complete, leaves, words
from headwater.environment.defaults import fields as model_fields
from headwater.environment.model import SECTIONS, Environment, ExistingDatabase, ExistingTables
from headwater.environment.rules import read_environment, read_with_origins
from headwater.errors import UserError
from headwater.lake_folder import EXAMPLE
from headwater.paths import ROOT
from tests.lake_folders import lake_folder


def write(folder: Path, document: Any, name: str = "dev") -> Path:
    """Write environment ``name`` into `folder`; returns the folder."""
    # Hundreds of tests write one: libyaml takes a tenth of the time that Python takes.
    (folder / f"{name}.yaml").write_text(yaml.dump(document, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper)))
    return folder


def changed(folder: Path, field: str, value: Any, name: str = "dev") -> Path:
    """Write environment ``name`` into `folder` with one field (``part.field``) changed; returns the folder."""
    document = yaml.safe_load((EXAMPLE.config / f"{name}.yaml").read_text())
    *parts, last = field.split(".")
    target = document
    for part in parts:
        target = target.setdefault(part, {})
    target[last] = value
    return write(folder, document, name)


@pytest.mark.parametrize("name", ["dev", "local", "prod", "stage"])
def test_the_projects_environments_load(name: str) -> None:
    assert read_environment(name, EXAMPLE.config).name == name
    assert name in environment.names(EXAMPLE.config)


def test_only_dev_and_local_delete_their_data() -> None:
    deleting = [
        name for name in environment.names(EXAMPLE.config) if read_environment(name, EXAMPLE.config).deletes_data
    ]
    assert deleting == ["dev", "local"]


@pytest.mark.parametrize(("name", "most"), [("dev", 12), ("prod", 25)])
def test_a_shipped_file_states_only_what_differs(name: str, most: int) -> None:
    text = (EXAMPLE.config / f"{name}.yaml").read_text()
    assert len(text.splitlines()) <= most
    environment, origins = read_with_origins(name, EXAMPLE.config)
    values = dict(leaves(environment.document()))
    stated = [field for field, _ in leaves(yaml.safe_load(text))]
    for field in set(stated) - {"size"}:
        document = yaml.safe_load(text)
        *parts, last = field.split(".")
        section = document
        for part in parts:
            section = section[part]
        del section[last]
        assert dict(leaves(complete(document, Environment, name=name)[0])).get(field) != values[field], field
    assert [field for field in values if origins[field].source == "file"] == [
        field for field in values if field in stated
    ]


MINIMAL = {"region": "eu-central-1", "lake": {"format": 1}}


def test_a_small_environment_keeps_its_data_unless_both_fields_say_otherwise(tmp_path: Path) -> None:
    bound = MINIMAL | {"account": "111122223333", "monitoring": {"emails": ["me@example.com"]}}
    kept = read_environment("trial", write(tmp_path, bound, "trial"))
    assert (kept.name, kept.size, kept.data.retain, kept.deletes_data) == ("trial", "small", True, False)
    assert (kept.postgresql.emr.market, kept.postgresql.network.endpoint_zones) == ("on-demand", "all")
    for data, deletes in (
        ({"retain": False}, False),
        ({"retain": False, "delete_with_stacks_of": "trial"}, True),
    ):
        read = read_environment("trial", write(tmp_path, bound | {"data": data}, "trial"))
        assert read.deletes_data is deletes
    with pytest.raises(UserError, match=r"account: found None \(its default\), expected 12 digits in quotes if data"):
        read_environment("trial", write(tmp_path, MINIMAL, "trial"))


@pytest.mark.parametrize(("size", "zones"), [("small", "ab"), ("medium", "abc"), ("large", "abc")])
def test_one_word_decides_sizes_and_zones(tmp_path: Path, size: str, zones: str) -> None:
    document = MINIMAL | {"size": size, "region": "eu-west-1", "data": {"retain": False}}
    read = read_environment("trial", write(tmp_path, document, "trial"))
    assert read.availability_zones == tuple(f"eu-west-1{zone}" for zone in zones)
    assert read.postgresql.emr.market == "on-demand"
    assert read.postgresql.emr.core_nodes == {"small": 0, "medium": 2, "large": 3}[size]
    assert read.monitoring.monthly_budget_usd == {"small": 1500, "medium": 3500, "large": 6000}[size]


@pytest.mark.parametrize(
    ("field", "value", "follows", "followed"),
    [
        ("network.nat", "gateway", "network.nat_instance_type", None),
        ("emr.primary_type", "r7i.xlarge", "emr.core_type", "r7i.xlarge"),
        ("data", {"retain": False}, "network.endpoint_zones", "first"),
    ],
)
def test_a_default_follows_the_field_that_decides_it(
    tmp_path: Path, field: str, value: Any, follows: str, followed: Any
) -> None:
    read = read_environment("dev", changed(tmp_path, field, value))
    assert dict(leaves(read.document()))[follows] == followed


def test_every_default_has_a_reason_in_one_sentence() -> None:
    def reasons(struct: type[msgspec.Struct]) -> Iterator[str]:
        for name, field in model_fields(struct).items():
            yield from [default.reason or name for default in (field.default, field.default_kind) if default]
            for inner in field.structs:
                yield from reasons(inner)

    said = list(reasons(Environment))
    assert len(said) > 75
    assert [reason for reason in said if " " not in reason or reason.endswith(".") or len(reason) > 110] == []


def show(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["environment", "show", *arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


@pytest.mark.parametrize("name", ["dev", "local", "prod", "stage"])
def test_every_field_is_shown_with_its_value_and_origin(name: str) -> None:
    whole = dict(leaves(read_environment(name, EXAMPLE.config).document()))
    shown = json.loads(show("--env", name, "--json"))
    assert {field: entry["value"] for field, entry in shown.items()} == whole
    lines = [re.split(" {2,}", line) for line in show("--env", name).splitlines()]
    assert [field for field, *_ in lines] == list(whole)
    for (field, value, origin), entry in zip(lines, shown.values(), strict=True):
        assert value == words(whole[field])
        assert origin == ": ".join(filter(None, (entry["from"], entry["reason"])))
    stated = {field for field, _ in leaves(yaml.safe_load((EXAMPLE.config / f"{name}.yaml").read_text()))}
    assert {field for field, entry in shown.items() if entry["from"] == "file"} == stated
    sizes = {"dev": "small", "local": "small", "stage": "medium", "prod": "large"}
    assert {entry["from"] for entry in shown.values()} == {"file", "default", f"size {sizes[name]}"}


def test_existing_sources_are_shown_by_their_own_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(lake_folder(tmp_path / "lake", config=existing(tmp_path)).root)
    shown = json.loads(show("--env", "dev", "--json"))
    assert shown["database.peering.vpc"]["from"] == shown["key_value.tables"]["from"] == "file"
    assert "database.engine_version" not in shown
    assert shown["bi"] == {"value": None, "from": "default", "reason": shown["bi"]["reason"]}


@pytest.mark.parametrize("source", SECTIONS)
def test_sections_of_a_source_may_be_null_together(tmp_path: Path, source: str) -> None:
    document = yaml.safe_load((EXAMPLE.config / "dev.yaml").read_text())
    read = read_environment("dev", write(tmp_path, {**document, **dict.fromkeys(SECTIONS[source])}))
    assert not read.describes(source)
    (other,) = SECTIONS.keys() - {source}
    assert read.describes(other)
    with pytest.raises(UserError, match=rf"^config/dev\.yaml: {SECTIONS[source][0]}: found None, expected a mapping"):
        getattr(read, source)


@pytest.mark.parametrize("section", [section for sections in SECTIONS.values() for section in sections])
def test_a_single_section_of_a_source_that_is_null_is_refused(tmp_path: Path, section: str) -> None:
    (sections,) = [sections for sections in SECTIONS.values() if section in sections]
    others = ", ".join(other for other in sections if other != section)
    message = rf"dev\.yaml: {section}: found None, expected a mapping beside {others}; or null for all of"
    with pytest.raises(UserError, match=message):
        read_environment("dev", changed(tmp_path, section, None))


def test_without_postgresql_only_the_job_bounds_freshness(tmp_path: Path) -> None:
    document = yaml.safe_load((EXAMPLE.config / "dev.yaml").read_text()) | dict.fromkeys(SECTIONS["postgresql"])
    document["monitoring"] = {"freshness_seconds": 60}
    assert read_environment("dev", write(tmp_path, document)).monitoring.freshness_seconds == 60
    document["monitoring"]["freshness_seconds"] = 59
    with pytest.raises(UserError, match=r"seconds: found 59, expected 60 or more: twice glue\.window_seconds$"):
        read_environment("dev", write(tmp_path, document))


def test_an_unknown_environment_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UserError, match="found 'test', expected one of dev, local, prod, stage"):
        read_environment("test", EXAMPLE.config)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("sizee", 1, r"dev\.yaml: sizee: found an unknown field, expected size or another of name, account,"),
        ("emr.cores", 1, r"dev\.yaml: emr\.cores: found an unknown field, expected core_nodes or another of release,"),
        ("emr", "big", r"emr: found 'big', expected a mapping with release, "),
        ("name", "prod", r"name: found 'prod', expected dev"),
        ("account", 123456789012, r"account: found 123456789012, expected 12 digits in quotes, or null"),
        ("account", "1234", r"account: found '1234', expected 12 digits"),
        ("region", "Frankfurt", r"region: found 'Frankfurt', expected a region such as eu-central-1"),
        (
            "availability_zones",
            ["eu-central-1a"],
            r"availability_zones: .* expected two or three different zones of eu-central-1a",
        ),
        (
            "availability_zones",
            ["eu-central-1a", "us-east-1a"],
            r"expected two or three different zones of eu-central-1a",
        ),
        ("availability_zones", ["eu-central-1a", "eu-central-1a"], r"expected two or three different zones"),
        ("log_days", 8, r"log_days: found 8, expected 1, 3"),
        ("data.retain", 1, r"data\.retain: found 1, expected true or false"),
        ("data.retain", True, r"delete_with_stacks_of: found 'dev', expected null if data\.retain is true"),
        ("data.delete_with_stacks_of", "prod", r"delete_with_stacks_of: found 'prod', expected dev, or null"),
        ("network.cidr", "8.8.0.0/16", r"network\.cidr: found '8\.8\.0\.0/16', expected an IPv4 network"),
        (
            "network.cidr",
            "198.18.0.0/16",
            r"network\.cidr: .* within 10\.0\.0\.0/8, 172\.16\.0\.0/12, and apart from 10",
        ),
        (
            "network.cidr",
            "192.168.0.0/16",
            r"cidr: .* apart from 10\.99.* 192\.168\.0\.0/16, which MSK Connect does not reach",
        ),
        ("network.cidr", "10.99.64.0/18", r"network\.cidr: found '10\.99\.64\.0/18', .* which MSK Connect does not"),
        ("network.cidr", "10.40.0.0/255.255.0.0", r"cidr: found '10\.40\.0\.0/255.* such as 10\.40\.0\.0/16, within"),
        ("network.interface_endpoints", ["glue", "monitoring"], r"expected glue, monitoring, secretsmanager, and any"),
        ("monitoring.slot_lag_mib", 8192, r"monitoring\.slot_lag_mib: found 8192, expected at most wal_mib \(4096\)"),
        ("network.cidr", "10.0.0.0/24", r"network\.cidr: .* of /16 to /18"),
        ("network.nat", "none", r"network\.nat: found 'none', expected gateway or instance"),
        (
            "network",
            {"nat": "gateway", "nat_instance_type": "t4g.nano"},
            r"nat_instance_type: found 't4g\.nano', expected null beside network\.nat: gateway",
        ),
        ("network.nat_instance_type", None, r"nat_instance_type: found None, expected an instance type"),
        (
            "network.interface_endpoints",
            ["s3"],
            r"network\.interface_endpoints\[0\]: found 's3', expected ec2messages, glue, ",
        ),
        ("database.engine_version", 16.9, r"engine_version: found 16\.9, expected a text in quotes"),
        ("database.capacity_min", 0, r"capacity_min: found 0, expected 0\.5 to 256, in steps of 0\.5"),
        (
            "database.capacity_min",
            8,
            r"capacity_max: found 2\.0 \(its default for size small\), expected capacity_min \(8\.0\) or more",
        ),
        ("database.backup_days", 0, r"backup_days: found 0, expected 1 to 35"),
        ("database.readers", 16, r"readers: found 16, expected 0 to 15"),
        ("database.capacity_max", 8.3, r"capacity_max: found 8\.3, expected 1 to 256, in steps of 0\.5"),
        ("connect.sink_workers", 2, r"sink_workers: found 2, expected at most sink_tasks \(1\)"),
        ("connect.sink_tasks", 2, r"sink_tasks: found 2, expected at most stream\.partitions \(1\)"),
        ("stream.volume_gib", 16385, r"volume_gib: found 16385, expected 1 to 16384"),
        ("emr.volume_gib", 31, r"volume_gib: found 31, expected 32 to 16384"),
        ("stream.partitions", 0, r"stream\.partitions: found 0, expected 1 or more"),
        ("connect.source_units", 3, r"connect\.source_units: found 3, expected 1, 2, 4 or 8"),
        (
            "key_value.stream_shards",
            0,
            r"stream_shards: found 0, expected a whole number, 1 or more, or null for a stream on demand",
        ),
        ("key_value.stream_shards", "1", r"stream_shards: found '1', expected a whole number, 1 or more, or null"),
        ("key_value.stream_shards", True, r"stream_shards: found True, expected a whole number, 1 or more, or null"),
        ("key_value.stream_retention_hours", 12, r"stream_retention_hours: found 12, expected 24 to 8760"),
        ("glue.version", 5.1, r"glue\.version: found 5\.1, expected a text in quotes"),
        ("glue.workers", 1, r"glue\.workers: found 1, expected 2 or more"),
        ("glue.maintenance_window", "Sunday:3", r"maintenance_window: found 'Sunday:3', expected a day and an hour"),
        ("glue.maintenance_window", "Sun:24", r"maintenance_window: found 'Sun:24', expected a day and an hour"),
        ("glue.epoch", 0, r"glue\.epoch: found 0, expected 1 to 9999"),
        ("glue.window_seconds", 61, r"glue\.window_seconds: found 61, expected 1 to 60"),
        ("emr.market", "reserved", r"emr\.market: found 'reserved', expected on-demand or spot"),
        ("emr.web_interfaces", "yes", r"emr\.web_interfaces: found 'yes', expected true or false"),
        ("emr.idle_seconds_max", 31, r"emr\.idle_seconds_max: found 31, expected .*30"),
        ("connect.flush_ms", 31_000, r"flush_ms: found 31000, expected at most 60 seconds together with emr\.idle_sec"),
        (
            "monitoring.iterator_age_seconds",
            86400,
            r"iterator_age_seconds: found 86400, expected less than key_value\.stream_retention_hours \(86400 sec",
        ),
        (
            "monitoring.emails",
            "me@example.com",
            r"monitoring\.emails: found 'me@example\.com', expected a list of texts",
        ),
        (
            "lake.query_principals",
            ["arn:aws:iam::111122223333:role/*"],
            r"lake\.query_principals\[0\]: found .*, expected the ARN of an IAM role or user",
        ),
        ("lake.query_principals", ["arn:aws:iam::111122223333:role/a"] * 2, "expected different ARNs"),
        ("monitoring.emails", ["me"], r"monitoring\.emails\[0\]: found 'me', expected an address such as oncall@"),
        ("monitoring.emails", ["a@b.example", "a@b.example"], r"monitoring\.emails: .*, expected different addresses"),
        ("monitoring.runbooks", "https://a.example", r"monitoring\.runbooks: found .*, expected .* ends with /"),
        ("monitoring.runbooks", 'https://a.example/"/', r"monitoring\.runbooks: found .*, expected an address"),
        ("monitoring.monthly_budget_usd", 0, r"monthly_budget_usd: found 0, expected 1 or more"),
        ("lake.tombstone_days", 3, r"tombstone_days: found 3, expected more than stream\.retention_hours \(72 hours\)"),
        (
            "key_value.stream_retention_hours",
            168,
            r"days: found 7 \(its default for size small\), expected more than key_value\.stream_retention_hours \(168",
        ),
        ("lake.file_version_hours", 73, r"file_version_hours: found 73, expected at most landing_days \(72 hours\)"),
        ("lake.landing_days", 8, r"tombstone_days: found 7 \(its default .*\), expected landing_days \(8\) or more"),
        ("lake.format", 2, r"lake\.format: found 2, expected at most 1, .* use the release that knows 2$"),
        ("lake.format", "1", r"lake\.format: found '1', expected a whole number, 1 or more$"),
        ("lake.max_unfit_share", 1.5, r"max_unfit_share: found 1.5, expected 0 to 1"),
        ("monitoring.quarantined_records", -1, r"quarantined_records: found -1, expected 0 or more"),
        ("database", {"kind": None}, r"dev\.yaml: database\.kind: found None, expected aurora or existing"),
        ("database.kind", "rds", r"database\.kind: found 'rds', expected aurora or existing"),
        ("database", {"kind": "existing"}, r"database\.host: found nothing, expected a host name"),
        ("database", "big", r"database: found 'big', expected a mapping with kind, .* or a mapping with kind, host, "),
        ("database.host", "db", r"database\.host: found an unknown field, expected kind, name, engine_version, "),
        ("key_value", {"kind": 1}, r"dev\.yaml: key_value\.kind: found 1, expected created or existing"),
        ("key_value.tables", [], r"key_value\.tables: found an unknown field, expected kind, stream_shards, "),
        ("bi", "yes", r"bi: found 'yes', expected a mapping with principal, refresh, or null"),
        ("bi", {"user": "me"}, r"bi\.user: found an unknown field, expected principal"),
        ("bi", {"principal": "me"}, r"bi\.principal: found 'me', expected the ARN of a QuickSight user or group"),
    ],
)
def test_a_wrong_value_is_refused_by_file_field_found_and_expected(
    tmp_path: Path, field: str, value: Any, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        read_environment("dev", changed(tmp_path, field, value))


DATABASE = {
    "kind": "existing",
    "host": "rental.example.com",
    "port": 5432,
    "name": "rental",
    "secret": "rental/headwater-cdc",
    "secret_key": None,
    "root_certificate": None,
    "cidr": "10.60.0.0/16",
    "peering": {
        "vpc": "vpc-1a2b3c4d",
        "route_tables": ["rtb-1a2b3c4d", "rtb-2b3c4d5e"],
        "security_group": "sg-1a2b3c4d",
    },
    "monitored": {"kind": "instance", "identifier": "rental"},
}
ACCOUNTS = {"contract": "accounts", "table": "Accounts", "stream": "account-changes", "stream_key": None}
ORDERS = {"contract": "orders", "table": "Orders", "stream": "order-changes", "stream_key": None}
KEY_VALUE = {"kind": "existing", "stream_retention_hours": 24, "tables": [ACCOUNTS, ORDERS]}
KEY = "arn:aws:kms:eu-central-1:111122223333:key/1a2b"


def existing(folder: Path, field: str = "name", value: Any = "dev") -> Path:
    """Write dev with an existing database and tables into the folder, with one field changed."""
    document = yaml.safe_load((EXAMPLE.config / "dev.yaml").read_text())
    document |= copy.deepcopy({"database": DATABASE, "key_value": KEY_VALUE})
    *parents, last = field.split(".")
    target = document
    for part in parents:
        target = target[part]
    target[last] = value
    return write(folder, document)


def test_a_database_and_tables_that_are_there_can_be_named(tmp_path: Path) -> None:
    settings = read_environment("dev", existing(tmp_path))
    assert isinstance(settings.database, ExistingDatabase)
    assert settings.database.peering is not None
    assert isinstance(settings.key_value, ExistingTables)
    assert [table.stream for table in settings.key_value.tables] == ["account-changes", "order-changes"]
    read_environment("dev", existing(tmp_path, "database.peering", None))
    read_environment("dev", existing(tmp_path, "database.cidr", "203.0.113.7/32"))
    read_environment("dev", existing(tmp_path, "database.monitored", None))
    read_environment("dev", existing(tmp_path, "database.secret_key", KEY))


def test_the_how_tos_example_is_taken(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "how-to" / "existing-sources.md").read_text()
    (block,) = re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    document = yaml.safe_load((EXAMPLE.config / "dev.yaml").read_text()) | yaml.safe_load(block)
    (tmp_path / "dev.yaml").write_text(yaml.safe_dump(document))
    settings = read_environment("dev", tmp_path)
    assert isinstance(settings.database, ExistingDatabase)
    assert isinstance(settings.key_value, ExistingTables)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("database.host", "rental example", r"database\.host: found 'rental example', expected a host name"),
        ("database.port", 0, r"database\.port: found 0, expected 1 to 65535"),
        ("database.name", "", r"database\.name: found '', expected a name"),
        (
            "database.secret",
            "arn:aws:secretsmanager:eu-central-1:111122223333:secret:rental",
            r"database\.secret: found 'arn:.*', expected the name of a secret, not its ARN",
        ),
        ("database.secret_key", "alias/rental", r"secret_key: found 'alias/rental', expected the ARN of a KMS key, or"),
        (
            "database.secret_key",
            KEY.replace("central", "west"),
            r"secret_key: found .*, expected a key of eu-central-1",
        ),
        ("database.cidr", "10.60.0.7/16", r"cidr: found '10\.60\.0\.7/16', expected an IPv4 network such as"),
        ("database.cidr", "10.60.0.0", r"cidr: found '10\.60\.0\.0', expected an IPv4 network such as 10\.60\.0\.0/16"),
        ("database.cidr", "10.60.0.0/255.255.0.0", r"database\.cidr: .* expected an IPv4 network such as 10\.60\.0"),
        ("database.cidr", "10.40.128.0/24", r"cidr: .* apart from network\.cidr \(10\.40\.0\.0/16\), and from 10\.99"),
        ("database.cidr", "0.0.0.0/0", r"database\.cidr: found '0\.0\.0\.0/0', expected an IPv4 network such"),
        (
            "database.cidr",
            "172.21.5.0/24",
            r"cidr: .* 172\.21\.0\.0/16, 192\.168\.0\.0/16, which MSK Connect does not reach",
        ),
        ("database.peering", {}, r"database\.peering\.vpc: found nothing, expected the id of a VPC"),
        ("database.peering.vpc", "rental", r"peering\.vpc: found 'rental', expected the id of a VPC"),
        ("database.peering.route_tables", [], r"route_tables: found \[\], expected one or more ids of route tables"),
        (
            "database.peering.route_tables",
            ["rtb-1a2b3c4d"] * 2,
            r"route_tables: found .*, expected different route tables",
        ),
        (
            "database.peering.route_tables",
            ["main"],
            r"route_tables\[0\]: found 'main', expected the id of a route table",
        ),
        ("database.peering.security_group", "default", r"security_group: found 'default', expected the id of a secur"),
        ("database.monitored.kind", "server", r"monitored\.kind: found 'server', expected cluster or instance"),
        ("database.engine_version", "16.9", r"engine_version: found an unknown field, expected kind, host, port, name"),
        (
            "key_value.tables",
            [{**ACCOUNTS, "table": "a/b"}],
            r"tables\[0\]\.table: found 'a/b', expected the name of a",
        ),
        (
            "key_value.tables",
            [{**ACCOUNTS, "stream": ""}],
            r"tables\[0\]\.stream: found '', expected the name of a Kin",
        ),
        (
            "key_value.tables",
            [{"contract": "accounts"}],
            r"tables\[0\]\.table: found nothing, expected the name of a Dy",
        ),
        ("key_value.tables", [ACCOUNTS, ACCOUNTS], r"key_value\.tables: found .*, expected each contract once"),
        (
            "key_value.tables",
            [ACCOUNTS, {**ORDERS, "stream": "account-changes"}],
            r"key_value\.tables: found .*, expected each stream once",
        ),
        (
            "key_value.tables",
            [{**ACCOUNTS, "stream_key": KEY.replace("central", "west")}],
            r"key_value\.tables: found .*, expected a key of eu-central-1 as stream_key of accounts",
        ),
        (
            "key_value.stream_retention_hours",
            168,
            r"days: found 7 \(its default .*\), expected more than key_value\.stream_ret",
        ),
        (
            "key_value.stream_shards",
            1,
            r"stream_shards: found an unknown field, expected kind, stream_retention_hours,",
        ),
    ],
)
def test_what_cannot_be_taken_is_refused(tmp_path: Path, field: str, value: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_environment("dev", existing(tmp_path, field, value))


def fields(document: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """The dotted path of every field."""
    for name, value in document.items():
        yield f"{prefix}{name}"
        if isinstance(value, dict):
            yield from fields(value, f"{prefix}{name}.")


@pytest.mark.parametrize("value", [[{}], {1: 2}, -1, ""])
@pytest.mark.parametrize(
    "field", [*fields({"database": DATABASE}), *fields({"key_value": {**KEY_VALUE, "tables": []}})]
)
def test_every_field_of_what_is_there_does_so_too(tmp_path: Path, field: str, value: Any) -> None:
    with pytest.raises(UserError, match=rf"dev\.yaml: {re.escape(field)}[^ ]*: found .+, expected \w+"):
        read_environment("dev", existing(tmp_path, field, value))


@pytest.mark.parametrize("value", [[{}], {1: 2}, -1, ""])
@pytest.mark.parametrize("field", list(fields(read_environment("dev", EXAMPLE.config).document())))
def test_every_field_refuses_what_makes_no_sense_and_says_what_does(tmp_path: Path, field: str, value: Any) -> None:
    with pytest.raises(UserError, match=rf"dev\.yaml: {re.escape(field)}[^ ]*: found .+, expected \w+"):
        read_environment("dev", changed(tmp_path, field, value))


@pytest.mark.parametrize(
    ("section", "field", "expected"),
    [
        ("", "region", "a region such as eu-central-1"),
        ("lake.", "format", "1 in a new file; for a file of release 0.1.0 or 0.2.0 run `headwater upgrade`"),
        ("bi.", "principal", "the ARN of a QuickSight user or group"),
        ("database.", "host", "a host name"),
    ],
)
def test_a_field_without_a_default_is_named_where_it_is_missing(
    tmp_path: Path, section: str, field: str, expected: str
) -> None:
    document = yaml.safe_load((EXAMPLE.config / "dev.yaml").read_text())
    document |= {"bi": {"principal": "", "refresh": None}, "database": copy.deepcopy(DATABASE)}
    document["database"] |= {"secret_key": None}
    if section != "bi.":
        del document["bi"]
    del (document[section.strip(".")] if section else document)[field]
    with pytest.raises(UserError, match=rf"dev\.yaml: {section}{field}: found nothing, expected {expected}"):
        read_environment("dev", write(tmp_path, document))


def test_a_quicksight_principal_of_another_account_is_refused(tmp_path: Path) -> None:
    bound = yaml.safe_load((EXAMPLE.config / "dev.yaml").read_text())
    bound["account"] = "123456789012"
    for account, good in (("123456789012", True), ("210987654321", False)):
        bound["bi"] = {"principal": f"arn:aws:quicksight:eu-central-1:{account}:user/default/someone", "refresh": None}
        (tmp_path / "dev.yaml").write_text(yaml.safe_dump(bound))
        if good:
            bi = read_environment("dev", tmp_path).bi
            assert bi is not None
            assert bi.principal == bound["bi"]["principal"]
        else:
            with pytest.raises(UserError, match=r"bi\.principal: .* of this account"):
                read_environment("dev", tmp_path)


def test_somebody_is_told_where_data_is_kept(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"monitoring\.emails: found \[\], expected an address if data\.retain is true"):
        read_environment("prod", changed(tmp_path, "monitoring.emails", [], "prod"))


def test_where_data_is_retained_the_account_is_named(tmp_path: Path) -> None:
    """Otherwise whatever credentials are at hand decide which account gets, or loses, production."""
    with pytest.raises(UserError, match=r"account: found None, expected 12 digits in quotes if data\.retain is true"):
        read_environment("prod", changed(tmp_path, "account", None, "prod"))


def test_prod_may_not_give_up_its_data(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"data\.retain: found False, expected true in prod"):
        read_environment("prod", changed(tmp_path, "data.retain", False, "prod"))


@pytest.mark.parametrize("content", ["", "- dev", "name: [dev"])
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "dev.yaml").write_text(content)
    with pytest.raises(UserError, match=r"dev\.yaml: (content: found|not YAML)"):
        read_environment("dev", tmp_path)


def test_a_file_that_ends_with_yml_is_refused(tmp_path: Path) -> None:
    folder = changed(tmp_path, "name", "dev")
    (folder / "test.yml").write_text("name: test")
    with pytest.raises(UserError, match=r"test\.yml: found the ending \.yml, expected \.yaml"):
        read_environment("dev", folder)
    with pytest.raises(UserError, match=r"test\.yml: found the ending \.yml, expected \.yaml"):
        environment.names(folder)


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [("emr.market", "spot", "on-demand"), ("network.endpoint_zones", "first", "all")],
)
def test_what_may_be_interrupted_is_refused_where_data_is_kept(
    tmp_path: Path, field: str, value: str, expected: str
) -> None:
    document = yaml.safe_load((EXAMPLE.config / "prod.yaml").read_text())
    part, _, name = field.partition(".")
    document[part] = {**document.get(part, {}), name: value}
    (tmp_path / "prod.yaml").write_text(yaml.safe_dump(document))
    with pytest.raises(UserError, match=rf"{field}: found '{value}', expected {expected} if data\.retain is true"):
        read_environment("prod", tmp_path)
