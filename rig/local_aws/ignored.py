"""The resource types and properties that have no effect in the local AWS, each with the reason.

This is the one list of exceptions. If a template sets any other property that neither our handlers nor the emulator
read, the deployment fails.
"""

from __future__ import annotations

_NO_NETWORK = "all parts are on the loopback interface, which has no network rules"
_NO_ENCRYPTION = "files of this machine are not encrypted"
_NO_BACKUP = "nothing is backed up"
_TEXT = "a text"
_VERSION = "the tests lock the programs' versions"
_ONE_MACHINE = "one process runs on this machine"
_ONE_ACCOUNT = "there is one account"

NO_OP_TYPES: dict[str, str] = {
    "AWS::Athena::NamedQuery": "a saved text",
    "AWS::Budgets::Budget": "nothing here costs money",
    "AWS::EC2::EIP": _NO_NETWORK,
    "AWS::EC2::FlowLog": _NO_NETWORK,
    "AWS::EC2::Instance": "there is no network here that needs NAT or a bastion",
    "AWS::EC2::NatGateway": _NO_NETWORK,
    "AWS::EC2::SecurityGroupEgress": _NO_NETWORK,
    "AWS::EC2::SecurityGroupIngress": _NO_NETWORK,
    "AWS::EMR::SecurityConfiguration": _NO_ENCRYPTION,
    "AWS::Glue::SecurityConfiguration": _NO_ENCRYPTION,
    "AWS::RDS::DBInstance": "a cluster is one server, which starts with the cluster",
    "AWS::SecretsManager::ResourcePolicy": "the local evaluator of rights does not read it",
    "AWS::Serverless::Application": "AWS's rotation function is only in AWS's own repository",
}
"""No-op types: CloudFormation gets an identifier for such a resource, and nothing is made."""

ANY_TYPE = "*"

IGNORED_PROPERTIES: dict[str, dict[str, str]] = {
    ANY_TYPE: {"Tags": "rights depend only on tags of EMR clusters"},
    "AWS::Athena::WorkGroup": {"RecursiveDeleteOption": "no query runs here, so a workgroup is always empty"},
    "AWS::DynamoDB::GlobalTable": {
        "Replicas.DeletionProtectionEnabled": "the emulator handles CloudFormation's own protection",
        "Replicas.PointInTimeRecoverySpecification": _NO_BACKUP,
        "Replicas.SSESpecification": _NO_ENCRYPTION,
        "SSESpecification": _NO_ENCRYPTION,
    },
    "AWS::EMR::Cluster": {
        "Applications": "Spark runs here, and no other application",
        "Instances": _ONE_MACHINE,
        "ReleaseLabel": _VERSION,
        "ScaleDownBehavior": "the cluster does not scale",
        "SecurityConfiguration": _NO_ENCRYPTION,
        "ServiceRole": "EMR needs no rights of its own here",
        "VisibleToAllUsers": "everybody sees it",
    },
    "AWS::EMR::Cluster.Configurations": {
        "hive-site": "Hive does not run here",
        "spark-hive-site": "Spark's own catalog is not used: the writers register tables by Glue's API",
        "trino-config": "Trino does not run here",
        "trino-connector-hive": "Trino does not run here",
    },
    "AWS::Glue::Database": {"CatalogId": _ONE_ACCOUNT},
    "AWS::Glue::Job": {
        "Description": _TEXT,
        "GlueVersion": _VERSION,
        "MaintenanceWindow": "nothing is maintained",
        "NumberOfWorkers": _ONE_MACHINE,
        "Timeout": "a streaming job ends only in its maintenance window",
    },
    "AWS::Glue::Table": {"CatalogId": _ONE_ACCOUNT},
    "AWS::KafkaConnect::Connector": {
        "capacity.provisionedCapacity.mcuCount": _ONE_MACHINE,
        "kafkaCluster.apacheKafkaCluster.vpc": _NO_NETWORK,
        "kafkaClusterClientAuthentication": "the local Kafka accepts every client: only MSK has the login by IAM",
        "kafkaClusterEncryptionInTransit": "only MSK has TLS to Kafka",
        "kafkaConnectVersion": _VERSION,
    },
    "AWS::KafkaConnect::CustomPlugin": {"Description": _TEXT},
    "AWS::KafkaConnect::WorkerConfiguration": {"Description": _TEXT},
    "AWS::Kinesis::Stream": {"StreamEncryption": _NO_ENCRYPTION},
    "AWS::MSK::Cluster": {
        "BrokerNodeGroupInfo": _ONE_MACHINE,
        "ClientAuthentication": "the local Kafka accepts every client: only MSK has the login by IAM",
        "EncryptionInfo": "TLS towards Kafka is MSK's own, and " + _NO_ENCRYPTION,
        "EnhancedMonitoring": "the lags of consumer groups are measured in any case, and nothing else",
        "KafkaVersion": _VERSION,
        "LoggingInfo": "the log is a file",
        "NumberOfBrokerNodes": _ONE_MACHINE,
    },
    "AWS::MSK::Configuration": {
        "KafkaVersionsList": _VERSION,
        "ServerProperties.default.replication.factor": _ONE_MACHINE,
        "ServerProperties.min.insync.replicas": _ONE_MACHINE,
    },
    "AWS::MSK::Topic": {"ReplicationFactor": _ONE_MACHINE},
    "AWS::RDS::DBCluster": {
        "BackupRetentionPeriod": _NO_BACKUP,
        "CopyTagsToSnapshot": _NO_BACKUP,
        "DBSubnetGroupName": _NO_NETWORK,
        "DeletionProtection": "the emulator handles CloudFormation's own protection",
        "EnableCloudwatchLogsExports": "the log is a file",
        "EnableHttpEndpoint": "the Data API is always there",
        "KmsKeyId": _NO_ENCRYPTION,
        "Port": "the port is a free one, which the endpoint contains",
        "ServerlessV2ScalingConfiguration": "the server takes as much memory as it needs",
        "StorageEncrypted": _NO_ENCRYPTION,
        "VpcSecurityGroupIds": _NO_NETWORK,
    },
    "AWS::RDS::DBClusterParameterGroup": {"Description": _TEXT, "Family": _VERSION},
    "AWS::S3::Bucket": {
        "AccessControl": _ONE_ACCOUNT,
        "BucketEncryption": _NO_ENCRYPTION,
        "LifecycleConfiguration": "nothing here exists for days",
        "LoggingConfiguration": "only our own processes read the objects",
        "OwnershipControls": _ONE_ACCOUNT,
    },
    "AWS::SecretsManager::RotationSchedule": {"RotationRules": "no month passes here: a request rotates a secret"},
    "AWS::SNS::Topic": {"KmsMasterKeyId": _NO_ENCRYPTION},
}
"""Ignored properties, by the type that has them; for connectors, ignored arguments of MSK Connect's API."""
