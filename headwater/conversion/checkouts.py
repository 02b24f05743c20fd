"""Makes lake folders from checkouts of releases 0.1.0 and 0.2.0, whose users edited the checkout."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from headwater.contract.reading import read_contracts
from headwater.conversion.lake_files import converted, of_first_release, of_former_releases
from headwater.definitions.database_files import read_files
from headwater.environment.defaults import value_at
from headwater.errors import UserError
from headwater.lake_folder import EXAMPLE, FILE, LakeFolder
from headwater.new_folder import of_example
from headwater.yaml_files import read_text, read_yaml, refusal, yaml_paths

_REVIEWED = "reviewed", "tests/synth"
"""The folders for reviewed files in a checkout. Release 0.1.0 had its folder among the tests."""
_LOCAL = "local.yaml"
_CERTIFICATE = "database.root_certificate"
_ORDERS = "northwind.order_events"
"""The table whose rows the example's saved queries read."""
_FIRST = {
    "1_schema.sql": "d7089f7e6e129bd0",
    "2_outbox.sql": "7336d4d3b655b6ca",
    "3_capture.sql": "2ae63b57b2e11ee8",
    "4_roles.sql": "e24d05f6acfb8932",
}
"""The files of ``database/`` in release 0.1.0, with the beginning of their SHA-256."""
_SECOND = {
    "1_schema.sql": "1aacc83045e1ea46",
    "2_outbox_payload.sql": "97d9549949a7ea94",
    "3_outbox_commit.sql": "3ac37a76e19e1db0",
    "4_outbox_triggers.sql": "7e962514f199fb47",
    "5_capture.sql": "798764634fb55e4a",
    "6_capture_role.sql": "ae98b0622c6525c3",
    "7_capture_identities.sql": "188ea54b1ba88bb7",
    "8_capture_refusals.sql": "1e5a042e488b2770",
    "9_roles.sql": "9ac999729936e558",
}
"""The same for release 0.2.0."""


@dataclass(frozen=True)
class FormerCheckout:
    """A checkout of release 0.1.0 or 0.2.0, with its user's contracts and environments."""

    root: Path
    """The checkout's folder."""

    def files(self, lake: Path) -> dict[Path, str]:
        """Return the files that the checkout gives the lake folder ``lake``, with their texts.

        These are its environments and contracts in the form of this release, its baselines and agreed losses, and its
        own SQL. If a deployment made Aurora, the example's queries are among them. The example's SQL is too, if Aurora
        was filled with all of it. Raises UserError if the folder is not such a checkout, or if this release refuses a
        file.
        """
        self._refuse_another_kind()
        of_example = self._of_example()
        read_files([*(path for path in of_example if path.parent == EXAMPLE.database), *self._own_sql()])
        there = [*converted(self._folder).items(), *self._copied()]
        files = {lake / path.relative_to(self.root): text for path, text in there}
        reviewed = {
            lake / "reviewed" / path.relative_to(folder): read_text(path)
            for folder in self._reviewed()
            for pattern in ("acknowledged_replacements.yaml", "baselines/*/*.yaml", "contracts/*.json")
            for path in sorted(folder.glob(pattern))
        }
        # The first release had no local AWS.
        local = {lake / "config" / _LOCAL: read_text(EXAMPLE.config / _LOCAL)}
        example = {lake / path.relative_to(EXAMPLE.root): text for path, text in of_example.items()}
        return {**local, **example, **files, **reviewed}

    def without_example_sql(self) -> dict[str, str]:
        """Return ``missing`` or ``changed`` for each file in ``database/`` of the release that differs now.

        With one such file, the example's SQL is not in the lake folder, because it would add to Aurora's data.
        """
        found = {}
        for name, digest in self._shipped.items() if self._has_aurora else ():
            path = self._folder.database / name
            if not path.is_file():
                found[name] = "missing"
            elif hashlib.sha256(path.read_bytes()).hexdigest()[:16] != digest:
                found[name] = "changed"
        return found

    @property
    def _folder(self) -> LakeFolder:
        return LakeFolder(self.root)

    @property
    def _shipped(self) -> Mapping[str, str]:
        return _FIRST if of_first_release(self._folder) else _SECOND

    def _reviewed(self) -> list[Path]:
        """The folder of reviewed files, if there is one."""
        return [self.root / name for name in _REVIEWED if (self.root / name / "baselines").is_dir()][:1]

    def _refuse_another_kind(self) -> None:
        if (self.root / FILE).is_file():
            raise UserError(
                f"--from-checkout: found the lake folder {self.root}, expected a checkout of release 0.1.0 or 0.2.0. "
                f"To upgrade a lake folder, change `release` in {FILE} and run ./headwater upgrade"
            )
        if not self._folder.config.is_dir() or not of_former_releases(self._folder):
            raise UserError(
                f"--from-checkout: found no environment of release 0.1.0 or 0.2.0 in {self._folder.config}, expected a "
                "checkout of one of them"
            )

    def _copied(self) -> Iterator[tuple[Path, str]]:
        """The files that a lake folder gets unchanged."""
        for path in sorted(self._folder.contracts.glob("*.sql")):
            yield path, read_text(path)
        for path in self._own_sql():
            yield path, read_text(path)
        for environment, document in self._environments.items():
            certificate = value_at(document, _CERTIFICATE)
            if not isinstance(certificate, str) or Path(certificate).is_absolute():
                continue
            if ".." in Path(certificate).parts:
                expected = "a path below the checkout without `..`: copy the file into the checkout"
                raise refusal(str(environment), _CERTIFICATE, certificate, expected)
            path = self.root / certificate
            # The local AWS makes the files in build/.
            if path.is_file() and not path.is_relative_to(self._folder.build):
                yield path, read_text(path)

    def _own_sql(self) -> list[Path]:
        """The files of ``database/`` that the user added."""
        paths = sorted(self._folder.database.glob("*.sql"))
        return [path for path in paths if path.name not in {*_FIRST, *_SECOND}]

    @cached_property
    def _environments(self) -> dict[Path, Any]:
        return {path: read_yaml(path) for path in yaml_paths(self._folder.config)}

    @property
    def _has_aurora(self) -> bool:
        return any(_has_aurora(document) for document in self._environments.values())

    def _of_example(self) -> dict[Path, str]:
        """The example's SQL and queries, if they fit the checkout's deployment."""
        wanted = set()
        if self._has_aurora:
            if not self.without_example_sql():
                wanted.add(EXAMPLE.database)
            if any(contract.source.table == _ORDERS for contract in read_contracts(self._folder.contracts)):
                wanted.add(EXAMPLE.queries)
        return {path: text for path, text in of_example(EXAMPLE.root).items() if wanted & set(path.parents)}


def _has_aurora(document: Any) -> bool:
    database = document.get("database") if isinstance(document, dict) else None
    return isinstance(database, dict) and database.get("kind", "aurora") == "aurora"
