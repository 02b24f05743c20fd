"""Log groups for the Lambda functions that CDK brings along, which would otherwise make their own and keep them for
ever."""

from __future__ import annotations

import aws_cdk as cdk
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
