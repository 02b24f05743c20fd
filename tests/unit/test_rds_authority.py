"""What the source connector trusts on AWS is the root of the authority that the instances are given, in each region."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509

from headwater.environment import allow_lists, rds_authority
from headwater.errors import UserError
from headwater.yaml_files import read_yaml

REGIONS = sorted(read_yaml(rds_authority.FILE)["roots"])
# How AWS calls the authorities' roots: https://docs.aws.amazon.com/AmazonRDS/latest/AuroraUserGuide/UsingWithRDS.SSL.html
NAMES = {"rds-ca-rsa2048-g1": "RSA2048 G1", "rds-ca-rsa4096-g1": "RSA4096 G1", "rds-ca-ecc384-g1": "ECC384 G1"}


def test_every_region_of_the_allow_lists_has_a_root() -> None:
    assert set(read_yaml(allow_lists.FILE)["regions"]["values"]) <= set(REGIONS)


@pytest.mark.parametrize("region", REGIONS)
def test_a_root_is_that_of_its_region_and_stays_valid_for_years(region: str) -> None:
    pem = rds_authority.root(region)
    [certificate] = x509.load_pem_x509_certificates(pem.encode())
    [name] = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    assert name.value == f"Amazon RDS {region} Root CA {NAMES[rds_authority.identifier()]}"
    assert certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    # Raises where it did not sign itself.
    certificate.verify_directly_issued_by(certificate)
    now = datetime.datetime.now(datetime.UTC)
    assert certificate.not_valid_before_utc < now
    assert certificate.not_valid_after_utc > now + datetime.timedelta(days=5 * 365)


def test_the_factory_takes_a_root_as_it_stands() -> None:
    # pgjdbc's SingleCertValidatingFactory reads its argument as a certificate where it begins so.
    assert all(rds_authority.root(region).startswith("-----BEGIN CERTIFICATE-----\n") for region in REGIONS)


def test_a_region_without_a_root_is_refused_with_where_to_get_it() -> None:
    expected = r"roots\.xx-none-1: found None, .*https://truststore\.pki\.rds\.amazonaws\.com/xx-none-1/"
    with pytest.raises(UserError, match=expected):
        rds_authority.root("xx-none-1")
