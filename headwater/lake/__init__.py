"""From changes to Hudi commits. Runs on EMR and Glue and needs PySpark, boto3 and msgspec only."""
