from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer
from pyspark.sql import SparkSession

from tests.lake.pipeline import BUCKET, Pipeline, jars

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    environment = {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    os.environ.update(environment)
    boto3.client("s3").create_bucket(Bucket=BUCKET)
    yield address
    server.stop()
    for name in environment:
        del os.environ[name]


@pytest.fixture(scope="session")
def spark(endpoint: str) -> Iterator[SparkSession]:
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.extraClassPath", jars(ROOT / "build/jars"))
        .config("spark.driver.memory", "2g")
        .config("spark.serializer", "org.apache.spark.serializer.KryoSerializer")
        .config("spark.kryo.registrator", "org.apache.spark.HoodieSparkKryoRegistrar")
        .config("spark.sql.extensions", "org.apache.spark.sql.hudi.HoodieSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.hudi.catalog.HoodieCatalog")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .config("spark.hadoop.fs.s3.impl", "org.apache.hadoop.fs.s3a.S3AFileSystem")
        .config("spark.hadoop.fs.s3a.endpoint", endpoint)
        .config("spark.hadoop.fs.s3a.path.style.access", "true")
        .config("spark.hadoop.fs.s3a.directory.marker.retention", "keep")
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture
def pipeline(spark: SparkSession, endpoint: str) -> Pipeline:
    client: Any = boto3.client
    return Pipeline(spark, client("s3"), client("glue"), endpoint, f"t-{uuid.uuid4().hex[:8]}")
