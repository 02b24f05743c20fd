"""Where the product's own files lie. ``lake_folder`` has the places of a lake."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

ASSETS_JARS = ROOT / "assets" / "jars"

# What reviewers read, and ``make requests`` and ``make reference`` write.
RIGHTS = ROOT / "reviewed" / "rights"
PROMISES = ROOT / "reviewed" / "promises.yaml"
REFERENCE = ROOT / "docs" / "reference"

# What editors read, and ``make reference`` writes.
SCHEMAS = ROOT / "schemas"

# What is built of the product alone, for every lake.
BUILD = ROOT / "build"
