"""The paths of the product's own files. The module ``lake_folder`` has the paths of a lake's files."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

SETUP = ROOT / "tools" / "setup"
"""The script that installs what Headwater needs."""

ASSETS_JARS = ROOT / "assets" / "jars"

# What reviewers read, and ``make requests`` and ``make reference`` write.
RIGHTS = ROOT / "reviewed" / "rights"
PROMISES = ROOT / "reviewed" / "promises.yaml"
REFERENCE = ROOT / "docs" / "reference"

# What editors read, and ``make reference`` writes.
SCHEMAS = ROOT / "schemas"

# What is built of the product alone, for every lake.
BUILD = ROOT / "build"
