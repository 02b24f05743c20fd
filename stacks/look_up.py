"""Values that only AWS knows, queried when a stack is deployed."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import aws_iam as iam
from aws_cdk import custom_resources as custom

from stacks.base import HeadwaterStack


def look_up(
    stack: HeadwaterStack, name: str, call: custom.AwsSdkCall, action: str, resources: Sequence[str]
) -> custom.AwsCustomResource:
    """Call one AWS operation when the stack is created, and again when ``call`` changes.

    A new version of CDK may change the rest of the resource, which repeats the call too.

    ``action`` is the right that the call needs, on ``resources``. The names of the role and the log group contain
    ``name``.
    """
    logs = stack.log_group(stack, f"{name}Logs", f"look-ups/{name.lower()}")
    role = iam.Role(
        stack,
        f"{name}Role",
        description=f"Headwater's look-up {name}",
        assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
    )
    logs.grant_write(role)
    return custom.AwsCustomResource(
        stack,
        name,
        on_create=call,
        on_update=call,
        install_latest_aws_sdk=False,
        log_group=logs,
        role=role,
        policy=custom.AwsCustomResourcePolicy.from_statements(
            [iam.PolicyStatement(actions=[action], resources=list(resources))]
        ),
    )
