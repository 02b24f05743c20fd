"""Athena's prepared statements. The emulator stores them and does not run them."""

from __future__ import annotations

from typing import Any

from rig.local_aws.account_context import AccountContext
from rig.local_aws.resources import Made, Properties, ResourceType

STATEMENT = "AWS::Athena::PreparedStatement"


def types(context: AccountContext) -> dict[str, ResourceType[Any]]:
    """The resource types, by their names."""
    return {STATEMENT: _PreparedStatements(context)}


class _PreparedStatements(ResourceType[AccountContext]):
    kind = STATEMENT

    def make(self, name: str, properties: Properties) -> Made:
        """Store a statement."""
        request = {key: properties[key] for key in ("StatementName", "WorkGroup", "QueryStatement", "Description")}
        self.service.client("athena").create_prepared_statement(**request)
        return Made(properties["StatementName"])

    def update(self, physical_id: str, former: Properties, properties: Properties) -> Made:
        """Delete and store the statement, because the emulator cannot change one."""
        self.delete(physical_id, former)
        return self.create(physical_id, properties)

    def delete(self, physical_id: str, properties: Properties) -> None:
        """Delete a statement."""
        client = self.service.client("athena")
        client.delete_prepared_statement(StatementName=physical_id, WorkGroup=properties["WorkGroup"])
