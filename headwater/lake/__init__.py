"""From landing objects to Hudi commits. Runs on EMR and Glue: PySpark and boto3, and what reads
DynamoDB's changes msgspec, only."""
