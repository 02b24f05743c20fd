"""From changes to Hudi commits. Runs on EMR and Glue and needs PySpark and boto3 only; what reads DynamoDB's changes
runs on Glue alone, and needs msgspec too."""
