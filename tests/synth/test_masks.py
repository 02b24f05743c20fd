"""The key of masks and the right to read it exist if a contract masks by hmac, and only then."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import aws_cdk as cdk
import pytest

from headwater.contract.model import DYNAMODB, HMAC, POSTGRESQL, Contract, Mask
from headwater.environment.rules import read_environment
from headwater.lake_folder import EXAMPLE
from stacks.assets import Assets
from tests.synth.conftest import Synthesized

if TYPE_CHECKING:
    Masked = Callable[[str, str | None], Synthesized]


@pytest.fixture(scope="module")
def masked(contracts: list[Contract], assets: Assets, new_app: Callable[[], cdk.App]) -> Masked:
    """The environment prod, with contracts of one kind of database that mask something."""

    def of(database: str, how: str | None) -> Synthesized:
        masks = (Mask(("hidden",), how),)
        changed = [replace(one, masks=masks) if one.source.database == database else one for one in contracts]
        return Synthesized(new_app(), read_environment("prod", EXAMPLE.config), changed, assets)

    return of


def readers(synthesized: Synthesized) -> set[str]:
    """The stacks with a role that may read the key, or with a word of it."""
    found = set()
    for part in synthesized.parts():
        for resource in synthesized.resources("AWS::IAM::Policy", part).values():
            for statement in resource["Properties"]["PolicyDocument"]["Statement"]:
                if ":secret:headwater/prod/mask-??????" in json.dumps(statement):
                    assert statement["Action"] == "secretsmanager:GetSecretValue"
                    found.add(part)
    return found


def source_config(synthesized: Synthesized) -> dict[str, Any]:
    (config,) = [
        resource["Properties"]["Connector"]["connectorConfiguration"]
        for name, resource in synthesized.resources("Custom::HeadwaterConnector", "connect").items()
        if "Source" in name
    ]
    return dict(config)


def test_only_the_source_connector_reads_the_key_of_its_masks(masked: Masked) -> None:
    synthesized = masked(POSTGRESQL, HMAC)
    assert synthesized.assembly.exists(), "the security rules hold"
    (secret,) = [
        resource
        for name, resource in synthesized.resources("AWS::SecretsManager::Secret", "lake").items()
        if "MaskKey" in name
    ]
    assert secret["Properties"]["Name"] == "headwater/prod/mask"
    assert secret["Properties"]["GenerateSecretString"]["PasswordLength"] == 64
    assert secret["DeletionPolicy"] == "RetainExceptOnCreate"
    assert readers(synthesized) == {"connect"}
    assert source_config(synthesized)["headwater.mask.secret"] == "${secretsmanager:headwater/prod/mask:key}"
    assert "--mask-secret" not in json.dumps(synthesized.template("glue_job"))


def test_only_the_job_of_a_table_reads_the_key_of_its_masks(masked: Masked) -> None:
    synthesized = masked(DYNAMODB, HMAC)
    assert readers(synthesized) == {"glue_job"}
    job = synthesized.only("AWS::Glue::Job", "glue_job")
    assert job["DefaultArguments"]["--mask-secret"] == "headwater/prod/mask"
    assert not [name for name in source_config(synthesized) if "mask" in name]


def test_without_hmac_there_is_no_key(masked: Masked, every: Synthesized) -> None:
    nulls = masked(POSTGRESQL, None)
    assert "headwater.mask.columns" in source_config(nulls)
    assert "headwater.mask.secret" not in source_config(nulls)
    for synthesized in (nulls, every):
        assert readers(synthesized) == set()
        assert not [name for name in synthesized.resources("AWS::SecretsManager::Secret", "lake") if "Mask" in name]
