"""Rows of Spark as a test compares them."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def texts(frame: DataFrame) -> list[str]:
    """Rows as JSON: Python's own types do not have all moments, and hide the sign of a zero."""
    written = frame.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"})).collect()
    return [str(row[0]) for row in written]
