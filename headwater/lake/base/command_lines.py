"""Commands that advice names, as one types them."""

from __future__ import annotations

from dataclasses import dataclass

_OWNER = "headwater_owner"


@dataclass(frozen=True)
class CommandLines:
    """The commands of an environment. ``existing`` are the options that name its PostgreSQL database where that is an
    existing one, which commands find in the environment's file; else HOST stands for the one that was deployed."""

    environment: str
    existing: str = ""

    def resync(self, *tables: str) -> str:
        """Has PostgreSQL's tables read again."""
        return f"headwater resync {' '.join(tables)} --env {self.environment}{self._at(_OWNER)}"

    def backfill(self, table: str) -> str:
        """Loads the rows of a table of PostgreSQL's."""
        return f"headwater backfill --table {table} --env {self.environment}{self._at(_OWNER)}"

    def verify(self, *options: str) -> str:
        """Compares the lake with its sources."""
        user = _OWNER if "--repair" in options else ""
        return " ".join(["headwater verify --env", self.environment, *options]) + self._at(user)

    def capture(self) -> str:
        """Prepares an existing database."""
        return f"headwater db capture {self.existing} --user OWNER --contracts contracts"

    def check(self) -> str:
        """Compares the contracts with their sources."""
        return f"headwater contract check --env {self.environment} --live{self._at('')}"

    def _at(self, user: str) -> str:
        if self.existing:
            return ""
        return " --host HOST" + (f" --user {user}" if user else "")
