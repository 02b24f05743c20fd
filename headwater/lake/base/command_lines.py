"""Commands that advice names, as one types them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CommandLines:
    """The commands of an environment, which find by its name all that they need. ``existing`` are the options that name
    its PostgreSQL database to those that take no environment, where it is an existing one."""

    environment: str
    existing: str = ""

    def resync(self, *tables: str) -> str:
        """Has PostgreSQL's tables read again."""
        return f"headwater resync {' '.join(tables)} --env {self.environment}"

    def backfill(self, table: str) -> str:
        """Loads the rows of a table of PostgreSQL's."""
        return f"headwater backfill --table {table} --env {self.environment}"

    def verify(self, *options: str) -> str:
        """Compares the lake with its sources."""
        return " ".join(["headwater verify --env", self.environment, *options])

    def capture(self) -> str:
        """Prepares an existing database."""
        return f"headwater db capture {self.existing} --user OWNER"

    def check(self) -> str:
        """Compares the contracts with their sources."""
        return f"headwater contract check --env {self.environment} --live"
