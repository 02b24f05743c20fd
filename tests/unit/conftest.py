"""What several unit tests need."""

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto import mock_aws

BUCKET = "headwater-test"


@pytest.fixture(scope="module")
def s3() -> Iterator[Any]:
    """An S3 client with an empty bucket, answered inside this process; a module's tests share it."""
    with mock_aws():
        client = boto3.client("s3", "us-east-1", aws_access_key_id="test", aws_secret_access_key="test")
        client.create_bucket(Bucket=BUCKET)
        yield client
