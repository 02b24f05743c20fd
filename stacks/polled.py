"""The Lambda functions of ``custom_resources/``, and the provider of custom resources that take more than one step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import custom_resources as custom
from constructs import Construct

from stacks.assets import Assets
from stacks.base import HeadwaterStack
from stacks.nag import Reason, acknowledge, acknowledge_wildcard

# Longer than custom_resources.lifecycle waits, whose error names what it waited for. CloudFormation waits an hour.
_LONGEST = cdk.Duration.minutes(55)
# Shorter than the timeout of the framework's function that calls this one.
LONGEST_STEP = cdk.Duration.minutes(14)


class Functions(Construct):
    """Lambda functions from one module of ``custom_resources/``.

    ``role`` is the functions' execution role. Each construct that owns a resource grants it rights. The functions are
    in no VPC, because they call AWS's own APIs only.
    """

    def __init__(self, stack: HeadwaterStack, name: str, *, module: str, assets: Assets) -> None:
        super().__init__(stack, name)
        self._stack = stack
        self._module = module
        self._code = lambda_.Code.from_asset(str(assets.custom_resources()))
        self._logs = stack.log_group(self, "Logs", f"custom-resources/{name.lower()}")
        self.role = self._make_role("Role")

    def function(self, name: str, handler: str, timeout: cdk.Duration) -> lambda_.Function:
        """A function of the module, with the role."""
        return self._make_function(name, f"{self._module}.{handler}", self.role, timeout)

    def _make_function(self, name: str, handler: str, role: iam.Role, timeout: cdk.Duration) -> lambda_.Function:
        return lambda_.Function(
            self,
            name,
            runtime=lambda_.Runtime.PYTHON_3_14,
            architecture=lambda_.Architecture.ARM_64,
            code=self._code,
            handler=f"custom_resources.{handler}",
            role=role,
            timeout=timeout,
            memory_size=256,
            log_group=self._logs,
        )

    def _make_role(self, name: str) -> iam.Role:
        role = iam.Role(self, name, assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        self._logs.grant_write(role)
        return role


class PolledProvider(Functions):
    """Functions that CDK's provider framework calls until CloudFormation's request is done."""

    def __init__(self, stack: HeadwaterStack, name: str, *, module: str, assets: Assets) -> None:
        super().__init__(stack, name, module=module, assets=assets)
        on_event_role = self._make_role("OnEventRole")
        framework_roles = [self._make_role(f"Framework{name}Role") for name in ("OnEvent", "IsComplete")]
        on_event = self._make_function("OnEvent", "lifecycle.on_event", on_event_role, cdk.Duration.minutes(1))
        is_complete = self.function("IsComplete", "is_complete", LONGEST_STEP)
        self._provider = custom.Provider(
            self,
            "Provider",
            on_event_handler=on_event,
            is_complete_handler=is_complete,
            query_interval=cdk.Duration.seconds(stack.environment_settings.deployment.poll_seconds),
            total_timeout=_LONGEST,
            framework_on_event_role=framework_roles[0],
            framework_complete_and_timeout_role=framework_roles[1],
            log_group=self._logs,
        )
        # The framework's roles may call all versions of the two functions, and cdk-nag reports that.
        for role in framework_roles:
            _acknowledge_versions(role, [on_event, is_complete])
        waiter = self._provider.node.find_child("waiter-state-machine")
        called = [self._provider.node.find_child(f"framework-{name}") for name in ("isComplete", "onTimeout")]
        waiter_role = waiter.node.find_child("Role")
        _trust_own_account(stack, waiter_role)
        _acknowledge_versions(waiter_role, called)
        for rule in ("SF1", "SF2"):
            acknowledge(waiter, rule, Reason.FUNCTIONS_LOG)

    def resource(self, type_: str, id_: str, name: str, properties: Mapping[str, Any]) -> cdk.CustomResource:
        """Make a resource of the type ``Custom::Headwater<type_>``. Its physical id is ``name`` and never changes."""
        return cdk.CustomResource(
            self._stack,
            id_,
            resource_type=f"Custom::Headwater{type_}",
            service_token=self._provider.service_token,
            properties={"Name": name, **properties},
        )


def _trust_own_account(stack: HeadwaterStack, role: Any) -> None:
    """Let Step Functions use the role of CDK's waiter only for a state machine of this account.

    https://docs.aws.amazon.com/step-functions/latest/dg/procedure-create-iam-role.html
    """
    machines = stack.format_arn(
        service="states", resource="stateMachine", resource_name="*", arn_format=cdk.ArnFormat.COLON_RESOURCE_NAME
    )
    conditions = stack.service_principal("states.amazonaws.com", machines).policy_fragment.conditions
    role.node.default_child.add_property_override("AssumeRolePolicyDocument.Statement.0.Condition", conditions)


def _acknowledge_versions(role: Any, functions: Sequence[Any]) -> None:
    """Acknowledge that CDK's grant of a function covers its versions. CDK returns its own constructs without a type."""
    arns = [f"{function.function_arn}:*" for function in functions]
    acknowledge_wildcard(role, arns, Reason.VERSIONS_OF_ONE_FUNCTION)
