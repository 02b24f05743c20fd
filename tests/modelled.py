"""Stand-ins for AWS services. Each request and answer is checked against AWS's own description of the service."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import botocore.session
from botocore import xform_name
from botocore.exceptions import ClientError
from botocore.model import OperationModel, ServiceModel, Shape
from botocore.validate import ParamValidator


class Modelled:
    """A boto3 client whose answers come from ``stand_in``, which has a method for each used operation.

    A request or an answer that the real service does not know fails the test. So does an operation without a method.
    ``calls`` holds the names of the operations, in order.
    """

    def __init__(self, service: str, stand_in: object) -> None:
        # boto3's clients keep the description here.
        self.meta = SimpleNamespace(service_model=_model(service))
        self._operations = _operations(service)
        self._stand_in = stand_in
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., dict[str, Any]]:
        operation = self._operations[name]

        def call(**request: Any) -> dict[str, Any]:
            self.calls.append(name)
            _validate(operation, operation.input_shape, request)
            answer: dict[str, Any] = getattr(self._stand_in, name)(**request) or {}
            _validate(operation, operation.output_shape, answer)
            return answer

        return call


def refusal(code: str, message: str = "refused", operation: str = "Operation") -> ClientError:
    """The error with which boto3 reports that a service refused a call."""
    return ClientError({"Error": {"Code": code, "Message": message}}, operation)


@functools.cache
def _model(service: str) -> ServiceModel:
    """The description of a service. It is cached, because a session of botocore takes tenths of a second to read it."""
    return botocore.session.get_session().get_service_model(service)


@functools.cache
def _operations(service: str) -> dict[str, OperationModel]:
    model = _model(service)
    return {xform_name(name): model.operation_model(name) for name in model.operation_names}


def _validate(operation: OperationModel, shape: Shape | None, values: dict[str, Any]) -> None:
    if shape is None:
        assert not values, f"{operation.name} has neither of {values}"
        return
    report = ParamValidator().validate(values, shape)
    assert not report.has_errors(), f"{operation.name}: {report.generate_report()}"
