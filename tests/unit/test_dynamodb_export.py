"""Reading the manifests and data files of a DynamoDB table export."""

import datetime as dt
import gzip
import json
from typing import Any

import pytest

from headwater.errors import UserError
from headwater.lake.sources.data_files import DataFile, defect
from headwater.lake.sources.dynamodb_export import Export, locate
from headwater.lake.sources.scanned_export import write_export
from tests.unit.conftest import BUCKET

ARN = "arn:aws:dynamodb:eu-central-1:123456789012:table/headwater-accounts"
TIME = dt.datetime(2026, 1, 31, 12, 0, 0, 250_000, tzinfo=dt.UTC)


@pytest.fixture
def uri(s3: Any) -> str:
    """An export of three items in three files, one of them empty."""
    return write_export(s3, ARN, [[_item(1), _item(2)], [], [_item(3)]], TIME, f"s3://{BUCKET}/exports")


def _item(number: int) -> dict[str, dict[str, Any]]:
    return {"id": {"S": f"a{number}"}, "picture": {"M": {"raw": {"B": b"\x00\xff"}}}}


def _key(uri: str, name: str) -> str:
    return f"{uri.removeprefix(f's3://{BUCKET}/')}/{name}"


def _change_summary(s3: Any, uri: str, **fields: Any) -> None:
    key = _key(uri, "manifest-summary.json")
    summary = json.loads(s3.get_object(Bucket=BUCKET, Key=key)["Body"].read())
    s3.put_object(Bucket=BUCKET, Key=key, Body=json.dumps({**summary, **fields}).encode())


def _lines(s3: Any, file: DataFile) -> list[dict[str, Any]]:
    body = gzip.decompress(s3.get_object(Bucket=file.bucket, Key=file.key)["Body"].read())
    return [json.loads(line) for line in body.splitlines()]


def test_an_export_tells_table_time_and_files(s3: Any, uri: str) -> None:
    export = Export.open(s3, uri)
    assert (export.uri, export.id, export.table) == (uri, uri.rpartition("/")[2], "headwater-accounts")
    assert export.time == export.until == 1_769_860_800_250_000
    assert sorted(file.items for file in export.files) == [0, 1, 2]
    assert export.items == 3
    assert [file.key for file in export.files] == sorted(file.key for file in export.files)
    assert {file.size for file in export.files} != {0}


def test_an_export_of_a_table_that_changed_meanwhile_tells_until_when_it_was_read(s3: Any) -> None:
    read_until = TIME + dt.timedelta(seconds=5)
    export = Export.open(s3, write_export(s3, ARN, [[_item(1)]], TIME, f"s3://{BUCKET}/exports", lambda: read_until))
    assert (export.time, export.until) == (1_769_860_800_250_000, 1_769_860_805_250_000)


def test_bytes_of_an_exported_item_are_base64_at_any_depth(s3: Any, uri: str) -> None:
    items = [line["Item"] for file in Export.open(s3, uri).files for line in _lines(s3, file)]
    assert [item["picture"] for item in items] == [{"M": {"raw": {"B": "AP8="}}}] * 3


@pytest.mark.parametrize("suffix", ["/", "/manifest-summary.json"])
def test_an_export_is_also_found_by_the_address_of_its_summary(s3: Any, uri: str, suffix: str) -> None:
    assert Export.open(s3, uri + suffix) == Export.open(s3, uri)


def test_an_export_of_the_first_format_names_no_type(s3: Any, uri: str) -> None:
    key = _key(uri, "manifest-summary.json")
    summary = json.loads(s3.get_object(Bucket=BUCKET, Key=key)["Body"].read())
    del summary["exportType"]
    s3.put_object(Bucket=BUCKET, Key=key, Body=json.dumps(summary).encode())
    assert Export.open(s3, uri).items == 3


def test_a_copied_export_is_read_where_it_was_copied_to(s3: Any, uri: str) -> None:
    copy = uri.replace("/exports/", "/elsewhere/")
    for entry in s3.list_objects_v2(Bucket=BUCKET, Prefix=_key(uri, ""))["Contents"]:
        target = entry["Key"].replace("exports/", "elsewhere/", 1)
        s3.copy_object(Bucket=BUCKET, Key=target, CopySource={"Bucket": BUCKET, "Key": entry["Key"]})
        s3.delete_object(Bucket=BUCKET, Key=entry["Key"])
    export = Export.open(s3, copy)
    assert export.items == 3
    assert [defect(file, s3) for file in export.files] == [None] * 3


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"exportType": "INCREMENTAL_EXPORT"}, "exportType: found 'INCREMENTAL_EXPORT', expected 'FULL_EXPORT'"),
        ({"outputFormat": "ION"}, "outputFormat: found 'ION', expected 'DYNAMODB_JSON'"),
        ({"itemCount": 4}, "itemCount: found 4, expected 3"),
        ({"itemCount": "3"}, "itemCount: found '3', expected a number"),
        ({"exportTime": "yesterday"}, "exportTime: found 'yesterday', expected a time"),
        ({"exportTime": "2026-01-31T12:00:00.000"}, "exportTime: .* expected a time in UTC"),
        ({"readUntil": "soon"}, "readUntil: found 'soon', expected a time"),
        ({"tableArn": "headwater-accounts"}, "tableArn: found 'headwater-accounts', expected arn:aws:dynamodb"),
        ({"exportArn": f"{ARN}/export/other"}, "exportArn: .*/export/other', expected …/export/"),
        ({"manifestFilesS3Key": None}, "manifestFilesS3Key: found None, expected a text"),
    ],
)
def test_a_summary_that_does_not_fit_is_refused_by_field(
    s3: Any, uri: str, fields: dict[str, Any], message: str
) -> None:
    _change_summary(s3, uri, **fields)
    with pytest.raises(UserError, match=rf"{uri}/manifest-summary\.json: {message}"):
        Export.open(s3, uri)


@pytest.mark.parametrize("name", ["manifest-summary.json", "manifest-files.json"])
def test_a_missing_manifest_is_named(s3: Any, uri: str, name: str) -> None:
    s3.delete_object(Bucket=BUCKET, Key=_key(uri, name))
    with pytest.raises(UserError, match=rf"{uri}/{name}: found no readable object \(NoSuchKey\)"):
        Export.open(s3, uri)


def test_a_missing_bucket_is_named(s3: Any) -> None:
    with pytest.raises(UserError, match=r"s3://nowhere/AWSDynamoDB/1/manifest-summary\.json: .*NoSuchBucket"):
        Export.open(s3, "s3://nowhere/AWSDynamoDB/1")


def test_a_missing_data_file_is_named(s3: Any, uri: str) -> None:
    missing = Export.open(s3, uri).files[1]
    s3.delete_object(Bucket=BUCKET, Key=missing.key)
    with pytest.raises(UserError, match=rf"manifest-files\.json line \d: dataFileS3Key: .*{missing.uri} is not there"):
        Export.open(s3, uri)


def test_a_manifest_that_is_no_json_is_refused(s3: Any, uri: str) -> None:
    s3.put_object(Bucket=BUCKET, Key=_key(uri, "manifest-files.json"), Body=b"{}\nno json\n")
    with pytest.raises(UserError, match=r"manifest-files\.json line 1: dataFileS3Key: found None"):
        Export.open(s3, uri)
    s3.put_object(Bucket=BUCKET, Key=_key(uri, "manifest-files.json"), Body=b"no json\n")
    with pytest.raises(UserError, match=r"manifest-files\.json line 1: found .*, expected JSON"):
        Export.open(s3, uri)
    s3.put_object(Bucket=BUCKET, Key=_key(uri, "manifest-summary.json"), Body=b"[]")
    with pytest.raises(UserError, match=r"manifest-summary\.json: found list, expected a JSON object"):
        Export.open(s3, uri)


def test_a_data_file_listed_twice_is_refused(s3: Any, uri: str) -> None:
    key = _key(uri, "manifest-files.json")
    body = s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()
    s3.put_object(Bucket=BUCKET, Key=key, Body=body + body)
    with pytest.raises(UserError, match=r"line 4: dataFileS3Key: .* expected every data file once"):
        Export.open(s3, uri)


@pytest.mark.parametrize("address", ["exports/AWSDynamoDB/1", "s3://bucket/exports/1", "s3://bucket"])
def test_an_address_that_is_none_of_an_export_is_refused(address: str) -> None:
    with pytest.raises(UserError, match="Address of the export: found"):
        locate(address)


def test_a_data_file_as_its_manifest_says_has_no_defect(s3: Any, uri: str) -> None:
    assert [defect(file, s3) for file in Export.open(s3, uri).files] == [None] * 3


def test_an_empty_object_of_an_empty_partition_has_no_defect(s3: Any) -> None:
    s3.put_object(Bucket=BUCKET, Key="empty", Body=b"")
    assert defect(DataFile(BUCKET, "empty", 0, "1B2M2Y8AsgTpgAmY7PhCfg==", 0), s3) is None


def test_changed_bytes_are_a_defect(s3: Any, uri: str) -> None:
    file = Export.open(s3, uri).files[0]
    s3.put_object(Bucket=BUCKET, Key=file.key, Body=b"other")
    assert str(defect(file, s3)).startswith(f"{file.uri}: MD5: found ")


def test_bytes_that_are_no_gzip_are_a_defect(s3: Any) -> None:
    s3.put_object(Bucket=BUCKET, Key="text", Body=b"hello")
    damage = defect(DataFile(BUCKET, "text", 1, "XUFAKrxLKna5cZ2REBfFkg==", 5), s3)
    assert str(damage).endswith(", expected gzip")


def test_another_number_of_items_is_a_defect(s3: Any, uri: str) -> None:
    file = next(file for file in Export.open(s3, uri).files if file.items == 2)
    claimed = DataFile(file.bucket, file.key, 3, file.md5, file.size)
    assert defect(claimed, s3) == f"{file.uri}: found 2 lines, expected 3, as in the manifest"


def test_a_data_file_that_is_gone_is_a_defect(s3: Any) -> None:
    damage = defect(DataFile(BUCKET, "gone", 1, "", 5), s3)
    assert str(damage).startswith(f"s3://{BUCKET}/gone: found no readable object")


@pytest.mark.parametrize("body", [b'{"outputFormat":"ION",', b'{"itemCount":-1'])
def test_a_manifest_that_is_cut_off_behind_a_wrong_field_is_refused(s3: Any, uri: str, body: bytes) -> None:
    s3.put_object(Bucket=BUCKET, Key=_key(uri, "manifest-summary.json"), Body=body)
    with pytest.raises(UserError, match=r"manifest-summary\.json: found .*, expected JSON"):
        Export.open(s3, uri)
