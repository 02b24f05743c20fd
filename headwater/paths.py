"""Where things lie in a checkout."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONTRACTS = ROOT / "contracts"
ASSETS_JARS = ROOT / "assets" / "jars"
BUILD = ROOT / "build"
RUN = BUILD / "run"
SYNTHESIZED = ROOT / "cdk.out"
