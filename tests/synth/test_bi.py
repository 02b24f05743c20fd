"""QuickSight, where an environment asks for it."""

import dataclasses
import re
from collections.abc import Callable, Iterator
from typing import Any, Literal

import aws_cdk as cdk
import botocore.session
import msgspec
import pytest
import sqlglot
from botocore.validate import ParamValidator

from headwater.contract.model import Contract
from headwater.environment.model import Bi
from headwater.environment.rules import read_environment
from headwater.errors import UserError
from headwater.paths import CONFIG
from rig.demo import report
from stacks.assets import Assets
from stacks.bi import orders_contract
from tests.synth.conftest import PRINCIPAL, WITH_BI, Synthesized


@pytest.fixture(scope="module")
def resources(synthesize: Callable[[str], Synthesized]) -> dict[str, dict[str, dict[str, Any]]]:
    """The properties of dev's QuickSight resources by type and logical id."""
    properties: dict[str, dict[str, dict[str, Any]]] = {}
    for name, resource in synthesize(WITH_BI).template("bi")["Resources"].items():
        properties.setdefault(resource["Type"], {})[name] = resource["Properties"]
    return properties


def test_no_environment_has_it_unasked(every: Synthesized) -> None:
    assert every.environment.bi is None
    assert "bi" not in every.parts()


def test_the_source_queries_the_workgroup_in_a_role_of_its_own(resources: dict[str, Any]) -> None:
    (source,) = resources["AWS::QuickSight::DataSource"].values()
    (role,) = resources["AWS::IAM::Role"]
    assert source["DataSourceParameters"]["AthenaParameters"] == {
        "WorkGroup": "headwater-dev",
        "RoleArn": {"Fn::GetAtt": [role, "Arn"]},
    }


def test_the_principal_may_read_and_change_nothing_but_the_analysis(resources: dict[str, Any]) -> None:
    for kind in ("DataSource", "DataSet", "Dashboard"):
        (resource,) = resources[f"AWS::QuickSight::{kind}"].values()
        (permission,) = resource["Permissions"]
        assert permission["Principal"] == PRINCIPAL
        assert not [action for action in permission["Actions"] if re.search("Update|Delete|Restore|Create", action)]


@pytest.fixture(scope="module")
def refreshed(
    contracts: list[Contract], assets: Assets, new_app: Callable[[], cdk.App]
) -> Callable[[Literal["hourly", "daily"] | None], dict[str, dict[str, Any]]]:
    """The properties of the resources by type, of dev with QuickSight that reads so often."""

    def made(refresh: Literal["hourly", "daily"] | None) -> dict[str, dict[str, Any]]:
        settings = msgspec.structs.replace(read_environment("dev", CONFIG), bi=Bi(principal=PRINCIPAL, refresh=refresh))
        resources = Synthesized(new_app(), settings, contracts, assets).template("bi")["Resources"].values()
        return {each["Type"].rpartition(":")[2]: each["Properties"] for each in resources}

    return made


@pytest.mark.parametrize("refresh", ["hourly", "daily", None])
def test_the_service_takes_what_the_template_has(
    refreshed: Callable[[str | None], dict[str, dict[str, Any]]], refresh: str | None
) -> None:
    """The template's properties are the parameters of the service's API, held against its model, enumerations too."""
    resources = refreshed(refresh)
    kinds = ["DataSource", "DataSet", "Analysis", "Dashboard", *(["RefreshSchedule"] if refresh else [])]
    assert set(resources) - {"Role", "Policy"} == set(kinds)
    assert resources["DataSet"]["ImportMode"] == ("SPICE" if refresh else "DIRECT_QUERY")
    model = botocore.session.get_session().get_service_model("quicksight")
    for kind in kinds:
        shape = model.operation_model(f"Create{kind}").input_shape
        assert shape is not None
        given = _resolved(resources[kind])
        assert isinstance(given, dict)
        # How long CloudFormation waits is no matter of the service's.
        assert given.pop("IngestionWaitPolicy", {"WaitForSpiceIngestion": False}) == {"WaitForSpiceIngestion": False}
        assert ParamValidator().validate(given, shape).generate_report() == "", kind
        assert list(_not_offered(given, shape)) == [], kind


def test_analysis_and_dashboard_show_the_figures_of_the_report(resources: dict[str, Any]) -> None:
    ((analysis,), (dashboard,)) = (resources[f"AWS::QuickSight::{kind}"].values() for kind in ("Analysis", "Dashboard"))
    assert analysis["Definition"] == dashboard["Definition"]
    (sheet,) = analysis["Definition"]["Sheets"]
    used = set(re.findall(r"'ColumnName': '(\w+)'", str(sheet)))
    assert used == {field.name for field in dataclasses.fields(report.CustomerRevenue)}


def _resolved(value: Any) -> Any:
    """A template's value with texts for what CloudFormation fills in, and the names that its API has."""
    if isinstance(value, dict):
        if set(value) & {"Fn::GetAtt", "Ref", "Fn::Join", "Fn::Sub"}:
            return "arn:aws:quicksight:eu-central-1:123456789012:it/is"
        # The one name in which CloudFormation and the API differ.
        return {{"TimeZone": "Timezone"}.get(name, name): _resolved(inner) for name, inner in value.items()}
    return [_resolved(inner) for inner in value] if isinstance(value, list) else value


def _not_offered(value: Any, shape: Any) -> Iterator[str]:
    """Values out of no enumeration, and members that a shape does not have."""
    if shape.type_name == "structure":
        for name, inner in value.items():
            yield from _not_offered(inner, shape.members[name]) if name in shape.members else [name]
    elif shape.type_name == "list":
        for inner in value:
            yield from _not_offered(inner, shape.member)
    elif shape.type_name == "map":
        for inner in value.values():
            yield from _not_offered(inner, shape.value)
    elif getattr(shape, "enum", None) and value not in shape.enum:
        yield f"{shape.name}: {value}"


def test_the_data_set_has_the_columns_of_its_query(resources: dict[str, Any]) -> None:
    (data_set,) = resources["AWS::QuickSight::DataSet"].values()
    query = data_set["PhysicalTableMap"]["revenue"]["CustomSql"]
    select = sqlglot.parse_one(query["SqlQuery"], read="athena", into=sqlglot.exp.Select)
    assert [column["Name"] for column in query["Columns"]] == select.named_selects


def test_it_needs_the_orders(contracts: list[Contract]) -> None:
    with pytest.raises(UserError, match="found no contract of a table orders"):
        orders_contract([contract for contract in contracts if contract.table != "orders"])
