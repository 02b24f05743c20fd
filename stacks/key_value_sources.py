"""The DynamoDB tables and Kinesis streams of the key-value pipeline, Headwater's own or existing ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aws_cdk import aws_iam as iam

from headwater.contract.model import Contract
from headwater.environment.key_value_names import KeyValueNames
from stacks.base import HeadwaterStack, grant


class KeyValueSources:
    """DynamoDB tables and streams, by the lake tables of their contracts.

    They are in the stack's account and region.
    """

    def __init__(self, stack: HeadwaterStack, names: Mapping[str, KeyValueNames]) -> None:
        self._stack = stack
        self._names = names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    @property
    def tables(self) -> Mapping[str, str]:
        """The names of the DynamoDB tables."""
        return {table: names.table for table, names in self._names.items()}

    @property
    def streams(self) -> Mapping[str, str]:
        """The names of the streams."""
        return {table: names.stream for table, names in self._names.items()}

    def stream_arn(self, contract: Contract) -> str:
        """The ARN of the stream of one contract's changes, for a later stack.

        The ARN is composed of names. A reference would make one export per stream. CloudFormation keeps an export while
        a stack imports it, so no contract could be removed.
        """
        name = self._names[contract.table].stream
        return self._stack.format_arn(service="kinesis", resource="stream", resource_name=name)

    def grant_read_stream(self, grantee: iam.IGrantable, contract: Contract) -> None:
        """Let a job of a later stack read the changes of one contract's source."""
        grant(
            grantee,
            [
                "kinesis:GetRecords",
                "kinesis:GetShardIterator",
                "kinesis:ListShards",
            ],
            [self.stream_arn(contract)],
        )
        key = self._names[contract.table].stream_key
        if key is not None:
            self._stack.grant_decrypt(grantee, key, "kinesis")
