"""The files for S3 and for class paths: jars, plugins, the PySpark package. Everything is made under ``build/``."""
