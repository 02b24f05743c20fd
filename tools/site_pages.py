"""Gives MkDocs the repository's pages, each at its own path, so that links between pages work here as on the forge."""

from __future__ import annotations

import logging
import posixpath
import re
from pathlib import Path
from typing import Any

import yaml
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
# Path in the repository, and path in the site.
BESIDE_PAGES = {
    "LICENSE": "LICENSE.txt",
    "NOTICE": "NOTICE.txt",
    "tools/site.css": "assets/site.css",
    # With this script, search works in a site that is opened from the disk. Material would load it from a CDN.
    "node_modules/iframe-worker/shim/index.js": "assets/iframe-worker.js",
}
INDEX = "docs/README.md"
# The weight of pages in the search, by the beginning of their paths. The longest matching path counts; else 1.
WEIGHTS = {
    "CHANGELOG.md": 0.3,
    "docs/README.md": 0.1,
    "docs/decisions/": 0.8,
    "docs/glossary.md": 0.3,
    "docs/how-to/": 1.5,
    "docs/questions.md": 5,
    "docs/promises.md": 0.1,
    "docs/reference/checks.md": 0.5,
    "docs/reference/cli.md": 0.5,
    "docs/reference/contracts.md": 2,
    "docs/reference/python-api.md": 0.4,
    "docs/reliability.md": 1.5,
    "docs/security.md": 1.5,
    "docs/tutorial/": 1.5,
    "docs/tutorial/deploy.md": 2,
}
_LOADED = re.compile(r"<(?:iframe|img|link|script)\b[^>]*?\b(?:href|src)=[\"']?((?:https?:)?//[^\s\"'>]+)")
_ASKED = re.compile(r"^\| (?P<question>[^|]*\?) \| \[[^\]]*\]\((?P<page>[^)#]*)", re.MULTILINE)
# In strict mode, a warning fails the build.
_LOG = logging.getLogger("mkdocs.hooks.site_pages")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The theme's files, all pages, their images, and the other files that they link to or load."""
    for page in files.documentation_pages():
        files.remove(page)
    for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("docs/images/*")]):
        files.append(_file(path.relative_to(ROOT).as_posix(), config))
    for name, place in BESIDE_PAGES.items():
        file = _file(name, config)
        file.dest_uri = place
        files.append(file)
    for name in _words().keys() - {page.src_uri for page in files.documentation_pages()}:
        _LOG.warning("tools/site_words.yaml: found %s, expected a page", name)
    return files


def on_page_markdown(_: str, page: Any, **__: Any) -> None:
    """Add a page's questions, its search words and its weight to the search."""
    name = page.file.src_uri
    page.meta["tags"] = [*_questions().get(name, []), *_words().get(name, [])]
    fitting = [start for start in WEIGHTS if name.startswith(start)]
    page.meta["search"] = {"boost": WEIGHTS[max(fitting, key=len)] if fitting else 1}


def on_post_page(output: str, page: Any, **_: Any) -> None:
    """Warn of files that a page would load from another host."""
    for address in _LOADED.findall(output):
        _LOG.warning("%s: found a page that loads %s, expected no files of other hosts", page.file.src_uri, address)


def on_post_build(config: MkDocsConfig) -> None:
    """Put site_search.js before the theme's search worker."""
    for worker in Path(config.site_dir).glob("assets/javascripts/workers/search.*.js"):
        worker.write_text((ROOT / "tools" / "site_search.js").read_text() + worker.read_text())


def _questions() -> dict[str, list[str]]:
    """The questions that the index of all pages answers, by page."""
    found: dict[str, list[str]] = {}
    for row in _ASKED.finditer((ROOT / INDEX).read_text()):
        page = posixpath.normpath(posixpath.join(posixpath.dirname(INDEX), row["page"]))
        found.setdefault(page, []).append(row["question"])
    return found


def _words() -> dict[str, list[str]]:
    return yaml.safe_load((ROOT / "tools" / "site_words.yaml").read_text())


def _file(name: str, config: MkDocsConfig) -> File:
    return File.generated(config, name, abs_src_path=str(ROOT / name))
