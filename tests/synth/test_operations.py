"""What `headwater status` and `headwater logs` ask for has the names that the templates give it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from headwater.definitions import connectors
from headwater.definitions.source_database import READER_ROLE
from headwater.environment.model import Aurora
from headwater.operations.deployed import Deployed
from headwater.operations.part_logs import PARTS, WRITER, group_path

if TYPE_CHECKING:
    from tests.synth.conftest import Synthesized


def no_client(service: str) -> Any:
    raise AssertionError(service)


def test_names_are_those_of_the_templates(dev: Synthesized) -> None:
    deployed = Deployed(dev.environment, dev.contracts, no_client)
    assert set(deployed.job_names) == {
        job["Properties"]["Name"] for job in dev.resources("AWS::Glue::Job", "glue_job").values()
    }
    (step,) = dev.resources("Custom::HeadwaterStep", "emr_writer").values()
    assert deployed.step_name == f"{step['Properties']['Name']}-"
    (parameter,) = dev.resources("AWS::SSM::Parameter", "emr").values()
    assert parameter["Properties"]["Name"] == deployed.cluster_id_parameter
    (cluster,) = dev.resources("AWS::RDS::DBCluster", "database").values()
    assert cluster["Properties"]["DBClusterIdentifier"] == deployed.prefix
    assert isinstance(dev.environment.database, Aurora)
    assert cluster["Properties"]["DatabaseName"] == dev.environment.database.name
    (stream,) = dev.resources("AWS::MSK::Cluster", "stream").values()
    assert stream["Properties"]["ClusterName"] == deployed.prefix
    secrets = {
        secret["Properties"]["Name"] for secret in dev.resources("AWS::SecretsManager::Secret", "database").values()
    }
    assert deployed.secret_of(READER_ROLE) in secrets
    (database,) = dev.resources("AWS::Glue::Database", "lake").values()
    assert database["Properties"]["DatabaseInput"]["Name"] == deployed.glue_database
    assert deployed.connector_names == (connectors.source_name(dev.capture), connectors.sink_name(dev.capture))
    assert {"LakeUri", "LandingUri"} <= set(dev.template("lake")["Outputs"])
    assert {"Host", "Port"} <= set(dev.template("database")["Outputs"])


def test_jobs_of_their_own_are_asked_for_by_their_names(dev: Synthesized) -> None:
    glue = msgspec.structs.replace(dev.environment.dynamodb.glue, jobs="per-table")
    environment = msgspec.structs.replace(dev.environment, glue=glue)
    assert Deployed(environment, dev.contracts, no_client).job_names == ["headwater-dev-accounts"]


def test_each_part_with_a_log_group_has_it_there(dev: Synthesized) -> None:
    groups = [
        group["Properties"]["LogGroupName"]
        for part in dev.parts()
        for group in dev.resources("AWS::Logs::LogGroup", part).values()
    ]
    named = [group if isinstance(group, str) else group["Fn::Join"][1][0] for group in groups]
    for part in set(PARTS) - {WRITER}:
        path = group_path(part, "dev")
        assert any(name.startswith(path[:-1]) if path.endswith("*") else name == path for name in named), part
