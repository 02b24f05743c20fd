"""The EventBridge rules that restart a step or a run after it has ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import aws_cdk as cdk
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_


@dataclass(frozen=True)
class Restarts:
    """EventBridge rules that call ``function`` to restart the step or run of ``resource``.

    Events arrive within seconds after the end. A schedule covers events that were lost.
    """

    resource: cdk.CustomResource
    function: lambda_.IFunction

    def on_events(
        self, id_: str, description: str, pattern: events.EventPattern, message: Mapping[str, object] | None = None
    ) -> None:
        """Call the function on events, with ``message``, or with the event itself if None."""
        rule = events.Rule(
            self.resource.stack, id_, description=description, event_pattern=pattern, targets=self._targets(message)
        )
        self._delete_first(rule)

    def every(self, minutes: int, id_: str, description: str, message: Mapping[str, object] | None = None) -> None:
        """Call the function on a schedule, with ``message``, or with the schedule's event if None."""
        schedule = events.Schedule.rate(cdk.Duration.minutes(minutes))
        rule = events.Rule(
            self.resource.stack, id_, description=description, schedule=schedule, targets=self._targets(message)
        )
        self._delete_first(rule)

    def _targets(self, message: Mapping[str, object] | None) -> Sequence[events.IRuleTarget]:
        event = None if message is None else events.RuleTargetInput.from_object(dict(message))
        return [targets.LambdaFunction(self.function, event=event)]

    def _delete_first(self, rule: events.Rule) -> None:
        # Delete the rules first. Otherwise they would restart the step or run that has just been stopped.
        rule.node.add_dependency(self.resource)
