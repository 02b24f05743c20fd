from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from rig.local import spark as local_spark
from rig.local.aws import REGION, AwsApi
from tests.lake.pipeline import BUCKET, Pipeline
from tests.lake.readers import Hudi015


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--key-histories", type=int, default=100, help="how many test_histories.py draws, of both sources")
    parser.addoption("--turns", type=int, default=1, help="how often at most something happens to a table of these")
    parser.addoption("--seed", type=int, default=25, help="the first table's seed in test_histories.py")


@pytest.fixture(scope="session")
def endpoint(aws_api: AwsApi) -> Iterator[str]:
    """The object store's address. The Python workers of Spark find it and the AWS API's in the environment."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**aws_api.environment(), **local_spark.environment()}.items():
            if os.environ.get(name) != value:
                patch.setenv(name, value)
        aws_api.client("s3").create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
        yield aws_api.s3_endpoint


@pytest.fixture(scope="session")
def spark(endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    builder = SparkSession.builder.master("local[2]")
    settings = local_spark.configuration(tmp_path_factory.mktemp("spark"), endpoint=endpoint, memory="2g")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def hudi_015(endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hudi015]:
    """The reader that Athena has."""
    reader = Hudi015(endpoint, tmp_path_factory.mktemp("hudi-015"))
    yield reader
    reader.close()


@pytest.fixture
def pipeline(spark: SparkSession, endpoint: str, aws_api: AwsApi) -> Pipeline:
    return Pipeline(spark, aws_api, f"t-{uuid.uuid4().hex[:8]}")
