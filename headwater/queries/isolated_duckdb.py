"""A DuckDB without access to anything outside its memory. Every query of the product runs in one."""

from __future__ import annotations

import tempfile
import weakref

import duckdb


def isolated_duckdb(*settings: str) -> duckdb.DuckDBPyConnection:
    """A new DuckDB in memory whose queries reach only the tables that Python registers.

    The queries reach no file, no network address, no extension and no variable of Python. Data that does not fit into
    memory goes to files in a folder that only the owner can read. ``settings`` are SQL statements that run before the
    configuration is locked. Tables may be registered afterwards.
    """
    # By default, DuckDB would write these files into the working directory, readable for everybody.
    spilled = tempfile.TemporaryDirectory(prefix="headwater-sql-")
    connection = duckdb.connect(
        config={
            "enable_external_access": False,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "allow_community_extensions": False,
            # Otherwise, a name without a table would find a variable of the calling function.
            "python_enable_replacements": False,
            "temp_directory": spilled.name,
        }
    )
    weakref.finalize(connection, spilled.cleanup)
    for setting in (*settings, "SET lock_configuration = true"):
        connection.execute(setting)
    return connection
