import pytest

from headwater.lake.base.s3_uri import key_below, object_uri, split_uri


@pytest.mark.parametrize("uri", ["s3://bucket/a/b", "s3a://bucket/a/b/", "s3://bucket//a/b"])
def test_an_address_is_a_bucket_and_a_prefix_without_slashes_at_its_ends(uri: str) -> None:
    assert split_uri(uri) == ("bucket", "a/b")


def test_an_address_may_have_no_prefix() -> None:
    assert split_uri("s3://bucket") == split_uri("s3://bucket/") == ("bucket", "")
    assert key_below("", "name") == "name"
    assert object_uri("bucket", key_below("a", "name")) == "s3://bucket/a/name"


@pytest.mark.parametrize("uri", ["", "bucket/a", "s3:bucket", "s3://", "s3:///a", "https://bucket/a"])
def test_what_is_no_address_in_s3_is_refused(uri: str) -> None:
    with pytest.raises(ValueError, match="expected s3://bucket/prefix"):
        split_uri(uri)


def test_a_key_may_hold_whatever_an_address_holds() -> None:
    assert split_uri("s3://bucket/X/copy of s3://other/X") == ("bucket", "X/copy of s3://other/X")
