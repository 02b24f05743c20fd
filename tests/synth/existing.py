"""An environment whose database and DynamoDB tables already exist."""

from typing import Any

import msgspec

from headwater.environment.model import (
    Environment,
    ExistingDatabase,
    ExistingTable,
    ExistingTables,
    Monitored,
    Peering,
)

SECRET_KEY = "arn:aws:kms:eu-central-1:123456789012:key/5ec2e7"
STREAM_KEY = "arn:aws:kms:eu-central-1:123456789012:key/57fea3"
PEERING = Peering(vpc="vpc-0da7aba5", route_tables=("rtb-0da7aba1", "rtb-0da7aba2"), security_group="sg-0da7aba5")
DATABASE = ExistingDatabase(
    host="rental.cluster-1a2b.eu-central-1.rds.amazonaws.com",
    port=5433,
    name="rental",
    secret="rental/headwater-cdc",
    secret_key=SECRET_KEY,
    root_certificate=None,
    cidr="10.60.0.0/16",
    peering=PEERING,
    monitored=Monitored(kind="cluster", identifier="rental"),
)
ACCOUNTS = ExistingTable(contract="accounts", table="Accounts", stream="account-changes", stream_key=STREAM_KEY)


def with_existing(settings: Environment, *tables: ExistingTable, **of_database: Any) -> Environment:
    """The environment with these tables, or with the table of the contract ``accounts``. ``of_database`` changes fields
    of its database."""
    return msgspec.structs.replace(
        settings,
        database=msgspec.structs.replace(DATABASE, **of_database),
        key_value=ExistingTables(stream_retention_hours=72, tables=tables or (ACCOUNTS,)),
    )
