"""RDS: an Aurora PostgreSQL cluster is PostgreSQL on this machine, with the settings of its parameter group."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from headwater.errors import UserError
from rig.local.certificates import Authority
from rig.local.postgresql_server import PostgresqlServer
from rig.local.tls_front import TlsFront
from rig.local_aws.account_context import AccountContext
from rig.local_aws.api import Api
from rig.local_aws.cloudwatch import Measured
from rig.local_aws.data_api import DataApi
from rig.local_aws.resources import Made, Properties, ResourceType

CLUSTER = "AWS::RDS::DBCluster"
PARAMETER_GROUP = "AWS::RDS::DBClusterParameterGroup"
SECRET_ATTACHMENT = "AWS::SecretsManager::SecretTargetAttachment"  # noqa: S105  # a type
# Aurora's defaults, and PostgreSQL's settings in place of Aurora's own parameters.
_AS_ON_AURORA = {"wal_level": "replica", "checkpoint_timeout": "30s"}
_LOGICAL, _ONLY_TLS = "rds.logical_replication", "rds.force_ssl"
_LEVELS = {"0": "replica", "1": "logical"}
# The roles that RDS creates, and the rights of the owner.
_AS_ON_RDS = """
CREATE ROLE rds_replication;
CREATE ROLE {owner} LOGIN CREATEROLE PASSWORD {password};
GRANT rds_replication TO {owner} WITH ADMIN OPTION;
GRANT pg_signal_backend TO {owner};
"""

# The WAL that a slot retains, and the size of WAL on disk, both in bytes. Unlike Aurora, PostgreSQL keeps old WAL files
# for reuse. They are left out: their names come after the name of the file in use.
_LOG_SIZES = """
SELECT (SELECT max(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)) FROM pg_replication_slots),
       (SELECT sum(size) FROM pg_ls_waldir() WHERE name <= pg_walfile_name(pg_current_wal_lsn()))
"""

_MAY_REPLICATE = """
SELECT rolname FROM pg_roles
WHERE NOT rolsuper AND NOT rolreplication AND rolcanlogin AND pg_has_role(oid, 'rds_replication', 'USAGE')
"""


@dataclass(frozen=True)
class _Server:
    postgres: PostgresqlServer
    front: TlsFront
    running: ExitStack


def log_of_server(cluster: str, server: PostgresqlServer) -> Iterator[Measured]:
    """The metrics that RDS sends about a cluster's writer: the WAL that its slots retain, and the size of its WAL."""
    with server.connect() as admin:
        sizes = admin.execute(_LOG_SIZES).fetchall()[0]
    of = {"DBClusterIdentifier": cluster, "Role": "WRITER"}
    for metric, size in zip(("OldestReplicationSlotLag", "TransactionLogsDiskUsage"), sizes, strict=True):
        # Without a slot there is no lag to report.
        if size is not None:
            yield Measured("AWS/RDS", metric, of, float(size))


class Clusters:
    """The clusters of an account, below ``folder``.

    They show certificates of ``authority``, and accept only TLS.
    """

    def __init__(self, folder: Path, context: AccountContext, authority: Authority) -> None:
        self._folder = folder
        self._context = context
        self._authority = authority
        self._groups: dict[str, dict[str, str]] = {}
        self._servers: dict[str, _Server] = {}
        self.api = Api("rds-data", DataApi(self._connect, self._grant_replication).operations())

    def types(self) -> dict[str, ResourceType[Any]]:
        """The resource types, by their names."""
        return {
            CLUSTER: _Cluster(self),
            PARAMETER_GROUP: _ParameterGroup(self._groups),
            SECRET_ATTACHMENT: _SecretAttachment(self),
        }

    def start(self, name: str, properties: Properties) -> Made:
        """Start a server with its first database, with the rights that the owner has on RDS."""
        server = PostgresqlServer(self._folder / name, self._settings(properties["DBClusterParameterGroupName"]))
        front = TlsFront(self._folder / name, server, self._authority.issue(TlsFront.host))
        with ExitStack() as stack:
            stack.enter_context(server)
            stack.enter_context(front)
            owner, database = sql.Identifier(properties["MasterUsername"]), sql.Identifier(properties["DatabaseName"])
            with server.connect() as admin:
                password = sql.Literal(properties["MasterUserPassword"])
                for statement in _AS_ON_RDS.strip().splitlines():
                    admin.execute(sql.SQL(statement).format(owner=owner, password=password))
                admin.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(database, owner))
            self._servers[name] = _Server(server, front, stack.pop_all())
        arn = f"arn:aws:rds:{self._context.region}:{self._context.account}:cluster:{name}"
        return Made(
            name,
            {
                "DBClusterArn": arn,
                "DBClusterResourceId": f"cluster-{name}",
                "Endpoint.Address": front.host,
                "Endpoint.Port": str(front.port),
                "ReadEndpoint.Address": front.host,
            },
        )

    def attach(self, secret: str, name: str) -> None:
        """Write a cluster's address into a secret, beside its login."""
        front = self._servers[name].front
        value = self._secret(secret)
        value |= {"engine": "postgres", "host": front.host, "port": front.port, "dbClusterIdentifier": name}
        secrets = self._context.client("secretsmanager")
        secrets.put_secret_value(SecretId=secret, SecretString=json.dumps(value))

    def measured(self) -> Iterator[Measured]:
        """The metrics that RDS sends about its writers."""
        for name, server in list(self._servers.items()):
            if server.postgres.running:
                yield from log_of_server(name, server.postgres)

    def stop(self, name: str) -> None:
        """End a server."""
        server = self._servers.pop(name, None)
        if server is not None:
            server.running.close()

    def close(self) -> None:
        """End all servers."""
        for name in list(self._servers):
            self.stop(name)

    def _settings(self, group: str) -> dict[str, str]:
        if group not in self._groups:
            raise UserError(f"DBClusterParameterGroupName: found {group}, expected one of {sorted(self._groups)}")
        settings = {**_AS_ON_AURORA, **self._groups[group]}
        if settings.pop(_ONLY_TLS, "0") != "1":
            raise UserError(f"{_ONLY_TLS}: expected 1, because the proxy before the server here takes TLS alone")
        level = settings.pop(_LOGICAL, "0")
        if level not in _LEVELS:
            raise UserError(f"{_LOGICAL}: found {level}, expected {' or '.join(_LEVELS)}")
        settings["wal_level"] = _LEVELS[level]
        return settings

    def _connect(self, cluster: str, secret: str, database: str) -> psycopg.Connection:
        login = self._secret(secret)
        postgres = self._servers[cluster.rpartition(":")[2]].postgres
        return postgres.connect(database, login["username"], login["password"])

    def _grant_replication(self, cluster: str) -> None:
        """Let the members of RDS's replication role replicate. PostgreSQL has no role that passes this right on."""
        with self._servers[cluster.rpartition(":")[2]].postgres.connect() as admin:
            for (member,) in admin.execute(_MAY_REPLICATE).fetchall():
                admin.execute(sql.SQL("ALTER ROLE {} REPLICATION").format(sql.Identifier(member)))

    def _secret(self, name: str) -> dict[str, Any]:
        secrets = self._context.client("secretsmanager")
        value: dict[str, Any] = json.loads(secrets.get_secret_value(SecretId=name)["SecretString"])
        return value


class _Cluster(ResourceType[Clusters]):
    kind = CLUSTER

    def make(self, name: str, properties: Properties) -> Made:
        if not properties["Engine"].endswith("postgresql"):
            raise UserError(f"Engine: found {properties['Engine']}, expected aurora-postgresql")
        # The packaged PostgreSQL has the same major version.
        if properties["EngineVersion"].partition(".")[0] != "16":
            raise UserError(f"EngineVersion: found {properties['EngineVersion']}, expected one of PostgreSQL 16")
        return self.service.start(properties["DBClusterIdentifier"], properties)

    def delete(self, physical_id: str, properties: Properties) -> None:
        self.service.stop(physical_id)


class _ParameterGroup(ResourceType[dict[str, dict[str, str]]]):
    kind = PARAMETER_GROUP

    def make(self, name: str, properties: Properties) -> Made:
        group = name.lower()
        self.service[group] = dict(properties["Parameters"])
        return Made(group, {"DBClusterParameterGroupName": group})

    def delete(self, physical_id: str, properties: Properties) -> None:
        self.service.pop(physical_id, None)


class _SecretAttachment(ResourceType[Clusters]):
    kind = SECRET_ATTACHMENT

    def make(self, name: str, properties: Properties) -> Made:
        if properties["TargetType"] != CLUSTER:
            raise UserError(f"TargetType: found {properties['TargetType']}, expected {CLUSTER}")
        self.service.attach(properties["SecretId"], properties["TargetId"])
        return Made(properties["SecretId"])

    def update(self, physical_id: str, former: Properties, properties: Properties) -> Made:
        return self.create(physical_id, properties)
