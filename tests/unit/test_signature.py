"""What a local AWS API takes for a request of its owner's."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse

from rig.local.signature import Refused, SignedRequest, refuse_pages, verify

KEY, SECRET = "a1key", "a secret/with+signs"


class Sent(Exception):
    def __init__(self, request: AWSPreparedRequest) -> None:
        super().__init__()
        self.request = request


def sent(service: str, operation: str, **arguments: object) -> SignedRequest:
    """boto3's request for an operation."""
    client = boto3.client(  # type: ignore[call-overload]
        service,
        endpoint_url="http://127.0.0.1:4566",
        region_name="eu-central-1",
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
    )

    def keep(request: AWSPreparedRequest, **_: object) -> AWSResponse:
        raise Sent(request)

    client.meta.events.register("before-send", keep)
    with pytest.raises(Sent) as raised:
        getattr(client, operation)(**arguments)
    request = raised.value.request
    parts = urlsplit(request.url)
    headers = {name.lower(): text(value) for name, value in request.headers.items()}
    body: Any = request.body or b""
    content = body.read() if hasattr(body, "read") else body if isinstance(body, bytes) else body.encode()
    return SignedRequest(request.method, parts.path, parts.query, {"host": parts.netloc, **headers}, content)


def text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def changed(request: SignedRequest, **headers: str | None) -> SignedRequest:
    """A request with other headers."""
    new = {**request.headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return replace(request, headers={name: value for name, value in new.items() if value is not None})


CREDENTIALS: Mapping[str, str] = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}


@pytest.mark.parametrize(
    "request_",
    [
        sent("secretsmanager", "get_secret_value", SecretId="headwater/local/ü"),
        sent("kafkaconnect", "describe_connector", connectorArn="arn:aws:kafkaconnect:eu-central-1:1:connector/a b/c"),
        sent("kafkaconnect", "list_connectors", connectorNamePrefix="a b+ü", maxResults=3),
        sent("sts", "get_caller_identity"),
    ],
    ids=lambda request: request.path,
)
def test_what_boto3_signs_is_taken(request_: SignedRequest) -> None:
    verify(request_, CREDENTIALS)


ASKED = sent("secretsmanager", "list_secrets")


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (changed(ASKED, authorization=None), "MissingAuthenticationTokenException"),
        (changed(ASKED, authorization="AWS a:b"), "MissingAuthenticationTokenException"),
        (changed(ASKED, authorization=ASKED.headers["authorization"] + "0"), "MissingAuthenticationTokenException"),
        (
            changed(ASKED, authorization=ASKED.headers["authorization"].replace(KEY, "another")),
            "UnrecognizedClientException",
        ),
        (replace(ASKED, body=b'{"MaxResults": 1}'), "InvalidSignatureException"),
        (replace(ASKED, path="/other"), "InvalidSignatureException"),
        (replace(ASKED, query="a=b"), "InvalidSignatureException"),
        (replace(ASKED, method="PUT"), "InvalidSignatureException"),
        (changed(ASKED, x_amz_target="secretsmanager.GetSecretValue"), "InvalidSignatureException"),
        (changed(ASKED, x_amz_target=None), "InvalidSignatureException"),
        (changed(ASKED, x_amz_more="unsigned"), "InvalidSignatureException"),
        (changed(ASKED, host="127.0.0.1:80"), "InvalidSignatureException"),
        (changed(ASKED, x_amz_date="20200101T000000Z"), "InvalidSignatureException"),
        (changed(ASKED, x_amz_date="now"), "InvalidSignatureException"),
        (changed(ASKED, x_amz_content_sha256="UNSIGNED-PAYLOAD"), "InvalidSignatureException"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_request_that_differs_from_what_was_signed_is_refused(request_: SignedRequest, code: str) -> None:
    with pytest.raises(Refused) as refused:
        verify(request_, CREDENTIALS)
    assert refused.value.code == code


def test_another_secret_is_refused() -> None:
    with pytest.raises(Refused, match="does not match"):
        verify(ASKED, {**CREDENTIALS, "AWS_SECRET_ACCESS_KEY": "another"})


@pytest.mark.parametrize(("minutes", "served"), [(-16, False), (-14, True), (14, True), (16, False)])
def test_a_request_of_another_time_is_refused(monkeypatch: pytest.MonkeyPatch, minutes: int, *, served: bool) -> None:
    sent_at = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=minutes)
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda: sent_at)
    request = sent("secretsmanager", "list_secrets")
    if served:
        verify(request, CREDENTIALS)
    else:
        with pytest.raises(Refused, match="expired"):
            verify(request, CREDENTIALS)


@pytest.mark.parametrize(
    ("headers", "served"),
    [
        ({"host": "127.0.0.1:80"}, True),
        ({"host": "localhost:80"}, True),
        ({"host": "127.0.0.1:80", "origin": "http://127.0.0.1:80"}, False),
        ({"host": "127.0.0.1:80", "origin": "null"}, False),
        ({"host": "evil.example:80"}, False),
        ({"host": "127.0.0.1.evil.example:80"}, False),
        ({"host": "127.0.0.1"}, False),
        ({}, False),
    ],
)
def test_pages_in_browsers_are_not_served(headers: Mapping[str, str], *, served: bool) -> None:
    try:
        refuse_pages(headers)
    except Refused:
        assert not served
    else:
        assert served
