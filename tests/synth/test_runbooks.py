"""Each alarm leads to a page with its meaning, the search for its cause, the way to mend it, and the sign that it
worked."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, get_args

import pytest

from headwater.operations.state import Runbook
from headwater.paths import ROOT
from tests.faults import FAULTS
from tests.synth.deployed import made

if TYPE_CHECKING:
    from tests.synth.conftest import Synthesized

RUNBOOKS = ROOT / "docs" / "runbooks"
# Pages of alarms that none of the project's own contracts needs.
OF_OTHER_CONTRACTS = {"left-out.md", "unconfirmed-column.md"}
# Told by `headwater status` alone.
WITHOUT_ALARM = {"catalog.md"}
# Whose causes stand in no log group, and why.
WITHOUT_LOG = {
    "catalog": "Glue's catalog writes no log",
    "differs": "who compares prints where that runs, which is no part of the deployment",
    "replication": "neither DynamoDB's destination nor Kinesis writes a log",
}
# What writes into a log group of the pages: its code below these places. PostgreSQL's messages are its own.
WRITERS = {
    "connect/source": "connect/src/main",
    "connect/sink": "connect/src/main",
    "custom-resources/steps": "custom_resources/emr_step.py",
    "custom-resources/runs": "custom_resources/glue_run.py",
    "custom-resources/rolerotation": "custom_resources/rotation.py",
    "glue/headwater-ENV-role/ROLE/output": "headwater/lake",
    "glue/headwater-ENV-role/ROLE/error": "headwater/lake",
}
FILTER = re.compile(
    r"`(?P<group>/(?:headwater|aws)/[^`]+)`,\s(?:with\sthe\s)?filter\s`(?P<filter>[^`]+)`"
    r"|--log-group-name (?P<asked>/\S+) --filter-pattern '(?P<pattern>[^']+)'"
)
PAGES = sorted(path for path in RUNBOOKS.glob("*.md") if path.stem != "README")


def alarms(synthesized: Synthesized) -> dict[str, dict[str, Any]]:
    found = synthesized.resources("AWS::CloudWatch::Alarm", "monitoring").values()
    prefix = f"headwater-{synthesized.environment.name}-"
    return {each["Properties"]["AlarmName"].removeprefix(prefix): each["Properties"] for each in found}


def kind(alarm: str, synthesized: Synthesized) -> str:
    """An alarm's name as the index writes it: TABLE, TOPIC and CONNECTOR stand for what there are several of."""
    for place, pattern in (
        ("TOPIC", r"(consumer-lag)-.+"),
        ("CONNECTOR", r"(running|failed)-.+"),
        (
            "TABLE",
            r"(freshness|writer|quarantine|unfit|iterator-age|replication-age|replication-failed|differs|compared)-.+",
        ),
    ):
        if found := re.fullmatch(pattern, alarm):
            return f"{found.group(1)}-{place}"
    return alarm


def test_each_alarm_names_its_page_and_the_index_the_topic_of_each(all_parts: Synthesized) -> None:
    index: dict[str, tuple[str, str]] = {}
    for line in (RUNBOOKS / "README.md").read_text().splitlines():
        if line.startswith("| `") and ("| urgent |" in line or "| notice |" in line):
            names, topic, page = (cell.strip() for cell in line.strip("|").split("|"))
            linked = re.search(r"\((\S+\.md)\)", page)
            assert linked is not None
            index |= dict.fromkeys(re.findall(r"`([^`]+)`", names), (topic, linked.group(1)))
    found = {}
    for name, alarm in alarms(all_parts).items():
        named = re.search(r"Runbook: docs/runbooks/(\S+\.md)$", alarm["AlarmDescription"])
        assert named is not None, name
        (action,), (ended,) = alarm["AlarmActions"], alarm["OKActions"]
        assert action == ended
        found[kind(name, all_parts)] = ("urgent" if "Urgent" in action["Ref"] else "notice", named.group(1))
    assert found == {name: told for name, told in index.items() if told[1] not in OF_OTHER_CONTRACTS}
    assert {path.name for path in PAGES} == {page for _, page in index.values()} | WITHOUT_ALARM


def test_every_alarm_is_raised_by_a_fault_of_the_drill_and_names_the_page_that_is_seen_there(
    all_parts: Synthesized,
) -> None:
    drilled = {kind(name, all_parts): page for fault in FAULTS.values() for name, page in fault.alarms.items()}
    named = {}
    for name, alarm in alarms(all_parts).items():
        page = re.search(r"Runbook: docs/runbooks/(\S+)\.md$", alarm["AlarmDescription"])
        assert page is not None, name
        named[kind(name, all_parts)] = page.group(1)
    assert drilled == named
    of_local = {name for fault in FAULTS.values() for name in fault.alarms}
    assert {name.replace("headwater-local-", "headwater-dev-") for name in of_local} <= set(alarms(all_parts))


def test_each_page_is_where_a_fault_of_the_drill_leads() -> None:
    pages = {path.stem for path in PAGES if path.name not in OF_OTHER_CONTRACTS}
    assert {fault.page for fault in FAULTS.values()} == pages


def test_the_page_on_reliability_counts_the_faults_of_the_drill() -> None:
    assert f"| a part breaks, in {len(FAULTS)} ways |" in (ROOT / "docs" / "reliability.md").read_text()


def test_what_status_finds_has_its_page() -> None:
    assert set(get_args(Runbook)) <= {path.stem for path in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_a_page_says_how_to_look_to_mend_and_to_know_that_it_is_mended(page: Any, all_parts: Synthesized) -> None:
    text = page.read_text()
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert headings[:3] == ["Look", "Mend", "Mended when"]
    assert text.startswith("# Alarm") or page.name in WITHOUT_ALARM
    meaning = text.split("\n## Look")[0].split("\n", 1)[1]
    assert len(meaning.split()) > 15


@pytest.mark.parametrize("page", [*PAGES, RUNBOOKS / "README.md"], ids=lambda path: path.stem)
def test_what_a_page_names_is_there(page: Any, all_parts: Synthesized) -> None:
    text = page.read_text().replace("ENV", "dev")
    groups = log_groups(all_parts)
    for named in re.findall(r"`?(/(?:headwater|aws)/[\w/-]+\w)`?", text):
        assert named in groups or any(group.startswith(f"{named}/") for group in groups), named
    known = {kind(name, all_parts) for name in alarms(all_parts)} | set(alarms(all_parts))
    # The page that explains every field.
    fields = (ROOT / "docs" / "reference" / "environment.md").read_text()
    for name in re.findall(r"alarms? `([^`]+)`", text):
        assert name in known, name
    for setting in re.findall(r"`((?:connect|emr|glue|key_value|lake|monitoring|stream)\.\w+)", text):
        assert f"`{setting}`" in fields, setting


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_a_page_names_the_log_group_and_a_filter_of_what_is_written_there(page: Any, dev: Synthesized) -> None:
    found = [
        (told["group"] or told["asked"], told["filter"] or told["pattern"])
        for told in FILTER.finditer(page.read_text())
    ]
    assert bool(found) == (page.stem not in WITHOUT_LOG)
    for group, pattern in found:
        assert group.replace("ENV", "dev") in log_groups(dev)
        place = WRITERS.get(group.removeprefix("/headwater/ENV/"))
        if place is not None:
            written = sources(place)
            assert [said for said in needed(pattern) if said not in written] == [], (group, pattern)


def needed(pattern: str) -> list[str]:
    """The texts that a program's code must hold, so that a filter finds something in the program's log."""
    if not pattern.startswith("{"):
        return re.findall(r'"([^"]+)"', pattern)
    kinds = re.findall(r'\$\.event = "(\w+)"', pattern)
    return [*(f'"event": "{kind}"' for kind in kinds), *(f'"{name}":' for name in re.findall(r"\$\.(\w+)", pattern))]


def sources(place: str) -> str:
    path = ROOT / place
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.suffix in (".py", ".java")]
    return "\n".join(each.read_text() for each in sorted(files))


def log_groups(synthesized: Synthesized) -> set[str]:
    """The names of the log groups. In the names of Glue's groups, ROLE stands for the name of the job's role."""
    found = set()
    for group in synthesized.resources("AWS::Logs::LogGroup").values():
        name = group["Properties"].get("LogGroupName")
        if isinstance(name, dict):
            parts = [part if isinstance(part, str) else part["Ref"] for part in name["Fn::Join"][1]]
            parts = [re.sub("^Security.*", made(synthesized.stacks.glue_job).prefix, part) for part in parts]
            name = "".join(re.sub("^Role.*", "ROLE", part) for part in parts)
        found |= {name} - {None}
    return found


def test_people_are_told_of_failures_in_words(dev: Synthesized) -> None:
    rules = dev.resources("AWS::Events::Rule", "monitoring").values()
    for rule in rules:
        (target,) = rule["Properties"]["Targets"]
        template = target["InputTransformer"]["InputTemplate"]
        assert template.startswith('"Headwater dev: '), template
        page = re.search(r' Runbook: (docs/runbooks/\S+\.md)"$', template)
        assert page is not None, template
        assert (ROOT / page.group(1)).exists()
