"""The landing and lake buckets, the Glue catalog and Athena."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import aws_cdk as cdk
from aws_cdk import aws_athena as athena
from aws_cdk import aws_glue as glue
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from headwater.contract.masks import KEY_FIELD
from headwater.contract.model import Contract, change_history, lake_tables
from headwater.definitions.exports import COPIES, COPY_DAYS, EXPORTS
from headwater.definitions.history_queries import history_statements, history_views
from headwater.definitions.named_queries import NamedQuery, named_queries
from headwater.definitions.published_view import View, published_view
from headwater.definitions.saved_queries import SavedQuery
from headwater.definitions.writers import LakePlace
from headwater.environment import lake_format
from headwater.environment.expiries import OLDER_VERSION_DAYS
from headwater.environment.model import Environment
from headwater.environment.source_stacks import SOURCES_OUTPUT
from headwater.lake.table.erasure.keys import FOLDER as FORGOTTEN
from stacks.base import HeadwaterStack, grant
from stacks.hudi_table import catalog_view, hudi_table
from stacks.nag import Reason, acknowledge

LANDING_PREFIX = "landing"
LAKE_PREFIX = "lake"
_RESULTS_PREFIX = "results"
_READ = ("GetObject",)
_WRITE = ("AbortMultipartUpload", "DeleteObject", "GetObject", "ListMultipartUploadParts", "PutObject")
_WRITE_RESULTS = ("AbortMultipartUpload", "GetObject", "ListMultipartUploadParts", "PutObject")
_QUERY_ACTIONS = (
    "GetQueryExecution",
    "GetQueryResults",
    "GetQueryResultsStream",
    "GetWorkGroup",
    "StartQueryExecution",
    "StopQueryExecution",
)
_SAVED_QUERY_ACTIONS = (
    "BatchGetNamedQuery",
    "BatchGetPreparedStatement",
    "BatchGetQueryExecution",
    "GetNamedQuery",
    "GetPreparedStatement",
    "GetQueryRuntimeStatistics",
    "ListNamedQueries",
    "ListPreparedStatements",
    "ListQueryExecutions",
)
_CONSOLE_ACTIONS = ("ListDataCatalogs", "ListEngineVersions", "ListWorkGroups")
_CATALOG_ACTIONS = ("GetDataCatalog", "GetDatabase", "GetTableMetadata", "ListDatabases", "ListTableMetadata")


class LakeStack(HeadwaterStack):
    """The buckets of the data, their catalog, and the means to query them."""

    def __init__(
        self,
        scope: Construct,
        *,
        environment: Environment,
        contracts: Sequence[Contract],
        queries: Sequence[SavedQuery],
    ) -> None:
        super().__init__(
            scope, environment=environment, part="lake", description="Headwater: buckets, Glue catalog, Athena"
        )
        self._contracts = contracts
        self.key = self.encryption_key("Landed changes, lake tables and query results")
        self.logs = self._log_bucket()
        # The bucket has no lifecycle rule: the writer deletes objects after reading them, except those from which the
        # sink resumes.
        self.landing = self._bucket("Landing")
        # An old copy that stays could hold rows that have been erased since.
        copies = s3.LifecycleRule(prefix=f"{COPIES}/", expiration=cdk.Duration.days(COPY_DAYS))
        self.lake = self._bucket("Lake", rules=[copies])
        self.results = self._bucket("QueryResults", expire_days=environment.lake.query_result_days)
        # Exported even if no stack imports it, so that the stacks of QuickSight and of either source can be removed.
        self.export_value(self.key.key_arn)
        for bucket in (self.landing, self.lake, self.logs, self.results):
            self.export_value(bucket.bucket_arn)
        for bucket in (self.landing, self.lake, self.logs):
            self.export_value(bucket.bucket_name)

        # The secret exists before the first erasure, so that an erasure needs no deploy.
        self._forget_key = self._make_forget_key()
        self._mask_key = self._make_mask_key() if any(contract.needs_mask_key for contract in contracts) else None

        self.database = f"headwater_{environment.name}"
        self.work_group = self.prefix
        database = glue.CfnDatabase(
            self,
            "Database",
            catalog_id=self.account,
            database_input=glue.CfnDatabase.DatabaseInputProperty(
                name=self.database, description=f"Headwater's tables, {environment.name}"
            ),
        )
        workgroup = self._workgroup()
        for contract in contracts:
            table = self._table(contract, database)
            self._view(f"View-{contract.table}", published_view(contract, self.database), table)
            history = change_history(contract)
            if history is not None:
                self._history(contract, self._table(history, database), workgroup)
        saved = [query.named(contracts, self.database) for query in queries]
        for query in [*named_queries(contracts, self.database), *saved]:
            self._named_query(query, workgroup)
        cdk.CfnOutput(self, "LakeUri", value=self.lake_uri)
        cdk.CfnOutput(self, "LandingUri", value=self.landing_uri)
        cdk.CfnOutput(self, lake_format.OUTPUT, value=str(environment.lake.format))
        # A deployed lake records here which sources' stacks must not be deleted.
        sources = sorted({contract.source.database for contract in contracts})
        cdk.CfnOutput(self, SOURCES_OUTPUT, value=",".join(sources))
        if environment.lake.query_principals:
            self._query_role(environment.lake.query_principals)

    @property
    def lake_uri(self) -> str:
        """The folder of the tables, without a slash at its end."""
        return f"s3://{self.lake.bucket_name}/{LAKE_PREFIX}"

    @property
    def landing_uri(self) -> str:
        """The folder of the landing objects, without a slash at its end."""
        return f"s3://{self.landing.bucket_name}/{LANDING_PREFIX}"

    @property
    def mask_secret(self) -> str | None:
        """The name of the secret with the key of masks; None if no contract needs it.

        Kafka's placeholders need a name, because they cannot hold an ARN's colons.
        """
        return None if self._mask_key is None else f"headwater/{self.environment_settings.name}/mask"

    @property
    def place(self) -> LakePlace:
        """The lake's addresses for the writers."""
        return LakePlace(self.lake_uri, self.database, self.forget_secret)

    @property
    def forget_secret(self) -> str:
        """The name of the secret with the key that hashes erased keys."""
        return f"headwater/{self.environment_settings.name}/forget"

    def grant_read_mask_key(self, grantee: iam.IGrantable) -> None:
        """Let a principal that masks values read the key. Raises ValueError if no contract needs it."""
        if self.mask_secret is None:
            raise ValueError("no contract masks by hmac")
        self.grant_read_secret(grantee, self.mask_secret, self.key.key_arn)

    def grant_forget(self, grantee: iam.IGrantable, contracts: Sequence[Contract], topics: Iterable[str] = ()) -> None:
        """Let the writer of these tables erase keys in them.

        The writer may keep the hashes of erased keys and remove requests. It may also remove older versions of each
        object that it replaces, and rewrite the landing objects of these topics.
        """
        self.grant_read_secret(grantee, self.forget_secret, self.key.key_arn)
        for contract in lake_tables(contracts):
            table = f"{LAKE_PREFIX}/{contract.table}"
            aside, requests = (f"{LAKE_PREFIX}/{name}/{contract.table}/*" for name in ("_quarantine", "_requests"))
            forgotten = f"{LAKE_PREFIX}/{FORGOTTEN}/{contract.table}.json"
            self._grant_objects(grantee, self.lake, ("GetObject", "PutObject"), forgotten)
            self._grant_objects(grantee, self.lake, ("DeleteObject",), requests)
            self._grant_objects(grantee, self.lake, ("DeleteObjectVersion",), f"{table}/*", aside, requests)
        self._grant_list_versions(grantee, self.lake)
        landed = [f"{LANDING_PREFIX}/{topic}/*" for topic in topics]
        if landed:
            self._grant_objects(grantee, self.landing, ("DeleteObjectVersion", "PutObject"), *landed)
            self._grant_list_versions(grantee, self.landing)

    def _grant_list_versions(self, grantee: iam.IGrantable, bucket: s3.Bucket) -> None:
        grant(grantee, ["s3:ListBucketVersions"], [bucket.bucket_arn])

    def grant_land(self, grantee: iam.IGrantable) -> None:
        """Let a sink write landing objects, and read them to find its position."""
        self._grant_objects(grantee, self.landing, ("GetObject", "PutObject"), f"{LANDING_PREFIX}/*")

    def grant_consume_landing(self, grantee: iam.IGrantable, topics: Iterable[str]) -> None:
        """Let a writer read the landing objects of these topics, and delete them some time after reading."""
        keys = (f"{LANDING_PREFIX}/{topic}/*" for topic in topics)
        self._grant_objects(grantee, self.landing, ("DeleteObject", "GetObject"), *keys)

    def grant_write_tables(self, grantee: iam.IGrantable, contracts: Sequence[Contract]) -> None:
        """Let a writer write these tables and their histories, with their leases and quarantines.

        It may also register their partitions, read and answer requests, and warm up.
        """
        contracts = lake_tables(contracts)
        self._grant_folder(grantee, f"{LAKE_PREFIX}/_warm_up")
        for contract in contracts:
            self._grant_folder(grantee, f"{LAKE_PREFIX}/{contract.table}")
            lease, quarantine = f"_leases/{contract.table}.json", f"_quarantine/{contract.table}/*"
            self._grant_objects(grantee, self.lake, _WRITE, f"{LAKE_PREFIX}/{lease}", f"{LAKE_PREFIX}/{quarantine}")
            requests = f"{LAKE_PREFIX}/_requests/{contract.table}/*"
            self._grant_objects(grantee, self.lake, ("GetObject", "PutObject"), requests)
        grant(
            grantee,
            ["glue:GetTable", "glue:BatchCreatePartition"],
            [self._catalog_arn(), *self._table_arns([contract.table for contract in contracts])],
        )

    def grant_read_exports(self, grantee: iam.IGrantable) -> None:
        """Let a job read the DynamoDB exports that backfill requests name."""
        self._grant_objects(grantee, self.lake, _READ, f"{EXPORTS}/*")

    def grant_read_copies(self, grantee: iam.IGrantable) -> None:
        """Let a writer read the copies of PostgreSQL tables that backfill requests name."""
        self._grant_objects(grantee, self.lake, _READ, f"{COPIES}/*")

    def grant_read_tables(self, grantee: iam.IGrantable) -> None:
        """Let a query engine read all tables, but not the quarantine and the other folders beside them."""
        for contract in lake_tables(self._contracts):
            # One statement each: CDK moves statements that exceed a policy's size into further policies, but splits
            # none.
            self._grant_objects(grantee, self.lake, _READ, *_objects_of(f"{LAKE_PREFIX}/{contract.table}"))

    def grant_read_catalog(self, grantee: iam.IGrantable) -> None:
        """Let a query engine that uses Glue as its metastore find databases, tables and partitions."""
        grant(
            grantee,
            [
                "glue:GetDatabase",
                "glue:GetDatabases",
                "glue:GetTable",
                "glue:GetTables",
                "glue:GetPartition",
                "glue:GetPartitions",
                "glue:BatchGetPartition",
            ],
            [
                self._catalog_arn(),
                # Spark and Hive look up the database "default" when a session starts.
                self._default_database_arn(),
                *self._table_arns(["*"]),
            ],
            wildcard=Reason.TABLES_OF_ONE_DATABASE,
        )

    def grant_create_default_database(self, grantee: iam.IGrantable) -> None:
        """Let a cluster that uses Glue as its metastore create the database ``default`` if the account has none.

        Glue's client for Hive's metastore looks the database up when a session starts. The client creates a missing
        database, and fails if it may not:
        https://github.com/awslabs/aws-glue-data-catalog-client-for-apache-hive-metastore (AWSCatalogMetastoreClient).

        No stack creates the database, because an account and region have only one and other applications share it.
        """
        grant(grantee, ["glue:CreateDatabase"], [self._catalog_arn(), self._default_database_arn()])

    def grant_query(self, grantee: iam.IGrantable) -> None:
        """Let a principal query the tables through the Athena workgroup."""
        self.grant_read_tables(grantee)
        self.grant_read_catalog(grantee)
        self._grant_objects(grantee, self.results, _WRITE_RESULTS, f"{_RESULTS_PREFIX}/*")
        self._grant_athena(grantee, _QUERY_ACTIONS, "workgroup", self.work_group)
        self._grant_athena(grantee, _CATALOG_ACTIONS, "datacatalog", "AwsDataCatalog")

    def _query_role(self, principals: Sequence[str]) -> None:
        """The role by which analysts query, also in Athena's console."""
        role = iam.Role(
            self,
            "QueryRole",
            description=f"Queries of Headwater's tables, {self.environment_settings.name}",
            assumed_by=iam.CompositePrincipal(*map(iam.ArnPrincipal, principals)),
        )
        self.grant_query(role)
        self._grant_athena(role, _SAVED_QUERY_ACTIONS, "workgroup", self.work_group)
        grant(
            role, [f"athena:{action}" for action in _CONSOLE_ACTIONS], ["*"], wildcard=Reason.ACTION_TAKES_NO_RESOURCE
        )
        cdk.CfnOutput(self, "QueryRoleArn", value=role.role_arn)

    def _grant_athena(self, grantee: iam.IGrantable, actions: Sequence[str], resource: str, name: str) -> None:
        grant(
            grantee,
            [f"athena:{action}" for action in actions],
            [self.format_arn(service="athena", resource=resource, resource_name=name)],
        )

    def grant_write_logs(self, grantee: iam.IGrantable, prefix: str) -> None:
        """Let a cluster write its logs below ``prefix``."""
        self._grant_objects(grantee, self.logs, ("GetObject", "PutObject"), f"{prefix}/*")

    def _grant_folder(self, grantee: iam.IGrantable, folder: str) -> None:
        """Let a job of EMR or Glue write below a folder."""
        self._grant_objects(grantee, self.lake, _WRITE, *_objects_of(folder))

    def _grant_objects(self, grantee: iam.IGrantable, bucket: s3.Bucket, actions: Sequence[str], *keys: str) -> None:
        """Let a principal do these actions to objects by their keys, list the bucket and use its encryption key.

        CDK's own grants would allow every action whose name begins with one of these.
        """
        arns = [bucket.arn_for_objects(key) for key in keys]
        grant(grantee, [f"s3:{action}" for action in actions], arns, wildcard=Reason.OBJECTS_BELOW_A_PREFIX)
        grant(grantee, ["s3:GetBucketLocation", "s3:ListBucket"], [bucket.bucket_arn])
        if bucket.encryption_key is not None:
            grant(
                grantee,
                ["kms:Decrypt", *(["kms:GenerateDataKey"] if "PutObject" in actions else [])],
                [bucket.encryption_key.key_arn],
            )

    def _catalog_arn(self) -> str:
        return self.format_arn(service="glue", resource="catalog")

    def _default_database_arn(self) -> str:
        return self.format_arn(service="glue", resource="database", resource_name="default")

    def _table_arns(self, tables: Sequence[str]) -> list[str]:
        """The ARNs of the database and of these tables in it."""
        database = self.format_arn(service="glue", resource="database", resource_name=self.database)
        return [
            database,
            *(
                self.format_arn(service="glue", resource="table", resource_name=f"{self.database}/{table}")
                for table in tables
            ),
        ]

    def _make_mask_key(self) -> secretsmanager.Secret:
        description = "Key of the masks in Headwater's tables; with another key, equal values get other masks"
        return self._make_key("MaskKey", "mask", description, Reason.ANOTHER_KEY_MAKES_OTHER_MASKS)

    def _make_forget_key(self) -> secretsmanager.Secret:
        description = "Key of the hashes of erased keys in Headwater's tables; without it, erased rows could come back"
        return self._make_key("ForgetKey", "forget", description, Reason.ANOTHER_KEY_FORGETS_NOBODY)

    def _make_key(self, name: str, of: str, description: str, never_rotated: Reason) -> secretsmanager.Secret:
        secret = secretsmanager.Secret(
            self,
            name,
            secret_name=f"headwater/{self.environment_settings.name}/{of}",
            description=description,
            encryption_key=self.key,
            generate_secret_string=secretsmanager.SecretStringGenerator(
                secret_string_template="{}",  # noqa: S106  # no password: the key is added to it
                generate_string_key=KEY_FIELD,
                password_length=64,
                exclude_punctuation=True,
            ),
            removal_policy=self.data_removal,
        )
        acknowledge(secret, "SMG4", never_rotated)
        return secret

    def _log_bucket(self) -> s3.Bucket:
        # S3 delivers access logs only into a bucket that uses S3's own key.
        return s3.Bucket(
            self,
            "Logs",
            encryption=s3.BucketEncryption.S3_MANAGED,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            lifecycle_rules=[s3.LifecycleRule(expiration=cdk.Duration.days(self.environment_settings.log_days))],
            removal_policy=self.data_removal,
            auto_delete_objects=self.environment_settings.deletes_data,
        )

    def _bucket(self, name: str, expire_days: int | None = None, rules: Sequence[s3.LifecycleRule] = ()) -> s3.Bucket:
        versioned = self.environment_settings.data.retain and expire_days is None
        return s3.Bucket(
            self,
            name,
            encryption=s3.BucketEncryption.KMS,
            encryption_key=self.key,
            bucket_key_enabled=True,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            versioned=versioned,
            server_access_logs_bucket=self.logs,
            server_access_logs_prefix=f"access/{name.lower()}/",
            lifecycle_rules=[
                s3.LifecycleRule(
                    abort_incomplete_multipart_upload_after=cdk.Duration.days(1),
                    expiration=cdk.Duration.days(expire_days) if expire_days is not None else None,
                    noncurrent_version_expiration=cdk.Duration.days(OLDER_VERSION_DAYS) if versioned else None,
                ),
                *rules,
            ],
            removal_policy=self.data_removal,
            auto_delete_objects=self.environment_settings.deletes_data,
        )

    def _table(self, contract: Contract, database: glue.CfnDatabase) -> cdk.CfnResource:
        table = hudi_table(self, self.database, contract, f"{self.lake_uri}/{contract.table}")
        table.add_resource_dependency(database)
        return table

    def _view(self, logical_id: str, view: View, table: cdk.CfnResource) -> cdk.CfnResource:
        made = catalog_view(self, logical_id, self.database, view)
        made.add_resource_dependency(table)
        return made

    def _history(self, contract: Contract, table: cdk.CfnResource, workgroup: athena.CfnWorkGroup) -> None:
        """The views and prepared statements for queries of a contract table's history."""
        views = [self._view(f"View-{view.name}", view, table) for view in history_views(contract, self.database)]
        for statement in history_statements(contract, self.database):
            prepared = athena.CfnPreparedStatement(
                self,
                f"Statement-{statement.name}",
                statement_name=statement.name,
                description=statement.description,
                query_statement=statement.sql,
                work_group=self.work_group,
            )
            for needed in (workgroup, *views):
                prepared.add_resource_dependency(needed)

    def _named_query(self, query: NamedQuery, workgroup: athena.CfnWorkGroup) -> None:
        named = athena.CfnNamedQuery(
            self,
            f"Query-{query.name}",
            name=f"{self.prefix}-{query.name}",
            description=query.description,
            database=self.database,
            query_string=query.sql,
            work_group=self.work_group,
        )
        named.add_resource_dependency(workgroup)

    def _workgroup(self) -> athena.CfnWorkGroup:
        settings = self.environment_settings.lake
        return athena.CfnWorkGroup(
            self,
            "WorkGroup",
            name=self.work_group,
            description="Queries of Headwater's tables",
            recursive_delete_option=self.environment_settings.deletes_data,
            work_group_configuration=athena.CfnWorkGroup.WorkGroupConfigurationProperty(
                enforce_work_group_configuration=True,
                publish_cloud_watch_metrics_enabled=True,
                bytes_scanned_cutoff_per_query=settings.query_scan_limit_gib * 1024**3,
                engine_version=athena.CfnWorkGroup.EngineVersionProperty(
                    selected_engine_version="Athena engine version 3"
                ),
                result_configuration=athena.CfnWorkGroup.ResultConfigurationProperty(
                    output_location=f"s3://{self.results.bucket_name}/{_RESULTS_PREFIX}/",
                    encryption_configuration=athena.CfnWorkGroup.EncryptionConfigurationProperty(
                        encryption_option="SSE_KMS", kms_key=self.key.key_arn
                    ),
                ),
            ),
        )


def _objects_of(folder: str) -> tuple[str, str]:
    """The keys of the objects in a folder.

    S3A looks for an object with the folder's own name, and marks folders by objects below it.
    """
    return folder, f"{folder}/*"
