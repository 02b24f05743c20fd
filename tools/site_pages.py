"""Gives MkDocs the repository's pages, each at its own path: the links between them are right on the forge and here."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
# Path in the repository, and in the site.
BESIDE_PAGES = {
    "LICENSE": "LICENSE.txt",
    "NOTICE": "NOTICE.txt",
    "tools/site.css": "assets/site.css",
    # With it, search works in a site that is opened from the disk. Material would load it from a CDN.
    "node_modules/iframe-worker/shim/index.js": "assets/iframe-worker.js",
}
_LOADED = re.compile(r"<(?:iframe|img|link|script)\b[^>]*?\b(?:href|src)=[\"']?((?:https?:)?//[^\s\"'>]+)")
# In strict mode, a warning fails the build.
_LOG = logging.getLogger("mkdocs.hooks.site_pages")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The theme's files, all pages, their images, and what else they link to or load."""
    for page in files.documentation_pages():
        files.remove(page)
    for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("docs/images/*.svg")]):
        files.append(_file(path.relative_to(ROOT).as_posix(), config))
    for name, place in BESIDE_PAGES.items():
        file = _file(name, config)
        file.dest_uri = place
        files.append(file)
    return files


def on_post_page(output: str, page: Any, **_: Any) -> None:
    """Warn of what a page would load from another host."""
    for address in _LOADED.findall(output):
        _LOG.warning("%s: found that it loads %s, expected nothing of other hosts", page.file.src_uri, address)


def _file(name: str, config: MkDocsConfig) -> File:
    return File.generated(config, name, abs_src_path=str(ROOT / name))
