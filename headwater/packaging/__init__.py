"""What goes to S3 and onto class paths: jars, plugins, the PySpark package. Everything is made under ``build/``."""
