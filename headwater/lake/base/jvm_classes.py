"""Java's classes by their full names, and what is in its collections."""

from typing import Any

from py4j.java_gateway import JavaClass
from pyspark.sql import SparkSession


def java_class(spark: SparkSession, name: str) -> Any:
    """The class of that full name, an inner one's with ``$``. py4j's own way, by dots, has the JVM look in every jar
    whether ``org`` is a class, and then ``org.apache``, each time."""
    gateway: Any = spark.sparkContext._gateway
    return JavaClass(name, gateway._gateway_client)


def elements(collection: Any) -> list[Any]:
    """What is in a Java collection. A loop of Python's over it ends by an exception of Java's, which PySpark compares
    with a dozen classes that it names by dots."""
    array = collection.toArray()
    return [array[index] for index in range(len(array))]


def struct_type(spark: SparkSession, ddl: str) -> Any:
    """Java's ``StructType`` of columns in Spark's DDL."""
    return java_class(spark, "org.apache.spark.sql.types.StructType").fromDDL(ddl)
