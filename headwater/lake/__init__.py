"""From landing objects to Hudi commits. Runs on EMR and Glue: PySpark, boto3 and the standard library only."""
