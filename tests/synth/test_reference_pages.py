"""The pages that are made from the templates are up to date."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from headwater.environment import model as environment
from headwater.lake_folder import EXAMPLE
from headwater.review import baselines, reference_pages, rights
from headwater.review.templates import Deployment

if TYPE_CHECKING:
    from tests.synth.conftest import Synthesized


@pytest.fixture(scope="module")
def deployments(synthesize: Callable[[str], "Synthesized"]) -> dict[str, Deployment]:
    """Every environment's deployment, with the names of assets for their hashes."""
    by_environment = {}
    for name in environment.on_aws(EXAMPLE.config):
        synthesized = synthesize(name)
        templates = baselines.from_assembly(synthesized.assembly)
        by_environment[name] = Deployment.of_baselines(templates, synthesized.environment)
    return by_environment


def test_the_page_of_flows_is_up_to_date(deployments: dict[str, Deployment]) -> None:
    page = reference_pages.flows(deployments)
    assert page == reference_pages.FLOWS.read_text(), (
        f"{reference_pages.FLOWS} is stale: run `make baselines reference`"
    )


def test_the_page_of_permissions_is_up_to_date(deployments: dict[str, Deployment]) -> None:
    page = reference_pages.permissions(deployments, rights.read_principals())
    assert page == reference_pages.PERMISSIONS.read_text(), (
        f"{reference_pages.PERMISSIONS} is stale: run `make baselines reference`"
    )


def test_the_pages_name_no_account_and_no_environment(deployments: dict[str, Deployment]) -> None:
    page = reference_pages.permissions(deployments, rights.read_principals())
    assert "123456789012" not in page
    assert "headwater-prod" not in page.replace("headwater-{environment}", "")
    assert "| dev, prod, stage |" in page
