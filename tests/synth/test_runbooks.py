"""Each alarm leads to a page that says what it means, how to look, how to mend it and how to know that it is mended."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, get_args

import pytest

from headwater.operations.state import Runbook
from headwater.paths import ROOT
from tests.faults import FAULTS

if TYPE_CHECKING:
    from tests.synth.conftest import Synthesized

RUNBOOKS = ROOT / "docs" / "runbooks"
# Told by `headwater status` alone.
WITHOUT_ALARM = {"catalog.md"}
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
        ("TABLE", r"(freshness|writer|quarantine|unfit|iterator-age|replication-age|replication-failed|differs)-.+"),
    ):
        if found := re.fullmatch(pattern, alarm):
            return f"{found.group(1)}-{place}"
    return alarm


def test_each_alarm_names_its_page_and_the_index_the_topic_of_each(dev: Synthesized) -> None:
    index: dict[str, tuple[str, str]] = {}
    for line in (RUNBOOKS / "README.md").read_text().splitlines():
        if line.startswith("| `") and ("| urgent |" in line or "| notice |" in line):
            names, topic, _, page = (cell.strip() for cell in line.strip("|").split("|"))
            linked = re.search(r"\((\S+\.md)\)", page)
            assert linked is not None
            index |= dict.fromkeys(re.findall(r"`([^`]+)`", names), (topic, linked.group(1)))
    found = {}
    for name, alarm in alarms(dev).items():
        named = re.search(r"Runbook: docs/runbooks/(\S+\.md)$", alarm["AlarmDescription"])
        assert named is not None, name
        (action,), (ended,) = alarm["AlarmActions"], alarm["OKActions"]
        assert action == ended
        found[kind(name, dev)] = ("urgent" if "Urgent" in action["Ref"] else "notice", named.group(1))
    assert found == index
    assert {path.name for path in PAGES} == {page for _, page in index.values()} | WITHOUT_ALARM


def test_every_alarm_is_raised_by_a_fault_of_the_drill_and_names_the_page_that_is_seen_there(dev: Synthesized) -> None:
    drilled = {kind(name, dev): page for fault in FAULTS.values() for name, page in fault.alarms.items()}
    named = {}
    for name, alarm in alarms(dev).items():
        page = re.search(r"Runbook: docs/runbooks/(\S+)\.md$", alarm["AlarmDescription"])
        assert page is not None, name
        named[kind(name, dev)] = page.group(1)
    assert drilled == named
    of_local = {name for fault in FAULTS.values() for name in fault.alarms}
    assert {name.replace("headwater-local-", "headwater-dev-") for name in of_local} <= set(alarms(dev))


def test_each_page_is_where_a_fault_of_the_drill_leads() -> None:
    assert {fault.page for fault in FAULTS.values()} == {path.stem for path in PAGES}


def test_what_status_finds_has_its_page() -> None:
    assert set(get_args(Runbook)) <= {path.stem for path in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_a_page_says_how_to_look_to_mend_and_to_know_that_it_is_mended(page: Any, dev: Synthesized) -> None:
    text = page.read_text()
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert headings[:3] == ["Look", "Mend", "Mended when"]
    assert text.startswith("# Alarm") or page.name in WITHOUT_ALARM
    meaning = text.split("\n## Look")[0].split("\n", 1)[1]
    assert len(meaning.split()) > 15


@pytest.mark.parametrize("page", [*PAGES, RUNBOOKS / "README.md"], ids=lambda path: path.stem)
def test_what_a_page_names_is_there(page: Any, dev: Synthesized) -> None:
    text = page.read_text().replace("ENV", "dev")
    groups = {
        name
        for part in dev.parts()
        for group in dev.resources("AWS::Logs::LogGroup", part).values()
        if isinstance(name := group["Properties"].get("LogGroupName"), str)
    }
    for named in re.findall(r"`?(/(?:headwater|aws)/[\w/-]+\w)`?", text):
        assert named in groups or any(group.startswith(f"{named}/") for group in [*groups, "/headwater/dev/glue/"]), (
            named
        )
    known = {kind(name, dev) for name in alarms(dev)} | set(alarms(dev))
    for name in re.findall(r"alarms? `([^`]+)`", text):
        assert name in known, name
    for setting in re.findall(r"`((?:connect|emr|glue|key_value|lake|monitoring|stream)\.\w+)", text):
        section, _, field = setting.partition(".")
        assert hasattr(getattr(dev.environment, section), field), setting


def test_people_are_told_of_failures_in_words(dev: Synthesized) -> None:
    rules = dev.resources("AWS::Events::Rule", "monitoring").values()
    for rule in rules:
        (target,) = rule["Properties"]["Targets"]
        template = target["InputTransformer"]["InputTemplate"]
        assert template.startswith('"Headwater dev: '), template
        page = re.search(r' Runbook: (docs/runbooks/\S+\.md)"$', template)
        assert page is not None, template
        assert (ROOT / page.group(1)).exists()
