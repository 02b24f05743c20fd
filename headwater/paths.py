"""Where things lie in a checkout."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# What people write.
CONFIG = ROOT / "config"
CONTRACTS = ROOT / "contracts"
ASSETS_JARS = ROOT / "assets" / "jars"

# What reviewers read, and ``make baselines``, ``make requests`` and ``make reference`` write.
REVIEWED = ROOT / "reviewed"
BASELINES = REVIEWED / "baselines"
RIGHTS = REVIEWED / "rights"
REFERENCE = ROOT / "docs" / "reference"

# What editors read, and ``make reference`` writes.
SCHEMAS = ROOT / "schemas"

# What is built here, and not committed.
BUILD = ROOT / "build"
RUN = BUILD / "run"
SYNTHESIZED = ROOT / "cdk.out"
