"""QuickSight, if an environment has a section ``bi``."""

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
from headwater.definitions.charts import Data
from headwater.definitions.lake_content import LakeContent
from headwater.definitions.saved_queries import SavedQuery
from headwater.environment.model import Bi
from headwater.environment.rules import read_environment
from headwater.errors import UserError
from headwater.lake_folder import EXAMPLE
from rig.demo import report
from stacks.assets import Assets
from tests.synth.conftest import PRINCIPAL, WITH_BI, Synthesized
from tests.synth.example import example_content


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
        settings = msgspec.structs.replace(
            read_environment("dev", EXAMPLE.config), bi=Bi(principal=PRINCIPAL, refresh=refresh)
        )
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
    query = data_set["PhysicalTableMap"]["revenue-by-customer"]["CustomSql"]
    select = sqlglot.parse_one(query["SqlQuery"], read="athena", into=sqlglot.exp.Select)
    assert [column["Name"] for column in query["Columns"]] == select.named_selects


def test_it_needs_charts(contracts: list[Contract], assets: Assets, new_app: Callable[[], cdk.App]) -> None:
    settings = read_environment("dev", EXAMPLE.config)
    settings = msgspec.structs.replace(settings, bi=Bi(principal=PRINCIPAL, refresh=None))
    with pytest.raises(UserError, match=r"bi: found no queries/charts\.yaml in the lake folder, expected the charts"):
        Synthesized(new_app(), settings, contracts, assets, LakeContent())


def test_ids_depend_on_the_names_of_the_queries_alone(
    contracts: list[Contract], assets: Assets, new_app: Callable[[], cdk.App]
) -> None:
    settings = read_environment("dev", EXAMPLE.config)
    settings = msgspec.structs.replace(settings, bi=Bi(principal=PRINCIPAL, refresh="hourly"))
    example = example_content(contracts)
    charts = example.charts
    assert charts is not None
    (shown,) = charts.data
    names = ("role", "source", "analysis", "dashboard", "refresh", "data-set")
    others = [msgspec.structs.replace(shown, query=name) for name in names]
    queries = [*example.queries, *(SavedQuery(name, "One", "SELECT 1") for name in names)]

    def ids(*data: Data) -> dict[str, str]:
        content = LakeContent(example.files, queries, msgspec.structs.replace(charts, data=data))
        resources = Synthesized(new_app(), settings, contracts, assets, content).template("bi")["Resources"]
        return {
            f"{each['Type']} {each['Properties']['DataSetId']}": name
            for name, each in resources.items()
            if "DataSetId" in each["Properties"]
        }

    alone = ids(shown)
    assert sorted(alone.values()) == ["Refresh", "RevenueByCustomer"]
    before, behind = ids(*others, shown), ids(shown, *reversed(others))
    assert before == behind
    assert len(before) == len(set(before.values())) == 2 * (1 + len(names))
    assert before.items() >= alone.items()
