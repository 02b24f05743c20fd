"""The programs of PostgreSQL's other versions."""

import pytest

from headwater.packaging import jars
from tests.postgresql_versions import MAJORS, binaries


@pytest.mark.parametrize("major", MAJORS)
def test_the_programs_do_not_have_their_jar_fetched_anew(major: int) -> None:
    """Else a second worker of the tests would replace the programs under the first one's server."""
    programs = binaries(major)
    assert (programs / "postgres").exists()
    assert jars.problems([f"postgresql-{major}"]) == []
    assert binaries(major) == programs
