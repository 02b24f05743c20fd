"""Athena's prepared statements, which the emulator keeps, and does not run."""

from __future__ import annotations

from rig.local_aws.resources import Made, Properties, ResourceType, refuse_unread
from rig.local_aws.surroundings import Surroundings

STATEMENT = "AWS::Athena::PreparedStatement"


def types(surroundings: Surroundings) -> dict[str, ResourceType]:
    """The resource types, by their names."""
    return {STATEMENT: _PreparedStatements(surroundings)}


class _PreparedStatements:
    def __init__(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings

    def create(self, name: str, properties: Properties) -> Made:
        """Keep a statement."""
        request = {key: properties[key] for key in ("StatementName", "WorkGroup", "QueryStatement", "Description")}
        refuse_unread(STATEMENT, properties)
        self._surroundings.client("athena").create_prepared_statement(**request)
        return Made(properties["StatementName"])

    def update(self, physical_id: str, former: Properties, properties: Properties) -> Made:
        """Keep the statement as it is now: the emulator changes none."""
        self.delete(physical_id, former)
        return self.create(physical_id, properties)

    def delete(self, physical_id: str, properties: Properties) -> None:
        """Forget a statement."""
        client = self._surroundings.client("athena")
        client.delete_prepared_statement(StatementName=physical_id, WorkGroup=properties["WorkGroup"])
