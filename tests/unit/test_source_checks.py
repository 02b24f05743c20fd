"""What the check of PostgreSQL says before it looks at tables; its rules run in a real one (tests/local)."""

from collections.abc import Sequence

from headwater.definitions import source_checks
from headwater.definitions.source_checks import UNFIT


def found(version: str) -> tuple[list[source_checks.Finding], list[str]]:
    """The findings about a fitting server of this version, and the queries to it."""
    asked: list[str] = []

    def query(text: str) -> list[Sequence[object]]:
        asked.append(text)
        return [[version, False]] if text.startswith("SELECT current_setting('server_version_num')") else []

    return source_checks.findings([], "headwater_cdc", query), asked


def test_a_server_before_postgresql_15_is_refused_and_not_asked_further() -> None:
    for version, major in (("140019", 14), ("90624", 9)):
        (finding,), asked = found(version)
        assert (finding.place, finding.level) == ("server", UNFIT)
        assert str(finding) == f"server: found PostgreSQL {major}, expected 15 or later; upgrade the server"
        assert len(asked) == 1
    for version in ("150000", "170004"):
        assert found(version)[0] == []


def test_the_deployments_check_looks_at_the_version_before_the_query() -> None:
    (refusal,) = source_checks.refusals([], "headwater_cdc")
    assert 0 < refusal.index("current_setting('server_version_num')::int < 150000") < refusal.index("WITH RECURSIVE")


def test_recovery_and_what_the_connector_takes_of_the_server_are_asked_for() -> None:
    query = source_checks.findings_query([], "headwater_cdc")
    for part in ("pg_is_in_recovery()", "'max_replication_slots'", "'max_wal_senders'", "slot_name = 'headwater'"):
        assert part in query
    assert "{" not in query
