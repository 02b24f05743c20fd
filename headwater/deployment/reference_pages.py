"""The pages of docs/reference that are made from the baselines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from headwater.deployment import baselines, environment, policies, reachability, rights
from headwater.deployment.environment_rules import read_environment
from headwater.deployment.reachability import Declared, Network
from headwater.deployment.rights import Principal
from headwater.deployment.templates import Deployment
from headwater.errors import UserError
from headwater.paths import BASELINES, CONFIG, REFERENCE

FLOWS = REFERENCE / "flows.md"
PERMISSIONS = REFERENCE / "permissions.md"

_FLOWS = """# Who reaches whom
Every connection that routes, endpoints and security groups let through, from the templates alone. The tests fail where
a flow that the pipeline needs is closed, and where one is open that `headwater/deployment/flows.yaml` neither needs nor
allows. `make reference` writes this page.

An address beyond the VPC is `internet`; an AWS service is reached by its endpoint where there is one. Ports are the
destination's.

## All allowed flows
{flows}
## Needed
| from | to | ports | reason |
|---|---|---|---|
{needed}
## Not needed, but allowed
`*` stands for anything.

| from | to | ports | reason |
|---|---|---|---|
{tolerated}"""

_PERMISSIONS = """# Who may do what
The rights that the writers, connectors and custom resources ask for are recorded in the local run, or declared where
only AWS's own parts ask for them: `reviewed/rights/`, one file a principal. The tests fail where a synthesized
policy lacks one. `make reference` writes this page, `make requests` records anew.

Names in braces differ between environments: `{{lake}}`, `{{landing}}` and so on are names of buckets.

## Granted, but never asked for
What the policies of these principals give and no recorded run used. CDK's grants come in sets; what a set has too much
stands here.

| principal | actions | resources | environments |
|---|---|---|---|
{unused}
## Unproven
What the evaluation could not judge: it knows identity policies, policies of buckets, keys, secrets and topics, and the
conditions `aws:SecureTransport`, `aws:SourceAccount`, `s3:TlsVersion`, `s3:prefix`, `kms:ViaService` and
`cloudwatch:namespace`. It sees no trust policy, permission boundary, organization policy or session policy.

| what | environments |
|---|---|
{unproven}"""


def deployments(folder: Path = BASELINES) -> dict[str, Deployment]:
    """Every environment's deployment, from its baselines. Raises UserError where there are none."""
    found = {}
    for name in environment.names(CONFIG):
        templates = baselines.read(folder / name)
        if not templates:
            raise UserError(f"{folder / name}: found no baseline, expected some: run `make baselines`")
        found[name] = Deployment.of_baselines(templates, read_environment(name, CONFIG))
    return found


def flows(found: Mapping[str, Deployment]) -> str:
    """``docs/reference/flows.md``."""
    declared = reachability.declarations()
    networks = {name: Network(one, declared.names) for name, one in found.items()}
    return _FLOWS.format(
        flows=reachability.table(networks), needed=_rows(declared.needed), tolerated=_rows(declared.tolerated)
    )


def permissions(found: Mapping[str, Deployment], principals: Iterable[Principal]) -> str:
    """``docs/reference/permissions.md``."""
    known = list(principals)
    unused: dict[tuple[str, str], dict[str, set[str]]] = {}
    unproven: dict[str, set[str]] = {}
    for name, deployment in sorted(found.items()):
        own = policies.read(deployment)
        judgements = [policies.judge(deployment, own, principal) for principal in known]
        doubts = [f"{one.principal}: {text}" for one in judgements for text in one.unproven]
        for text in (*doubts, *policies.unjudged(own, known)):
            unproven.setdefault(_in_braces(text, deployment), set()).add(name)
        for one in judgements:
            for action, resource in one.unused:
                resources = unused.setdefault((one.principal, action), {})
                resources.setdefault(_in_braces(resource, deployment), set()).add(name)
    return _PERMISSIONS.format(
        unused="".join(_unused_rows(unused)),
        unproven="".join(f"| {text} | {', '.join(sorted(names))} |\n" for text, names in sorted(unproven.items())),
    )


def _unused_rows(unused: Mapping[tuple[str, str], Mapping[str, set[str]]]) -> Iterator[str]:
    """Rows of principal, actions, resources and environments: actions that are alike in the rest share one."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for (principal, action), resources in sorted(unused.items()):
        by_environments: dict[str, list[str]] = {}
        for resource, names in sorted(resources.items()):
            by_environments.setdefault(", ".join(sorted(names)), []).append(resource)
        for names_, those in by_environments.items():
            rows.setdefault((principal, _code(those), names_), []).append(action)
    for (principal, resources_, names_), actions in rows.items():
        yield f"| {principal} | {_code(actions)} | {resources_} | {names_} |\n"


def _code(texts: Iterable[str]) -> str:
    return ", ".join(f"`{text}`" for text in texts)


def pages() -> dict[Path, str]:
    """Both pages, from the baselines of this checkout, by the file that holds them."""
    found = deployments()
    return {FLOWS: flows(found), PERMISSIONS: permissions(found, rights.read_principals())}


def _rows(declared: Iterable[Declared]) -> str:
    lines = []
    for one in declared:
        source, destination = (name.replace("*", "\\*") for name in (one.source, one.destination))
        by = " (by its endpoint)" if one.kind == "endpoint" else ""
        lines.append(f"| {source} | {destination}{by} | {one.ports} | {one.reason} |\n")
    return "".join(lines)


def _in_braces(text: str, deployment: Deployment) -> str:
    """A text with what differs between environments in braces."""
    places = policies.places(deployment)
    name = places["environment"]
    # The longest first: a bucket of assets holds account and region.
    for place, value in sorted(places.items(), key=lambda entry: -len(entry[1])):
        if place != "environment":
            text = text.replace(value, f"{{{place}}}")
    for before in ("headwater-", "headwater/", "headwater_"):
        text = text.replace(f"{before}{name}", f"{before}{{environment}}")
    return text
