"""The resource types and properties that have no effect in the local AWS, each with the reason.

This is the one list of exceptions. If a template sets any other property that neither our handlers nor the emulator
read, the deployment fails.
"""

from __future__ import annotations

_NO_NETWORK = "all parts are on the loopback, where no rule of a network holds"
_NO_ENCRYPTION = "files of this machine are not encrypted"
_NO_BACKUP = "nothing is backed up"
_TEXT = "a text"
_VERSION = "programs are of the versions that the tests lock"
_ONE_MACHINE = "one process runs on this machine"
_ONE_ACCOUNT = "there is one account"

NO_OP_TYPES: dict[str, str] = {
    "AWS::Athena::NamedQuery": "a saved text",
    "AWS::Budgets::Budget": "nothing here costs money",
    "AWS::EC2::EIP": _NO_NETWORK,
    "AWS::EC2::FlowLog": _NO_NETWORK,
    "AWS::EC2::Instance": "NAT and bastion are ways through a network that is not there",
    "AWS::EC2::NatGateway": _NO_NETWORK,
    "AWS::EC2::SecurityGroupEgress": _NO_NETWORK,
    "AWS::EC2::SecurityGroupIngress": _NO_NETWORK,
    "AWS::EMR::SecurityConfiguration": _NO_ENCRYPTION,
    "AWS::Glue::SecurityConfiguration": _NO_ENCRYPTION,
    "AWS::RDS::DBInstance": "a cluster is one server, which starts with it",
    "AWS::SecretsManager::ResourcePolicy": "the evaluator of rights does not read it",
    "AWS::Serverless::Application": "AWS's application for rotations is in a repository of AWS",
}
"""No-op types: CloudFormation gets an identifier for such a resource, and nothing is made."""

ANY_TYPE = "*"

IGNORED_PROPERTIES: dict[str, dict[str, str]] = {
    ANY_TYPE: {"Tags": "rights depend on tags of EMR's clusters alone"},
    "AWS::Athena::WorkGroup": {"RecursiveDeleteOption": "no query runs here, so that a group is always empty"},
    "AWS::DynamoDB::GlobalTable": {
        "Replicas.DeletionProtectionEnabled": "CloudFormation's own protection is the emulator's",
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
        "ServiceRole": "EMR itself needs nothing of the account",
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
        "Timeout": "a streaming job has none but its maintenance window",
    },
    "AWS::Glue::Table": {"CatalogId": _ONE_ACCOUNT},
    "AWS::KafkaConnect::Connector": {
        "capacity.provisionedCapacity.mcuCount": _ONE_MACHINE,
        "kafkaCluster.apacheKafkaCluster.vpc": _NO_NETWORK,
        "kafkaClusterClientAuthentication": "the local Kafka takes every client: IAM's login is MSK's own",
        "kafkaClusterEncryptionInTransit": "TLS towards Kafka is MSK's own",
        "kafkaConnectVersion": _VERSION,
    },
    "AWS::KafkaConnect::CustomPlugin": {"Description": _TEXT},
    "AWS::KafkaConnect::WorkerConfiguration": {"Description": _TEXT},
    "AWS::Kinesis::Stream": {"StreamEncryption": _NO_ENCRYPTION},
    "AWS::MSK::Cluster": {
        "BrokerNodeGroupInfo": _ONE_MACHINE,
        "ClientAuthentication": "the local Kafka takes every client: IAM's login is MSK's own",
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
        "DeletionProtection": "CloudFormation's own protection is the emulator's",
        "EnableCloudwatchLogsExports": "the log is a file",
        "EnableHttpEndpoint": "the Data API is always there",
        "KmsKeyId": _NO_ENCRYPTION,
        "Port": "the port is a free one, which the endpoint tells",
        "ServerlessV2ScalingConfiguration": "the server takes what it needs",
        "StorageEncrypted": _NO_ENCRYPTION,
        "VpcSecurityGroupIds": _NO_NETWORK,
    },
    "AWS::RDS::DBClusterParameterGroup": {"Description": _TEXT, "Family": _VERSION},
    "AWS::S3::Bucket": {
        "AccessControl": _ONE_ACCOUNT,
        "BucketEncryption": _NO_ENCRYPTION,
        "LifecycleConfiguration": "nothing here lives for days",
        "LoggingConfiguration": "nobody reads the objects but our own processes",
        "OwnershipControls": _ONE_ACCOUNT,
    },
    "AWS::SecretsManager::RotationSchedule": {"RotationRules": "no month passes here: a request rotates a secret"},
    "AWS::SNS::Topic": {"KmsMasterKeyId": _NO_ENCRYPTION},
}
"""Properties, by the type that has them; for connectors, arguments of MSK Connect's API."""
