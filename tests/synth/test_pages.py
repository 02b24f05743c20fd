"""The pages that are made from the templates are up to date."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from headwater import baselines, environment
from headwater.checks import pages, requests
from headwater.checks.template import Deployment

if TYPE_CHECKING:
    from tests.synth.conftest import Synthesized


@pytest.fixture(scope="module")
def deployments(synthesize: Callable[[str], "Synthesized"]) -> dict[str, Deployment]:
    """Every environment's deployment, with the names of assets for their hashes."""
    found = {}
    for name in environment.names(pages.CONFIG):
        synthesized = synthesize(name)
        templates = baselines.from_assembly(synthesized.assembly)
        found[name] = Deployment.of_baselines(templates, synthesized.environment)
    return found


def test_the_page_of_flows_is_up_to_date(deployments: dict[str, Deployment]) -> None:
    found = pages.flows(deployments)
    assert found == pages.FLOWS.read_text(), f"{pages.FLOWS} is stale: run `make baselines reference`"


def test_the_page_of_permissions_is_up_to_date(deployments: dict[str, Deployment]) -> None:
    found = pages.permissions(deployments, requests.load(pages.REQUESTS))
    assert found == pages.PERMISSIONS.read_text(), f"{pages.PERMISSIONS} is stale: run `make baselines reference`"


def test_the_pages_name_no_account_and_no_environment(deployments: dict[str, Deployment]) -> None:
    page = pages.permissions(deployments, requests.load(pages.REQUESTS))
    assert "123456789012" not in page
    assert "headwater-prod" not in page.replace("headwater-{environment}", "")
    assert "| dev, prod, stage |" in page
