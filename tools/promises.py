"""Apply the mutation of each promise to a copy of this checkout, and fail if the promise's test still passes.

The tests run once without a mutation first, because a test that fails anyway proves nothing.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from headwater import process_groups
from headwater.errors import UserError
from headwater.paths import BUILD
from rig.documentation.promises import LIST, SUITES, Promise, read
from rig.local_aws.checkout import Checkout

PASSED, FAILED = 0, 1
"""The exit status of pytest if all tests passed, and if one failed. With any other status, the tests did not run."""
NOT_COMPILED = "COMPILATION ERROR"
"""Maven writes this text if the code does not compile. Its exit status is the same as for a failed test."""


def main(arguments: Sequence[str]) -> int:
    """Check the chosen promises. Returns 0 if each test passes without its promise's mutation and fails with it."""
    try:
        options = _options(arguments)
        promises = _chosen(options)
        options.folder.mkdir(parents=True, exist_ok=True)
        wrong = [] if options.mutations_only else _failing(promises, options.folder)
        wrong += [promise.name for promise in promises if not _is_guarded(promise, options.folder)]
    except UserError as error:
        return _end(str(error), 2)
    except KeyboardInterrupt:
        return _end("Interrupted", 130)
    if wrong:
        return _end(f"Not as it should be: {', '.join(wrong)}. The logs are in {options.folder}", 1)
    return _end(f"Each of {len(promises)} mutations makes its test fail", 0)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools/promises.py", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="check these promises only")
    parser.add_argument("--suite", choices=SUITES, help="check the promises that this suite guards")
    parser.add_argument("--mutations-only", action="store_true", help="leave out the run without mutations")
    parser.add_argument("--list", type=Path, default=LIST, help="the list of promises (reviewed/promises.yaml)")
    parser.add_argument("--folder", type=Path, default=BUILD / "promises", help="copies and logs (build/promises)")
    return parser.parse_args(arguments)


def _chosen(options: argparse.Namespace) -> list[Promise]:
    promises = {promise.name: promise for promise in read(options.list).promises}
    if unknown := [name for name in options.names if name not in promises]:
        raise UserError(f"{options.list}: found no promise {', '.join(unknown)}, expected one of {', '.join(promises)}")
    named = [promises[name] for name in options.names] or list(promises.values())
    chosen = [promise for promise in named if options.suite in (None, promise.suite)]
    if not chosen:
        raise UserError(f"{options.list}: found no promise that `make {options.suite}` guards, expected one at least")
    return chosen


def _failing(promises: Sequence[Promise], place: Path) -> list[str]:
    """Run the tests of these promises without a mutation, folder by folder. Returns the folders with a failing test."""
    folders: dict[str, dict[str, None]] = {}
    for promise in promises:
        folders.setdefault("/".join(promise.test.split("/")[:2]), {})[promise.test] = None
    return [folder for folder, tests in folders.items() if _ran(folder, list(tests), None, place) != PASSED]


def _is_guarded(promise: Promise, place: Path) -> bool:
    """Whether a promise's test fails once its mutation is applied."""
    return _ran(promise.name, [promise.test], promise, place) == FAILED


def _ran(name: str, tests: Sequence[str], mutation: Promise | None, place: Path) -> int | None:
    """Run tests in a copy of this checkout in the folder ``place``, with the mutation of a promise.

    Returns ``PASSED``, ``FAILED``, or None if the tests did not run to their end. The log stays in ``place``.
    """
    began = time.monotonic()
    log = place / f"{name.replace('/', '-')}.log"
    log.unlink(missing_ok=True)
    verdict = None
    try:
        with tempfile.TemporaryDirectory(dir=place) as folder:
            checkout = Checkout(Path(folder) / "checkout", assets=not _is_unit(tests))
            if mutation is not None:
                checkout.change(mutation.file, mutation.old, mutation.new)
            status = _run(checkout, tests, log)
        if status in (PASSED, FAILED) and NOT_COMPILED not in log.read_text(errors="replace"):
            verdict = status
        said = {PASSED: "passed", FAILED: "failed", None: f"did not run to the end (status {status})"}[verdict]
    except UserError as error:
        said = f"did not run: {error}"
    sys.stdout.write(f"{name}: {', '.join(tests)} {said}, {time.monotonic() - began:.0f} s\n")
    sys.stdout.flush()
    return verdict


def _run(checkout: Checkout, tests: Sequence[str], log: Path) -> int:
    """Run tests in a copy, and return the exit status.

    Raises UserError if the assets cannot be made, or if a program stands still.
    """
    environment = checkout.environment({"PYTHONPATH": str(checkout.folder)})
    if ".java::" in tests[0]:
        methods = ",".join(
            f"{Path(file).stem}#{method}" for file, _, method in (test.partition("::") for test in tests)
        )
        command = ["mvn", "--quiet", "--file", "connect/pom.xml", f"-Dtest={methods}", "test"]
    else:
        command = [sys.executable, "-m", "pytest", "--exitfirst", "-p", "no:cacheprovider", *tests]
        # Build the jars and the package for AWS from the changed code. Unit tests need neither.
        if not _is_unit(tests):
            assets = process_groups.run(
                "assets", checkout.headwater("dev", "assets"), log, environment, checkout.folder
            )
            if assets:
                raise UserError(f"`headwater dev assets` failed. Its log is {log}")
    return process_groups.run("the run", command, log, environment, checkout.folder)


def _is_unit(tests: Sequence[str]) -> bool:
    """Whether tests are unit tests. They are all in one folder."""
    return tests[0].startswith("tests/unit/")


def _end(message: str, status: int) -> int:
    sys.stdout.write(f"{message}\n")
    return status


if __name__ == "__main__":
    # A SIGTERM to this run ends its tests too, as an interrupt does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
