"""Change the code in every small way that mutmut knows, and fail if the tests detect too few of the mutants.

``tools/mutants.py [MODULE …]``: all modules of ``[tool.mutmut]`` in pyproject.toml, or some, such as ``lease``. Some
code decides on the order of changes, the location of rows, and quarantined records: the tests must detect all its
mutants. Of other code, such as messages, they must detect a share. reviewed/equivalent_mutants.txt lists mutants that
mean the same as the code, each with the reason.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MUTANTS = ROOT / "mutants"
MUTMUT = [sys.executable, "-m", "mutmut"]
LEAST_SHARES = {
    "announcements": 0.85,
    "backfill_requests": 0.85,
    "debezium_decoder": 0.7,
    "dynamodb_decoder": 0.7,
    "dynamodb_export": 0.75,
    "dynamodb_values": 0.7,
    "exact_values": 0.8,
    "failures": 0.85,
    "left_out": 0.8,
    "metrics": 0.9,
    "protocol": 0.85,
    "rest_values": 0.8,
}
"""The least share of a module's mutants that the tests must detect. For other modules it is 1."""
DECISIVE = re.compile("order|floor|place|tombstone|commit_before|lsn|epoch|digits|micros")
"""The tests must detect all mutants of functions with such names, in these modules too."""
SURVIVED = (0, 33, None)
"""mutmut's exit codes for mutants that no test detects: the tests passed, no test runs the function, not tried."""


def equivalent() -> set[tuple[str, str]]:
    """The listed mutants: of each the line of the code and the line of the mutant."""
    pairs, old = set(), ""
    for line in (ROOT / "reviewed" / "equivalent_mutants.txt").read_text().splitlines():
        if line.startswith("- "):
            old = line[2:]
        elif line.startswith("+ "):
            pairs.add((old, line[2:]))
    return pairs


def change(mutant: str) -> tuple[str, str]:
    """The lines that a mutant changes, and their replacements, each joined to one line."""
    shown = subprocess.run([*MUTMUT, "show", mutant], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    lines = [line for line in shown.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    old, new = ([line[1:].strip() for line in lines if line[0] == sign] for sign in "-+")
    return " ".join(old), " ".join(new)


def function(mutant: str) -> str:
    """The name of the function that a mutant changes."""
    return mutant.rpartition(".")[2].rpartition("__mutmut_")[0]


def main(modules: list[str]) -> int:
    """Run mutmut module by module. Returns 0 if the tests detect enough mutants."""
    known = equivalent()
    failed = False
    mutated = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mutmut"]["only_mutate"]
    files = {Path(file).stem: Path(file) for file in mutated}
    if unknown_names := sorted(set(modules) - set(files)):
        sys.exit(f"found {', '.join(unknown_names)}, expected some of {', '.join(sorted(files))}")
    for module in modules or files:
        began = time.monotonic()
        command = [
            *MUTMUT,
            "run",
            "--max-children",
            os.environ.get("PROCESSES", "2"),
            f"{'.'.join(files[module].with_suffix('').parts)}.*",
        ]
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        # mutmut writes an exit code per mutant. None means that it has not run all mutants.
        meta = MUTANTS / f"{files[module]}.meta"
        results = json.loads(meta.read_text())["exit_code_by_key"] if meta.exists() else {}
        if not results or None in results.values():
            failed = True
            sys.stdout.write(ran.stdout[-2000:] + ran.stderr[-2000:])
        # Drop the survivors that are listed as equivalent to the code.
        survivors = {mutant: change(mutant) for mutant, code in results.items() if code in SURVIVED}
        unknown = {mutant: pair for mutant, pair in survivors.items() if pair not in known}
        killed, same = len(results) - len(survivors), len(survivors) - len(unknown)
        # A module allows either no survivor, or a share of survivors outside of decisive functions.
        least = LEAST_SHARES.get(module, 1.0)
        decisive = [mutant for mutant in unknown if least == 1.0 or DECISIVE.search(function(mutant))]
        failed = failed or bool(decisive) or len(unknown) > (1 - least) * len(results)
        counts = f"{len(results)} mutants, {killed} killed, {same} equivalent, {len(unknown)} left"
        sys.stdout.write(f"{module}: {counts}, {time.monotonic() - began:.0f} s\n")
        for mutant, (old, new) in unknown.items():
            must = " (must be seen)" if mutant in decisive else ""
            sys.stdout.write(f"  {mutant}{must}\n  - {old}\n  + {new}\n")
        sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
