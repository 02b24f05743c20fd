"""A certificate authority of this machine, and the certificates that it signs for servers."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from typing import cast

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

_AUTHORITY = "Headwater's local authority"
_VALID = datetime.timedelta(days=30)
_AUTHORITY_VALID = datetime.timedelta(days=3650)
# A client's clock may be a little behind, so certificates are valid from a little earlier.
_BEFORE = datetime.timedelta(minutes=10)


@dataclass(frozen=True)
class ServerCertificate:
    """The certificate of a server at one address; all fields are PEM."""

    root: str
    """The authority's certificate, which clients trust."""
    certificate: str
    """The certificate that the server shows."""
    key: str
    """The server's private key."""


@dataclass(frozen=True)
class Authority:
    """An authority that signs certificates. Both fields are PEM."""

    root: str
    """The authority's own certificate, which clients trust."""
    key: str
    """The authority's private key."""

    @classmethod
    def make(cls) -> Authority:
        """Make a new authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        root = (
            _builder(_AUTHORITY, _AUTHORITY, key.public_key(), _AUTHORITY_VALID)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(key, hashes.SHA256())
        )
        return cls(_pem(root), _key_pem(key))

    def issue(self, address: str) -> ServerCertificate:
        """Sign a certificate for the server at an IP address."""
        key = cast(ec.EllipticCurvePrivateKey, load_pem_private_key(self.key.encode(), None))
        server = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
        certificate = (
            _builder("Headwater's local server", _AUTHORITY, server.public_key(), _VALID)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(names, critical=False)
            .sign(key, hashes.SHA256())
        )
        return ServerCertificate(self.root, _pem(certificate), _key_pem(server))


def _builder(
    subject: str, issuer: str, key: ec.EllipticCurvePublicKey, valid: datetime.timedelta
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(issuer))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(now + valid)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
