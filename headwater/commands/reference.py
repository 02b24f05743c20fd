"""`headwater reference`: write the pages of docs/reference that are made from the baselines."""

from headwater.console import say
from headwater.deployment import reference_pages
from headwater.paths import ROOT


def reference() -> None:
    """Write docs/reference/flows.md and docs/reference/permissions.md anew from reviewed/baselines."""
    changed = reference_pages.write()
    for path in changed:
        say(f"wrote {path.relative_to(ROOT)}")
    if not changed:
        say("The pages are up to date")
