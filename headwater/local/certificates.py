"""A certificate authority that lasts as long as a run, and the certificate that it signs for a server."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

_VALID = datetime.timedelta(days=30)
# A clock that is a little behind must not see a certificate of the future.
_BEFORE = datetime.timedelta(minutes=10)


@dataclass(frozen=True)
class ServerCertificate:
    """What a server of one address shows, and what its clients trust; all PEM. ``key`` is the server's private key."""

    root: str
    certificate: str
    key: str


def issue(address: str) -> ServerCertificate:
    """Make an authority, and have it sign a certificate for the server at an IP address."""
    authority, server = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    root = (
        _builder("Headwater's local authority", "Headwater's local authority", authority.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority, hashes.SHA256())
    )
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
    certificate = (
        _builder("Headwater's local server", "Headwater's local authority", server.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(names, critical=False)
        .sign(authority, hashes.SHA256())
    )
    key = server.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return ServerCertificate(_pem(root), _pem(certificate), key.decode())


def _builder(subject: str, issuer: str, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(issuer))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(now + _VALID)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()
