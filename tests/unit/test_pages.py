"""Pages are found from their index and on the site, and their links lead somewhere."""

import re
from pathlib import Path

import pytest

from headwater.paths import ROOT

DOCS = ROOT / "docs"
INDEXED = ("decisions", "runbooks")
"""Folders with an index of their own."""
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
_TEST = re.compile(r"`(?:tests/)?(\w+/test_\w+\.py)::(test_\w+)`")
_LINK = re.compile(r"(?<!`)\[[^\]]*\]\(\s*([^)\s]+)\s*\)")


def test_the_index_names_every_page_of_the_documentation() -> None:
    named = set(_linked_files(DOCS / "README.md"))
    pages = {path for path in DOCS.rglob("*.md") if path.parent.name not in INDEXED and path != DOCS / "README.md"}
    assert pages - named == set()
    assert {DOCS / folder / "README.md" for folder in INDEXED} <= named


@pytest.mark.parametrize("folder", INDEXED)
def test_the_index_of_a_folder_names_every_page_in_it(folder: str) -> None:
    pages = set((DOCS / folder).glob("*.md")) - {DOCS / folder / "README.md"}
    assert pages - set(_linked_files(DOCS / folder / "README.md")) == set()


def test_the_site_has_every_page_once_in_the_order_of_its_index() -> None:
    shown = [ROOT / path for path in re.findall(r"^ +- (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)]
    assert sorted(shown) == PAGES
    for folder in (path for path in DOCS.iterdir() if path.is_dir()):
        index = folder / "README.md" if folder.name in INDEXED else DOCS / "README.md"
        ordered = [path for path in _linked_files(index) if path.parent == folder]
        assert [path for path in shown if path.parent == folder and path != index] == ordered, folder


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_list_has_an_empty_line_before_it(page: Path) -> None:
    """The site takes it for text otherwise, unlike the forge."""
    text = re.sub(r"```.*?```|<pre.*?</pre>", "", page.read_text(), flags=re.DOTALL)
    item = r" *(?:[-*]|\d+\.) "
    for paragraph in re.split(r"\n\s*\n|^#.*\n", text, flags=re.MULTILINE):
        assert re.match(item, paragraph) or not re.search(rf"^{item}", paragraph, re.MULTILINE), paragraph


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_within_the_repository_leads_to_a_file_and_its_heading(page: Path) -> None:
    for link in _links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.relative_to(ROOT)}: {link} leads nowhere"
        if anchor:
            assert anchor in _anchors(target), f"{page.relative_to(ROOT)}: {link} has no such heading"


def test_every_test_that_a_page_names_exists() -> None:
    named = {each for page in PAGES for each in _TEST.findall(page.read_text())}
    assert named
    assert [each for each in sorted(named) if f"def {each[1]}(" not in (ROOT / "tests" / each[0]).read_text()] == []


def test_no_page_has_a_gap_that_somebody_meant_to_fill() -> None:
    assert [str(page.relative_to(ROOT)) for page in PAGES if "TODO" in page.read_text()] == []


def _links(page: Path) -> list[str]:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    return [link for link in _LINK.findall(text) if not re.match(r"[a-z]+:", link)]


def _linked_files(page: Path) -> list[Path]:
    """The files that a page links to, in the order of their first links."""
    return list(dict.fromkeys((page.parent / link.partition("#")[0]).resolve() for link in _links(page)))


def _anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to a page's headings."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    headings = re.findall(r"^#+ +(.*)$", text, re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain}
