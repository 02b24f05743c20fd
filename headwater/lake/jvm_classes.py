"""Java's classes by their full names."""

from typing import Any

from py4j.java_gateway import JavaClass
from pyspark.sql import SparkSession


def java_class(spark: SparkSession, name: str) -> Any:
    """The class of that full name, an inner one's with ``$``. py4j's own way, by dots, has the JVM look in every jar
    whether ``org`` is a class, and then ``org.apache``, each time."""
    gateway: Any = spark.sparkContext._gateway
    return JavaClass(name, gateway._gateway_client)


def struct_type(spark: SparkSession, ddl: str) -> Any:
    """Java's ``StructType`` of columns in Spark's DDL."""
    return java_class(spark, "org.apache.spark.sql.types.StructType").fromDDL(ddl)
