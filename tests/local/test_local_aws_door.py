"""The local AWS lets in programs that have a key of this run, and neither another user nor a browser's page."""

from __future__ import annotations

import hashlib
import io
import json
import sys
import zipfile
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import psutil
import pytest
import requests
from botocore.auth import S3SigV4Auth, SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from rig.local import aws
from rig.local_aws.account import LocalAccount
from tests import programs
from tests.listening import listening

FUNCTION = "guarded"
ROLE = "guarded-role"
CODE = "def handler(event, context):\n    return 'ran'\n"
COUNTS = """
import boto3
def handler(event, context):
    return len(boto3.client("lambda").list_functions()["Functions"])
"""
BUCKET = "headwater-guarded"
# What an answer has to be that lets nobody in.
REFUSED = {400, 401, 403}
# Sends requests as another user of this machine would, by the standard library alone.
SEND = """
import encodings.idna, http.client, json, os, pwd, sys, urllib.parse
if os.geteuid() == 0:
    nobody = pwd.getpwnam("nobody")
    os.setgroups([])
    os.setgid(nobody.pw_gid)
    os.setuid(nobody.pw_uid)
for asked in json.load(sys.stdin):
    url = urllib.parse.urlsplit(asked["url"])
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=20)
    try:
        path = urllib.parse.urlunsplit(("", "", url.path or "/", url.query, ""))
        connection.putrequest(asked["method"], path, skip_host="Host" in asked["headers"], skip_accept_encoding=True)
        body = asked["body"].encode()
        for name, value in {**asked["headers"], "Content-Length": str(len(body))}.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        print(json.dumps([answer.status, answer.getheaders(), answer.read().decode(errors="replace")]))
    except (OSError, http.client.HTTPException) as error:
        print(json.dumps([0, [], repr(error)]))
"""


@dataclass(frozen=True)
class Sent:
    """A request as it goes over the wire."""

    method: str
    url: str
    headers: dict[str, str] = field(default_factory=dict)
    body: str = ""


@dataclass(frozen=True)
class Got:
    status: int
    headers: dict[str, str]
    body: str


def send(*asked: Sent) -> list[Got]:
    """Send requests as ``nobody`` if these tests run as root, else as their user, from a process that has no key."""
    given = json.dumps([asdict(each) for each in asked])
    done = programs.run([sys.executable, "-I", "-c", SEND], given, cwd="/", env={})
    done.check_returncode()
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    return [Got(status, {name.lower(): value for name, value in headers}, body) for status, headers, body in answers]


def signed(asked: Sent, service: str, key: str, secret: str, token: str | None = None) -> Sent:
    """A request with a signature in its headers."""
    request = AWSRequest(asked.method, asked.url, asked.headers, asked.body)
    (S3SigV4Auth if service == "s3" else SigV4Auth)(Credentials(key, secret, token), service, "eu-central-1").add_auth(
        request
    )
    return Sent(asked.method, asked.url, dict(request.headers.items()), asked.body)


def functions(account: LocalAccount) -> Sent:
    return Sent("GET", f"{account.emulator.endpoint}/2015-03-31/functions/")


def own(account: LocalAccount, asked: Sent, service: str = "lambda") -> Sent:
    """A request of somebody who has the account's own key."""
    return signed(asked, service, *account.context.credentials.values())


def zipped(code: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("index.py", code)
    return packed.getvalue()


@pytest.fixture(scope="module")
def function(account: LocalAccount) -> str:
    """The ARN of a function with a role that may list functions."""
    trust = {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}
    may = {"Effect": "Allow", "Action": ["lambda:*", "s3:*"], "Resource": "*"}
    iam = account.client("iam")
    document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    role = iam.create_role(RoleName=ROLE, AssumeRolePolicyDocument=document)["Role"]["Arn"]
    policy = json.dumps({"Version": "2012-10-17", "Statement": [may]})
    iam.put_role_policy(RoleName=ROLE, PolicyName="may", PolicyDocument=policy)
    made = account.client("lambda").create_function(
        FunctionName=FUNCTION, Runtime="python3.12", Role=role, Handler="index.handler", Code={"ZipFile": zipped(CODE)}
    )
    return str(made["FunctionArn"])


def guessed(function: str) -> tuple[str, str, str]:
    """The credentials of a function's role as ministack makes them of its name."""
    role = f"arn:aws:iam::{function.split(':')[4]}:role/{ROLE}"
    digest = hashlib.sha256(f"{function}:{role}".encode()).hexdigest()
    secret, token = (hashlib.sha256(f"{part}:{digest}".encode()).hexdigest() for part in ("secret", "token"))
    return f"ASIA{digest[:16].upper()}", secret, token


def test_another_user_without_a_key_is_refused_everything(account: LocalAccount, function: str) -> None:
    # So that the function's role has a session that could be guessed.
    account.client("lambda").invoke(FunctionName=FUNCTION)
    known = account.context.account
    asked = functions(account)
    invoke = Sent("POST", f"{asked.url}{FUNCTION}/invocations", body="{}")
    presigned = AWSRequest("GET", asked.url)
    SigV4QueryAuth(Credentials(known, "headwaterlocal"), "lambda", "eu-central-1").add_auth(presigned)
    scope = f"{known}/20260101/eu-central-1/lambda/aws4_request"
    forged = f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature={'0' * 64}"
    of_root = own(account, asked).headers["Authorization"]
    requests_ = {
        "unsigned": asked,
        "unsigned invocation": invoke,
        "unsigned bucket": Sent("GET", f"{account.emulator.endpoint}/{BUCKET}"),
        "unsigned action": Sent("POST", account.emulator.endpoint, body="Action=ListRoles&Version=2010-05-08"),
        "the constant key of old": signed(invoke, "lambda", known, "headwaterlocal"),
        "ministack's key": signed(invoke, "lambda", "test", "test"),
        "no key": signed(invoke, "lambda", "", "test"),
        "another account's number": signed(invoke, "lambda", "222222222222", "headwaterlocal"),
        "a signature of nothing": Sent("GET", asked.url, {"Authorization": forged, "X-Amz-Date": "20260101T000000Z"}),
        "another request's signature": Sent("POST", invoke.url, {"Authorization": of_root}, "{}"),
        "signature version 2": Sent("GET", asked.url, {"Authorization": f"AWS {known}:abc", "Date": "now"}),
        "a presigned address": Sent("GET", str(presigned.url)),
        "a guessed session": signed(invoke, "lambda", *guessed(function)),
        "a key in the query": Sent("GET", f"{asked.url}?AWSAccessKeyId={known}"),
        "health": Sent("GET", f"{account.emulator.endpoint}/_ministack/health"),
        "reset": Sent("POST", f"{account.emulator.endpoint}/_ministack/reset"),
        "settings": Sent("POST", f"{account.emulator.endpoint}/_ministack/config", body="{}"),
        "code": Sent("GET", f"{account.emulator.endpoint}/_ministack/lambda-code/{known}/eu-central-1/{FUNCTION}"),
        "a response to nobody": Sent("PUT", f"{account.emulator.endpoint}/_ministack/cfn-response/0", body="{}"),
        "a login": Sent("GET", f"{account.emulator.endpoint}/oauth2/authorize"),
    }
    answers = dict(zip(requests_, send(*requests_.values()), strict=True))
    assert {name: got for name, got in answers.items() if got.status not in REFUSED} == {}
    assert [got.body for got in answers.values() if "ran" in got.body or FUNCTION in got.body] == []


def test_a_page_of_a_browser_is_refused_even_with_a_signature(account: LocalAccount, function: str) -> None:
    asked = functions(account)
    port = account.emulator.port
    # What is asked is right but for one thing each.
    signature = own(account, asked).headers
    websocket = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Key": "aGVhZHdhdGVyIGdhdGU9"}
    requests_ = {
        "Origin": Sent("GET", asked.url, {**signature, "Origin": "http://evil.example"}),
        "no Origin": Sent("GET", asked.url, {**signature, "Origin": "null"}),
        "Host": own(account, Sent("GET", asked.url, {"Host": f"evil.example:{port}"})),
        "Host without a port": own(account, Sent("GET", asked.url, {"Host": "localhost"})),
        "an API's host": own(account, Sent("GET", asked.url, {"Host": f"a.execute-api.localhost:{port}"})),
        "a bucket's host": own(account, Sent("GET", asked.url, {"Host": f"{BUCKET}.localhost:{port}"}), "s3"),
        "preflight": Sent("OPTIONS", asked.url, {"Access-Control-Request-Method": "POST"}),
        "signed preflight": own(account, Sent("OPTIONS", asked.url)),
        "websocket": Sent("GET", asked.url, {**signature, **websocket, "Sec-WebSocket-Version": "13"}),
    }
    answers = dict(zip(requests_, send(*requests_.values()), strict=True))
    assert {name: got for name, got in answers.items() if got.status != 403} == {}
    assert [name for got in answers.values() for name in got.headers if name.startswith("access-control")] == []


def test_a_signature_holds_for_the_whole_request(account: LocalAccount, function: str) -> None:
    invoke = f"{functions(account).url}{FUNCTION}/invocations"
    digest = {"X-Amz-Content-SHA256": hashlib.sha256(b"{}").hexdigest()}
    right = own(account, Sent("POST", invoke, digest, "{}"))
    answers = send(
        right,
        replace(right, body="[]"),
        replace(right, headers={**right.headers, "X-Amz-Invocation-Type": "Event"}),
        own(account, Sent("POST", invoke, {"X-Amz-Content-SHA256": "UNSIGNED-PAYLOAD"}, "{}")),
    )
    assert [got.status for got in answers] == [200, 403, 403, 403]


def test_whoever_has_a_key_is_answered_and_no_page_may_read_it(account: LocalAccount, function: str) -> None:
    (got, of_localhost) = send(
        own(account, functions(account)),
        own(account, Sent("GET", functions(account).url.replace("127.0.0.1", "localhost"))),
    )
    assert (got.status, of_localhost.status) == (200, 200)
    assert FUNCTION in got.body
    assert [name for name in got.headers if name.startswith("access-control")] == []


def test_a_function_works_with_its_role_and_a_role_not_the_emulator(account: LocalAccount, function: str) -> None:
    client = account.client("lambda")
    client.update_function_code(FunctionName=FUNCTION, ZipFile=zipped(COUNTS))
    try:
        assert json.load(client.invoke(FunctionName=FUNCTION)["Payload"]) == 1
    finally:
        client.update_function_code(FunctionName=FUNCTION, ZipFile=zipped(CODE))
    role = f"arn:aws:iam::{account.context.account}:role/{ROLE}"
    got = account.client("sts").assume_role(
        RoleArn=role, RoleSessionName="lambda.amazonaws.com", ExternalId="function"
    )["Credentials"]
    keys = (got["AccessKeyId"], got["SecretAccessKey"], got["SessionToken"])
    health = Sent("GET", f"{account.emulator.endpoint}/_ministack/health")
    for asked, status in ((functions(account), 200), (health, 403)):
        (answer,) = send(signed(asked, "lambda", *keys))
        assert answer.status == status, answer


def test_the_answer_of_a_key_that_is_no_more_says_so(account: LocalAccount) -> None:
    """As a shell has it that kept the variables of a former run."""
    former = {**account.context.credentials, "AWS_SECRET_ACCESS_KEY": "of a former run"}
    for service, ask in (("s3", "list_buckets"), ("cloudformation", "list_stacks"), ("kinesis", "list_streams")):
        client = aws.client(service, account.emulator.endpoint, former)
        with pytest.raises(ClientError, match=r"SignatureDoesNotMatch|InvalidSignatureException"):
            getattr(client, ask)()


def test_objects_pass_with_any_key_and_query_and_the_store_is_closed(account: LocalAccount) -> None:
    s3 = account.client("s3")
    s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
    keys = ["a/b=1/c d+e.txt", "a/ü%20/~x", "a/b=2/" + "y" * 200, "z"]
    for key in keys:
        s3.put_object(Bucket=BUCKET, Key=key, Body=key.encode(), Metadata={"of": "me"})
        assert s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() == key.encode()
    assert sorted(each["Key"] for each in s3.list_objects_v2(Bucket=BUCKET)["Contents"]) == sorted(keys)
    listed = s3.list_objects_v2(Bucket=BUCKET, Prefix="a/b=1/c d+", Delimiter="/", StartAfter="a/b=1/c ")
    assert [each["Key"] for each in listed["Contents"]] == keys[:1]
    parts = s3.create_multipart_upload(Bucket=BUCKET, Key="p q")
    of = {"Bucket": BUCKET, "Key": "p q", "UploadId": parts["UploadId"]}
    tag = s3.upload_part(**of, PartNumber=1, Body=b"x" * 1000)["ETag"]
    s3.complete_multipart_upload(**of, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": tag}]})
    assert s3.head_object(Bucket=BUCKET, Key="p q")["ContentLength"] == 1000
    # As CDK puts its assets.
    s3.put_object(Bucket=BUCKET, Key="e", Body=b"encrypted", ServerSideEncryption="aws:kms")
    assert s3.get_object(Bucket=BUCKET, Key="e")["Body"].read() == b"encrypted"
    s3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": key} for key in keys]})
    store = account.store.endpoint
    read, listing, write, as_account = send(
        Sent("GET", f"{store}/{BUCKET}/p%20q"),
        Sent("GET", store),
        Sent("PUT", f"{store}/{BUCKET}/mine", body="x"),
        own(account, Sent("GET", store), "s3"),
    )
    assert [got.status for got in (read, listing, write, as_account)] == [403, 403, 403, 403]


def test_what_is_behind_the_emulator_answers_it_alone(account: LocalAccount, function: str) -> None:
    role = f"arn:aws:iam::{account.context.account}:role/{ROLE}"
    variables = account.context.environment_of(role, "lambda.amazonaws.com", "resource")
    address, token = (variables[f"AWS_CONTAINER_{name}"] for name in ("CREDENTIALS_FULL_URI", "AUTHORIZATION_TOKEN"))
    parts = address.removesuffix("/credentials")
    known = requests.get(address, headers={"Authorization": token}, timeout=10).json()
    assert known["AccessKeyId"].startswith("ASIA")
    asked = [
        Sent("GET", f"{parts}/answers"),
        Sent("GET", f"{parts}/answers", {"Authorization": token}),
        Sent("POST", f"{parts}/apis/rds-data", {"Content-Type": "application/json"}, "{}"),
        Sent("POST", f"{parts}/resources/create", {"Content-Type": "application/json"}, "{}"),
        Sent("GET", address),
        Sent("GET", address, {"Authorization": "x"}),
        Sent("GET", address, {"Authorization": token, "Origin": "null"}),
        Sent("GET", address, {"Authorization": token, "Host": "evil.example"}),
    ]
    assert [got.status for got in send(*asked)] == [403] * len(asked)


def test_no_secret_is_in_a_command_line_or_a_file_that_others_read(account: LocalAccount, function: str) -> None:
    account.client("lambda").invoke(FunctionName=FUNCTION)
    secrets = [
        account.context.credentials["AWS_SECRET_ACCESS_KEY"],
        account.context.store_credentials["AWS_SECRET_ACCESS_KEY"],
        account.context.signature,
    ]
    assert min(len(secret) for secret in secrets) >= 32
    commands = [" ".join(program.cmdline()) for program in psutil.Process().children(recursive=True)]
    assert [command for command in commands if any(secret in command for secret in secrets)] == []
    assert account.folder.stat().st_mode & 0o777 == 0o700
    files = [path for path in account.folder.rglob("*") if path.is_file()]
    assert [path for path in files if any(secret.encode() in path.read_bytes() for secret in secrets)] == []


def test_the_functions_do_not_get_what_opens_the_account(account: LocalAccount, function: str) -> None:
    environments: list[Any] = []
    account.client("lambda").invoke(FunctionName=FUNCTION)
    for program in psutil.Process(account.emulator.pid).children(recursive=True):
        environments.append(program.environ())
    assert len(environments) > 0
    root = account.context.credentials["AWS_SECRET_ACCESS_KEY"]
    for variables in environments:
        assert root not in variables.values()
        assert [name for name in variables if name.startswith("HEADWATER_HANDLERS")] == []


def test_each_port_that_the_account_opens_is_one_that_is_tried_here(account: LocalAccount) -> None:
    assert {each.port for each in listening(account.emulator.pid)} == {account.emulator.port}
