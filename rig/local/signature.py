"""Checks of a request to a local AWS API: its signature (version 4), its ``Host`` and its ``Origin``.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

import datetime as dt
import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPMessage

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

# The largest error of a client's clock that AWS allows.
SKEW = dt.timedelta(minutes=15)
_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/,\s]+)/(?P<date>\d{8})/(?P<region>[^/,\s]+)/(?P<service>[^/,\s]+)"
    r"/aws4_request,\s*SignedHeaders=(?P<headers>[^,\s]+),\s*Signature=(?P<signature>[0-9a-f]{64})"
)
_CONTENT_HASH = "x-amz-content-sha256"


class Refused(Exception):
    """A request is refused, with AWS's ``code`` for the reason, and a message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class SignedRequest:
    """A request as its client sent it."""

    method: str
    """The HTTP method."""
    path: str
    """The path, with its percent signs."""
    query: str
    """The query, with its percent signs and without the question mark."""
    headers: Mapping[str, str]
    """The headers, by lower-case names."""
    body: bytes
    """The body."""


def refuse_pages(headers: Mapping[str, str]) -> None:
    """Raise ``Refused`` for a request that a page in a browser sends. ``headers`` have lower-case names.

    A browser sends ``Origin`` with every request that can write, and with every request whose answer the page can read.
    It leaves ``Origin`` out only for the page's own host. If an attacker's DNS server resolves a page's name to
    127.0.0.1, the page's requests carry that name as ``Host``.
    """
    if "origin" in headers:
        raise Refused("AccessDeniedException", "Origin: found one, expected none: pages in browsers are not served")
    host = headers.get("host", "")
    if host.rpartition(":")[0] not in ("127.0.0.1", "localhost"):
        raise Refused("AccessDeniedException", f"Host: found {host!r}, expected 127.0.0.1 or localhost, and a port")


def verify(request: SignedRequest, credentials: Mapping[str, str]) -> None:
    """Raise ``Refused`` for a request to a service other than S3 that AWS would refuse.

    AWS refuses a request without a signature, and one that other ``credentials`` signed. It refuses a request that was
    signed longer ago than ``SKEW``, or changed on its way. A signature in the query, as in a presigned URL, does not
    count.
    """
    headers = request.headers
    found = _AUTHORIZATION.fullmatch(headers.get("authorization", ""))
    if found is None:
        raise Refused("MissingAuthenticationTokenException", "Authorization: expected a signature of version 4")
    if found["key"] != credentials["AWS_ACCESS_KEY_ID"]:
        raise Refused("UnrecognizedClientException", "The security token included in the request is invalid")
    # The signature must cover the host and all of AWS's own headers.
    signed = found["headers"].split(";")
    unsigned = {name for name in headers if name == "host" or name.startswith("x-amz-")} - set(signed)
    if unsigned or not headers.keys() >= set(signed):
        raise Refused("InvalidSignatureException", f"SignedHeaders: found {signed}, expected {sorted(unsigned)} too")
    timestamp = headers.get("x-amz-date", "")
    _check_time(timestamp, found["date"])
    # If the client sends a hash of the body, the header is signed, and the hash must be right.
    told = headers.get(_CONTENT_HASH)
    if told is not None and told != hashlib.sha256(request.body).hexdigest():
        raise Refused("InvalidSignatureException", f"{_CONTENT_HASH}: it is not the hash of the body")
    # Sign the request again with the account's key, and compare.
    key = Credentials(found["key"], credentials["AWS_SECRET_ACCESS_KEY"])
    signer = _Check(key, found["service"], found["region"])
    url = f"http://{headers['host']}{request.path}" + (f"?{request.query}" if request.query else "")
    again = AWSRequest(request.method, url, {name: headers[name] for name in signed}, request.body)
    again.context["timestamp"] = timestamp
    expected = signer.signature(signer.string_to_sign(again, signer.canonical_request(again)), again)
    if not hmac.compare_digest(expected, found["signature"]):
        raise Refused("InvalidSignatureException", "The signature does not match the request")


def _check_time(timestamp: str, date: str) -> None:
    try:
        sent = dt.datetime.strptime(timestamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=dt.UTC)
    except ValueError:
        raise Refused("InvalidSignatureException", f"X-Amz-Date: found {timestamp!r}, expected a time") from None
    if timestamp[:8] != date or abs(dt.datetime.now(dt.UTC) - sent) > SKEW:
        raise Refused("InvalidSignatureException", f"Signature expired: {timestamp} is too far from now")


class _Check(SigV4Auth):
    """A signer of only the headers that the client signed."""

    def headers_to_sign(self, request: AWSRequest) -> HTTPMessage:
        return request.headers
