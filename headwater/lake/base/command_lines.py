"""The commands in the advice of errors and events, ready to be typed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CommandLines:
    """The commands of an environment."""

    environment: str
    """The environment's name, by which the commands find everything else."""
    existing: str = ""
    """The options that name an existing PostgreSQL database, for commands that take no environment."""

    def resync(self, *tables: str) -> str:
        """The command that takes a new snapshot of tables of PostgreSQL."""
        return f"headwater resync {' '.join(tables)} --env {self.environment}"

    def backfill(self, table: str) -> str:
        """The command that loads the rows of a table of PostgreSQL."""
        return f"headwater backfill --table {table} --env {self.environment}"

    def verify(self, *options: str) -> str:
        """The command that compares the lake with its sources."""
        return " ".join(["headwater verify --env", self.environment, *options])

    def capture(self) -> str:
        """The command that prepares an existing database for capture."""
        return f"headwater db capture {self.existing} --user OWNER"

    def check(self) -> str:
        """The command that compares the contracts with their sources."""
        return f"headwater contract check --env {self.environment} --live"
