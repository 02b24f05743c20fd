"""A job submitted here runs the package and the Python packages that ship, and commits to Hudi over the local S3."""

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

from headwater.packaging import class_archive, jdk
from headwater.paths import ROOT
from headwater.waiting import wait_until
from rig.local import spark
from rig.local.aws import REGION, AwsApi
from rig.local.spark import SparkJob
from tests.lake.pipeline import Pipeline, account, event

JOB = """
import json, sys
import boto3, msgspec
import headwater.lake
from pyspark.sql import SparkSession

session = SparkSession.builder.getOrCreate()
options = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "id",
    "hoodie.metadata.enable": "false",
    "hoodie.write.table.version": "6",
}
session.range(10).write.format("hudi").options(**options).mode("append").save(sys.argv[1])
rows = session.read.format("hudi").load(sys.argv[1]).count()
workers = session.sparkContext.parallelize([0]).map(lambda _: __import__("msgspec").__file__).collect()
modules = [headwater.lake.__file__, boto3.__file__, msgspec.__file__, *workers]
print(json.dumps({"rows": rows, "modules": modules}), flush=True)
"""


def test_a_job_commits_to_s3_with_the_package_that_emr_gets(aws_api: AwsApi, tmp_path: Path) -> None:
    aws_api.client("s3").create_bucket(Bucket="job", CreateBucketConfiguration={"LocationConstraint": REGION})
    script = tmp_path / "job.py"
    script.write_text(JOB)
    job = spark.submit(SparkJob(script, ["s3://job/t"]), tmp_path / "run", aws_api)
    job.start()
    try:
        assert job.await_end() == 0, job.program.log_path.read_text()[-4000:]
    finally:
        job.stop()
    (event,) = (json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines())
    assert event["rows"] == 10
    package, *packages = event["modules"]
    assert "headwater.zip" in package
    python = spark.shipped_python()
    if python:
        folder = str(Path(python["PYSPARK_PYTHON"]).parent.parent / "site-packages")
        assert [module for module in packages if not module.startswith(folder)] == []


def test_a_job_that_is_told_to_stop_commits_what_it_has_begun(aws_api: AwsApi, tmp_path: Path) -> None:
    s3 = aws_api.client("s3")
    s3.create_bucket(Bucket="stop", CreateBucketConfiguration={"LocationConstraint": REGION})
    source: Any = None
    landed = Pipeline(source, aws_api, "told", "stop")
    s3.put_object(Bucket="stop", Key="accounts.json", Body=landed.contract.to_json().encode())
    landed.land(*(event("c", 10 + id_, after=account(id_)) for id_ in range(1000)))
    places = ["--contract", "s3://stop/accounts.json", "--landing", landed.landing, "--lake", landed.lake]
    arguments = [*places, "--database", landed.database]
    job = spark.submit(SparkJob(ROOT / "emr_steps" / "write_hudi.py", arguments), tmp_path / "run", aws_api)

    def has_begun() -> bool:
        listed = s3.list_objects_v2(Bucket="stop", Prefix="told/lake/accounts/.hoodie/").get("Contents", [])
        return any(found["Key"].endswith(".deltacommit.inflight") for found in listed)

    def said() -> list[str]:
        lines = (tmp_path / "run" / "events.jsonl").read_text().splitlines()
        return [event for event in (json.loads(line)["event"] for line in lines) if event not in ("idle", "ready")]

    job.start()
    try:
        wait_until("the first commit", lambda: said() == ["started", "commit"])
        landed.land(*(event("u", 2000 + id_, account(id_), account(id_, "Bea")) for id_ in range(1000)))
        wait_until("the next one to begin, which writes log files", has_begun, poll=0.02)
        wait_until("the job to be ready", lambda: '"event": "ready"' in (tmp_path / "run" / "events.jsonl").read_text())
        # As EMR does: it tells spark-submit's process, which is the JVM.
        job.stop(60)
        assert job.wait() == 0
    finally:
        job.kill()
    assert said() == ["started", "commit", "commit", "stopped"]
    assert {row["name"] for row in landed.alive()} == {"Bea"}
    lease = json.loads(s3.get_object(Bucket="stop", Key="told/lake/_leases/accounts.json")["Body"].read())
    assert lease["expires"] <= time.time()


def test_spark_starts_from_the_archive_of_its_classes(tmp_path: Path) -> None:
    path = [*class_archive.class_path(), tmp_path, *spark.driver_jars()]
    flags = [*class_archive.flags(), "-Xlog:class+load"]
    command = [jdk.java(), *flags, "-cp", os.pathsep.join(map(str, path)), "org.apache.spark.deploy.SparkSubmit"]
    loaded = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True).stdout
    (line,) = [line for line in loaded.splitlines() if "org.apache.spark.deploy.SparkSubmit " in line]
    assert line.endswith("source: shared objects file (top)")
