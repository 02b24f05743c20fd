"""Corrections of ministack's evaluation of IAM rights, and the names of our handlers' resources in it."""

import json
import logging
import re
from collections.abc import Callable
from typing import Any

from ministack import app
from ministack.core import iam_actions, iam_evaluator
from ministack.services import kinesis

HOOKS = (
    (app, "pin_request_origin"),
    (iam_actions, "SERVICE_TO_IAM_NAMESPACE"),
    (iam_actions, "_BOTOCORE_SERVICE_MAP"),
    (iam_actions, "_param"),
    (iam_actions, "extract_resource_arn"),
    (iam_actions, "request_tag_context"),
    (iam_evaluator, "AuthError"),
    (iam_evaluator, "EvalResult"),
    (iam_evaluator, "authenticate"),
    (iam_evaluator, "enforce"),
    (iam_evaluator, "evaluate_trust_policy"),
    (kinesis, "_shard_iterators"),
)
"""The functions and attributes of ministack that this module calls or replaces."""

_CONNECT = "kafkaconnect"
_CONNECT_ARN = re.compile(r"arn:aws:kafkaconnect:[^:]*:\d+:[^/]+/[^/]+/[^/]+")
_LOG_GROUP = re.compile(r"arn:aws:logs:[^:]*:\d+:log-group:[^:]+")
_TAGGING = {"ListTagsForResource", "TagResource", "UntagResource"}
_PUBLIC_PARAMETER = re.compile(r"(arn:aws:ssm:[^:]*:)\d+(:parameter/aws/)")

_LOG = logging.getLogger("ministack")

Tags = Callable[[str], dict[str, str]]
"""The tags of a resource that our handlers made, by its ARN."""


def hook(tags: Tags) -> None:
    """Make requests allowed and refused as on AWS."""
    # Requests on this machine count as TLS, which the bucket policies require.
    pin = app.pin_request_origin
    app.pin_request_origin = lambda address, _: pin(address, True)

    iam_actions.SERVICE_TO_IAM_NAMESPACE[_CONNECT] = _CONNECT
    iam_actions._BOTOCORE_SERVICE_MAP[_CONNECT] = [_CONNECT]
    iam_actions.request_tag_context = _with_conditions(iam_actions.request_tag_context)
    iam_actions.extract_resource_arn = _as_aws_names_them(iam_actions.extract_resource_arn)
    iam_evaluator.authenticate = _telling(iam_evaluator.authenticate)
    iam_evaluator.enforce = _telling(_with_tags(iam_evaluator.enforce, tags))
    iam_evaluator.evaluate_trust_policy = _of_services(iam_evaluator.evaluate_trust_policy)


def _telling(check: Callable[..., Any]) -> Callable[..., Any]:
    """Log each refused request."""

    def told(*request: Any, **more: Any) -> Any:
        answer = check(*request, **more)
        if isinstance(answer, iam_evaluator.AuthError | iam_evaluator.EvalResult):
            _LOG.warning("Refused: %s %s: %s", " ".join(map(str, request)), more.get("resource_arn", ""), answer)
        return answer

    return told


def _as_aws_names_them(extract: Callable[..., str]) -> Callable[..., str]:
    """The resource of a request, in the form in which policies name it."""

    def extracted(
        service: str, method: str, path: str, headers: Any, body: bytes, query: Any, region: str, account: str
    ) -> str:
        if service == _CONNECT:
            named = _CONNECT_ARN.search(path)
            return named.group() if named else "*"
        operation = headers.get("x-amz-target", "").rpartition(".")[2]
        if service == "kinesis" and operation == "GetRecords":
            # An iterator's stream.
            iterator = kinesis._shard_iterators.get(json.loads(body)["ShardIterator"])
            return f"arn:aws:kinesis:{region}:{account}:stream/{iterator['stream']}" if iterator else "*"
        arn = extract(service, method, path, headers, body, query, region, account)
        if service == "logs" and operation not in _TAGGING and _LOG_GROUP.fullmatch(arn):
            return f"{arn}:*"
        # The ARNs of parameters that AWS publishes have no account.
        return _PUBLIC_PARAMETER.sub(r"\1\2", arn)

    return extracted


def _with_conditions(context: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """The values of a request for the conditions of policies."""

    def known(service: str, action: str, body: bytes, query: Any) -> dict[str, Any]:
        found = context(service, action, body, query)
        if action == "cloudwatch:PutMetricData":
            found["cloudwatch:namespace"] = iam_actions._param(body, query, "Namespace")
        if action == "events:PutEvents":
            # AWS checks each entry separately.
            found["events:source"] = ",".join({entry["Source"] for entry in json.loads(body)["Entries"]})
        return found

    return known


def _with_tags(enforce: Callable[..., Any], tags: Tags) -> Callable[..., Any]:
    """Let EMR's rights depend on the tags of its clusters."""

    def enforced(key: str, action: str, service: str, region: str, resource_arn: str = "*", **more: Any) -> Any:
        if service == "elasticmapreduce":
            of = {f"{service}:ResourceTag/{name}": value for name, value in tags(resource_arn).items()}
            more["service_context"] = {**(more.get("service_context") or {}), **of}
        return enforce(key, action, service, region, resource_arn=resource_arn, **more)

    return enforced


def _of_services(evaluate: Callable[..., Any]) -> Callable[..., Any]:
    """Let a handler assume a role as an AWS service, if the role trusts that service for that resource.

    The handler calls with the account's own credentials. The session has the service's name, and the external id is the
    resource.
    """

    def evaluated(document: Any, caller: str, context: Any = None) -> bool:
        known = {} if context is None else context.service_context
        service, resource = known.get("sts:rolesessionname") or "", known.get("sts:externalid")
        if not caller.endswith(":root") or not service.endswith(".amazonaws.com"):
            return bool(evaluate(document, caller, context))
        known |= {"aws:sourceaccount": context.principal_account, "aws:sourcearn": resource}
        trust = json.loads(document) if isinstance(document, str) else document
        statements = [each for each in _listed(trust["Statement"]) if _names(each["Principal"], service)]
        return bool(evaluate({**trust, "Statement": statements}, caller, context))

    return evaluated


def _names(principal: Any, service: str) -> bool:
    """Whether a statement's principal includes a service."""
    if not isinstance(principal, dict):
        return bool(principal == "*")
    return service in _listed(principal.get("Service", [])) or "*" in _listed(principal.get("AWS", []))


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
