"""Log groups for the Lambda functions that CDK adds by itself. They would otherwise create groups that never expire."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from constructs import Construct

from stacks.base import HeadwaterStack


def keep_function_logs(stack: HeadwaterStack) -> None:
    """Give the function of each of CDK's own custom resources a log group of the stack.

    CDK's own setting for the retention does not reach them, because they are bare resources below the stack.
    """
    for child in stack.node.children:
        if not isinstance(child, Construct) or not child.node.id.endswith("CustomResourceProvider"):
            continue
        handler = child.node.try_find_child("Handler")
        if isinstance(handler, cdk.CfnResource):
            name = child.node.id.removeprefix("Custom::").removesuffix("CustomResourceProvider")
            group = stack.log_group(child, "Logs", f"cdk/{name}")
            handler.add_property_override("LoggingConfig.LogGroup", group.log_group_name)
            _let_write(child, handler, group)


def _let_write(provider: Construct, handler: cdk.CfnResource, group: logs.LogGroup) -> None:
    """Let a provider's role write into that group, but not create it.

    AWS's managed policy includes the right to create a log group. With it, the function's last lines would create the
    group again after the stack has deleted it. Then the next stack of this name could not be created.
    """
    role = provider.node.find_child("Role")
    if not isinstance(role, cdk.CfnResource):
        raise AssertionError(f"{provider.node.path}: found a role without a resource, expected one of this stack")
    role.add_property_override("ManagedPolicyArns", [])
    statement = iam.PolicyStatement(
        actions=["logs:CreateLogStream", "logs:PutLogEvents"], resources=[group.log_group_arn]
    )
    writes = iam.CfnPolicy(
        provider,
        "WritesLogs",
        policy_name="WritesLogs",
        policy_document=iam.PolicyDocument(statements=[statement]),
        roles=[role.ref],
    )
    handler.add_resource_dependency(writes)
