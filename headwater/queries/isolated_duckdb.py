"""DuckDB that has no way out of its memory: every query of the product runs in one."""

from __future__ import annotations

import tempfile
import weakref

import duckdb


def isolated_duckdb(*settings: str) -> duckdb.DuckDBPyConnection:
    """A new DuckDB in memory whose queries reach the tables that Python hands in, and nothing else.

    They reach no file, no network address, no extension and no variable of Python's. What does not fit into memory goes
    to files in a folder of the owner's alone. ``settings`` are SQL statements that run before the configuration is
    locked; tables may be registered afterwards."""
    # By itself, DuckDB would put them, readable for everybody, into the working directory.
    spilled = tempfile.TemporaryDirectory(prefix="headwater-sql-")
    connection = duckdb.connect(
        config={
            "enable_external_access": False,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "allow_community_extensions": False,
            # Otherwise a name that is no table's finds a variable of the calling function.
            "python_enable_replacements": False,
            "temp_directory": spilled.name,
        }
    )
    weakref.finalize(connection, spilled.cleanup)
    for setting in (*settings, "SET lock_configuration = true"):
        connection.execute(setting)
    return connection
