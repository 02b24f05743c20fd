"""The paths of the product's own files. The module ``lake_folder`` has the paths of a lake's files."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

SETUP = ROOT / "tools" / "setup"
"""The script that installs what Headwater needs."""

ASSETS_JARS = ROOT / "assets" / "jars"

# Files for reviewers, which ``make requests`` and ``make reference`` write.
RIGHTS = ROOT / "reviewed" / "rights"
PROMISES = ROOT / "reviewed" / "promises.yaml"
REFERENCE = ROOT / "docs" / "reference"

# JSON schemas for editors, which ``make reference`` writes.
SCHEMAS = ROOT / "schemas"

# Build results that do not depend on a lake.
BUILD = ROOT / "build"
