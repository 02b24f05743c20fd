"""A scan of a table in DynamoDB Local writes an export that the backfill reads."""

import datetime as dt
import gzip
import json
from pathlib import Path
from typing import Any

from headwater.lake.sources.data_files import defect
from headwater.lake.sources.dynamodb_export import Export
from headwater.lake.sources.scanned_export import delete_export, export_rows, export_table
from rig.local.aws import REGION, AwsApi
from rig.local.dynamodb_local import DynamoDbLocal

BUCKET = "headwater-exports"
EXACT = "12345678901234567890123456789012345.678"
ITEM: dict[str, Any] = {
    "id": {"S": "ü"},
    "exact": {"N": EXACT},
    "raw": {"B": b"\x00\xff"},
    "yes": {"BOOL": True},
    "nothing": {"NULL": True},
    "map": {"M": {"a.b": {"B": b"\x01"}}},
    "list": {"L": [{"S": ""}, {"B": b"\x02"}]},
    "words": {"SS": ["a", "b"]},
    "numbers": {"NS": ["1"]},
    "blobs": {"BS": [b"\x03"]},
}
AS_JSON = {
    **ITEM,
    "raw": {"B": "AP8="},
    "map": {"M": {"a.b": {"B": "AQ=="}}},
    "list": {"L": [{"S": ""}, {"B": "Ag=="}]},
    "blobs": {"BS": ["Aw=="]},
}


def _micros() -> int:
    return (dt.datetime.now(dt.UTC) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


def test_every_item_is_in_the_export_once_and_unchanged(aws_api: AwsApi, tmp_path: Path) -> None:
    s3 = aws_api.client("s3")
    s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
    with DynamoDbLocal(tmp_path / "dynamodb", aws_api.credentials) as server:
        dynamodb = server.client("dynamodb")
        dynamodb.create_table(
            TableName="accounts",
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        items = [ITEM, *({"id": {"S": f"a{number}"}} for number in range(50))]
        for item in items:
            dynamodb.put_item(TableName="accounts", Item=item)
        read: list[int] = []
        before = _micros()
        uri = export_table(dynamodb, s3, "accounts", f"s3://{BUCKET}", lambda items, _: read.append(items), files=3)
        export = Export.open(s3, uri)
        some = Export.open(s3, export_rows(dynamodb, s3, "accounts", "id >= 'a4' AND id < 'a5'", f"s3://{BUCKET}"))
    assert sum(read) == len(items)
    assert [(some.items, len(some.files)), *(defect(file, s3) for file in some.files)] == [(11, 1), None]
    assert export.table == "accounts"
    assert before <= export.time <= _micros()
    assert len(export.files) == 3
    assert [defect(file, s3) for file in export.files] == [None] * 3
    exported: dict[str, Any] = {}
    for file in export.files:
        for line in gzip.decompress(s3.get_object(Bucket=BUCKET, Key=file.key)["Body"].read()).splitlines():
            item = json.loads(line)["Item"]
            assert exported.setdefault(item["id"]["S"], item) is item
    assert len(exported) == export.items == len(items)
    assert exported["ü"] == AS_JSON
    delete_export(s3, uri)
    left = s3.list_objects_v2(Bucket=BUCKET, Prefix="AWSDynamoDB/")["Contents"]
    assert {entry["Key"].split("/")[1] for entry in left} == {some.id}
