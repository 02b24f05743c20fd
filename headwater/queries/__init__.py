"""Athena's SQL on the lake's rows, without Athena."""

from headwater.queries.isolated_duckdb import isolated_duckdb
from headwater.queries.lake_queries import Answer, LakeQueries

__all__ = ["Answer", "LakeQueries", "isolated_duckdb"]
