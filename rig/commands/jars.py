"""``headwater dev jars``: verify the jars and plugins against their lock, or renew the lock."""

import typer

from headwater.console import announce, say
from headwater.packaging import jars

app = typer.Typer(help="Jars and plugins: verify them against their lock, or renew the lock.", no_args_is_help=True)


@app.command()
def verify() -> None:
    """Check every downloaded jar under build/ against assets/jars/jars.lock."""
    jars.verify()
    say(f"{sum(len(jars.locked(name)) for name in jars.SETS)} jars match the lock")


@app.command()
def fetch() -> None:
    """Download the jars that are missing or differ from the lock."""
    jars.fetch(announce)


@app.command()
def lock() -> None:
    """Resolve assets/jars/pom.xml and connect/pom.xml again, and write assets/jars/jars.lock."""
    jars.write_lock(announce)
    say(f"wrote {jars.LOCK}: review what changed before you commit it")
