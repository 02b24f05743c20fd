"""Pages are found from their index, and their links lead somewhere."""

import re
from pathlib import Path

import pytest

from headwater.paths import ROOT

DOCS = ROOT / "docs"
INDEXED = ("decisions", "runbooks")
"""Folders with an index of their own."""
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
_LINK = re.compile(r"(?<!`)\[[^\]]*\]\(\s*([^)\s]+)\s*\)")


def test_the_index_names_every_page_of_the_documentation() -> None:
    named = _linked_files(DOCS / "README.md")
    pages = {path for path in DOCS.rglob("*.md") if path.parent.name not in INDEXED and path != DOCS / "README.md"}
    assert pages - named == set()
    assert {DOCS / folder / "README.md" for folder in INDEXED} <= named


@pytest.mark.parametrize("folder", INDEXED)
def test_the_index_of_a_folder_names_every_page_in_it(folder: str) -> None:
    pages = set((DOCS / folder).glob("*.md")) - {DOCS / folder / "README.md"}
    assert pages - _linked_files(DOCS / folder / "README.md") == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_within_the_repository_leads_to_a_file_and_its_heading(page: Path) -> None:
    for link in _links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.relative_to(ROOT)}: {link} leads nowhere"
        if anchor:
            assert anchor in _anchors(target), f"{page.relative_to(ROOT)}: {link} has no such heading"


def _links(page: Path) -> list[str]:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    return [link for link in _LINK.findall(text) if not re.match(r"[a-z]+:", link)]


def _linked_files(page: Path) -> set[Path]:
    return {(page.parent / link.partition("#")[0]).resolve() for link in _links(page)}


def _anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to a page's headings."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    headings = re.findall(r"^#+ +(.*)$", text, re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain}
