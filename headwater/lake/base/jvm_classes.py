"""Java's classes by their full names, and the elements of its collections."""

from typing import Any

from py4j.java_gateway import JavaClass
from pyspark.sql import SparkSession


def java_class(spark: SparkSession, name: str) -> Any:
    """The class of that full name; an inner class's name has ``$``.

    py4j's own notation (``jvm.org.apache…``) is slow: the JVM searches every jar for a class ``org``, then for
    ``org.apache``, each time.
    """
    gateway: Any = spark.sparkContext._gateway
    return JavaClass(name, gateway._gateway_client)


def elements(collection: Any) -> list[Any]:
    """The elements of a Java collection.

    A Python loop over the collection would be slow: it ends with a Java exception. To convert that, PySpark looks up a
    dozen classes by dotted names.
    """
    array = collection.toArray()
    return [array[index] for index in range(len(array))]


def struct_type(spark: SparkSession, ddl: str) -> Any:
    """Java's ``StructType`` of columns in Spark's DDL."""
    return java_class(spark, "org.apache.spark.sql.types.StructType").fromDDL(ddl)
