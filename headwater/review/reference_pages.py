"""The pages of ``docs/reference`` that are made from the baselines: ``flows.md`` and ``permissions.md``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from headwater.environment import model as environment
from headwater.environment.rules import read_environment
from headwater.errors import UserError
from headwater.lake_folder import EXAMPLE
from headwater.paths import REFERENCE
from headwater.review import baselines, policies, reachability, rights
from headwater.review.reachability import Declared, Network
from headwater.review.rights import Principal
from headwater.review.templates import Deployment

FLOWS = REFERENCE / "flows.md"
PERMISSIONS = REFERENCE / "permissions.md"

_FLOWS = """# Who reaches whom
Every connection that routes, endpoints and security groups let through, read from the templates.
`headwater/review/flows.yaml` lists the flows that the pipeline needs and other flows that are tolerated. The
tests fail where a needed flow is closed, and where an open flow is neither needed nor tolerated. `make reference`
writes this page.

`internet` stands for every address outside the VPC, `beyond the VPC` for another VPC and for networks that rules name.
Ports are the destination's.

## All open flows
{flows}
## Needed flows
A service marked `by its endpoint` must be reached by an endpoint in the VPC; any other service may also be reached by
the internet.

| from | to | ports | reason |
|---|---|---|---|
{needed}
Beside them, where the deployment makes the database:

| from | to | ports | reason |
|---|---|---|---|
{aurora}
Where the database exists, by a peering or on its owner's way:

| from | to | ports | reason |
|---|---|---|---|
{existing}
If [`emr.web_interfaces`](stacks.md#the-clusters-web-interfaces) is true; if it is false, these flows are closed:

| from | to | ports | reason |
|---|---|---|---|
{web_interfaces}
## Tolerated flows
The pipeline does not need them. `*` stands for any text.

| from | to | ports | reason |
|---|---|---|---|
{tolerated}"""

_PERMISSIONS = """# Who may do what
Each part has a role of its own, which a deploy makes; `reviewed/baselines/ENV/` has its policies. For the first deploy
you need an [administrator's credentials](../tutorial/deploy.md#1-prepare), and for queries [a role to
assume](../how-to/query.md#who-may-query). [Status](../how-to/operate.md#which-rights-it-needs),
[verify](../how-to/verify.md), [resync](../how-to/resync.md) and [backfill](../how-to/backfill.md) name theirs.

`reviewed/rights/` has one file for each writer, connector and custom resource, with the rights that it needs.
It asked for the `recorded` rights in the local run; `declared` rights, each with its reason, are those that no local
run can record. The tests fail where a synthesized policy lacks a needed right. `make requests` records the
rights again; `make reference` writes this page.

Names in braces differ between environments. `{{lake}}`, `{{landing}}` and the like are names of buckets.

## Granted, but not needed
Rights that the policies grant to a principal that does not need them. CDK grants rights in sets; what a set holds
beyond the needed rights is listed here.

| principal | actions | resources | environments |
|---|---|---|---|
{unused}
## Unproven
What the tests can neither prove nor refute. They evaluate identity policies, the policies of buckets, keys, secrets and
topics, and the condition keys `aws:SecureTransport`, `aws:SourceAccount`, `s3:TlsVersion`, `s3:prefix`,
`kms:ViaService` and `cloudwatch:namespace`. They do not see trust policies, permission boundaries, organization
policies and session policies.

| what | environments |
|---|---|
{unproven}"""


def deployments(folder: Path = EXAMPLE.baselines) -> dict[str, Deployment]:
    """Every environment's deployment, read from its baselines. Raises UserError if an environment has no baselines."""
    by_environment = {}
    for name in environment.on_aws(EXAMPLE.config):
        templates = baselines.read(folder / name)
        if not templates:
            raise UserError(f"{folder / name}: found no baselines, expected one per stack: run `headwater baselines`")
        by_environment[name] = Deployment.of_baselines(templates, read_environment(name, EXAMPLE.config))
    return by_environment


def flows(deployments: Mapping[str, Deployment]) -> str:
    """The text of ``flows.md`` for these deployments, given by environment."""
    declared = reachability.declarations()
    networks = {name: Network(deployment, declared.names) for name, deployment in deployments.items()}
    return _FLOWS.format(
        flows=reachability.table(networks),
        needed=_rows(declared.needed),
        aurora=_rows(declared.databases["aurora"]),
        existing=_rows(declared.databases["existing"]),
        web_interfaces=_rows(declared.web_interfaces),
        tolerated=_rows(declared.tolerated),
    )


def permissions(deployments: Mapping[str, Deployment], principals: Sequence[Principal]) -> str:
    """The text of ``permissions.md`` for these deployments, given by environment."""
    unused: dict[tuple[str, str], dict[str, set[str]]] = {}
    unproven: dict[str, set[str]] = {}
    for name, deployment in sorted(deployments.items()):
        granted = policies.read(deployment)
        judged = policies.needed_by(deployment, principals)
        judgements = [policies.judge(deployment, granted, principal) for principal in judged]
        doubts = [f"{judgement.principal}: {text}" for judgement in judgements for text in judgement.unproven]
        for text in (*doubts, *policies.unjudged(granted, principals)):
            unproven.setdefault(_in_braces(text, deployment), set()).add(name)
        for judgement in judgements:
            for action, resource in judgement.unused:
                resources = unused.setdefault((judgement.principal, action), {})
                resources.setdefault(_in_braces(resource, deployment), set()).add(name)
    return _PERMISSIONS.format(
        unused="".join(_unused_rows(unused)),
        unproven="".join(f"| {text} | {', '.join(sorted(names))} |\n" for text, names in sorted(unproven.items())),
    )


def _unused_rows(unused: Mapping[tuple[str, str], Mapping[str, set[str]]]) -> Iterator[str]:
    """Rows of principal, actions, resources and environments. Actions on the same resources share a row."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for (principal, action), resources in sorted(unused.items()):
        by_environments: dict[str, list[str]] = {}
        for resource, names in sorted(resources.items()):
            by_environments.setdefault(", ".join(sorted(names)), []).append(resource)
        for environments, arns in by_environments.items():
            rows.setdefault((principal, _code(arns), environments), []).append(action)
    for (principal, arns_text, environments), actions in rows.items():
        yield f"| {principal} | {_code(actions)} | {arns_text} | {environments} |\n"


def _code(texts: Iterable[str]) -> str:
    return ", ".join(f"`{text}`" for text in texts)


def pages() -> dict[Path, str]:
    """The text of both pages from the baselines of this checkout, by file."""
    reviewed = deployments()
    return {FLOWS: flows(reviewed), PERMISSIONS: permissions(reviewed, rights.read_principals())}


def _rows(declared: Iterable[Declared]) -> str:
    lines = []
    for flow in declared:
        source, destination = (name.replace("*", "\\*") for name in (flow.source, flow.destination))
        by = " (by its endpoint)" if flow.kind == "endpoint" else ""
        ports = "the database's" if flow.kind == "database" else flow.ports
        lines.append(f"| {source} | {destination}{by} | {ports} | {flow.reason} |\n")
    return "".join(lines)


def _in_braces(text: str, deployment: Deployment) -> str:
    """The text with names in braces in place of values that differ between environments."""
    places = policies.places(deployment)
    environment_name = places["environment"]
    # The longest first: the name of the assets' bucket contains account and region.
    for place, value in sorted(places.items(), key=lambda entry: -len(entry[1])):
        # Either may be part of other names.
        if place not in ("environment", "source_secret"):
            text = text.replace(value, f"{{{place}}}")
    for before in ("headwater-", "headwater/", "headwater_"):
        text = text.replace(f"{before}{environment_name}", f"{before}{{environment}}")
    return text
