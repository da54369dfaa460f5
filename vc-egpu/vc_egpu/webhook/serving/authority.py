"""A certificate authority: key pairs, and certificates that one key pair signs for another. No I/O here."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

SERVER: Final = ExtendedKeyUsageOID.SERVER_AUTH
CLIENT: Final = ExtendedKeyUsageOID.CLIENT_AUTH
_BACKDATE: Final = timedelta(minutes=5)
"""Clocks of API servers differ a little from ours."""


class CertificateError(ValueError):
    """What is stored is not what we write; the text says what is wrong."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def from_pem(cls, certificate: bytes, key: bytes) -> "KeyPair":
        """Raises :class:`CertificateError` for what does not parse or does not belong together."""
        try:
            parsed = x509.load_pem_x509_certificate(certificate)
            private = serialization.load_pem_private_key(key, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise CertificateError(f"a certificate or key does not parse: {error}") from error
        if not isinstance(private, ec.EllipticCurvePrivateKey) or parsed.public_key() != private.public_key():
            raise CertificateError("a certificate and its key do not belong together")
        return cls(parsed, private)

    @property
    def certificate_pem(self) -> bytes:
        """PEM of the certificate."""
        return pem(self.certificate)

    @property
    def key_pem(self) -> bytes:
        """PEM of the key, not encrypted."""
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )


def make_authority(name: str, begin: datetime, end: datetime) -> KeyPair:
    """A new self-signed authority that may sign nothing but leaf certificates."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    usage = _key_usage(key_cert_sign=True, crl_sign=True)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = (
        _builder(subject, subject, key, begin, end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(identifier, critical=False)
    )
    return KeyPair(builder.sign(key, hashes.SHA256()), key)


def issue(
    issuer: KeyPair,
    name: str,
    begin: datetime,
    end: datetime,
    *,
    organizations: Sequence[str] = (),
    hosts: Sequence[str] = (),
    purposes: Sequence[x509.ObjectIdentifier] = (SERVER,),
) -> KeyPair:
    """A new certificate for these DNS names and addresses; it never outlives its issuer."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization) for organization in organizations]
    subject.append(x509.NameAttribute(NameOID.COMMON_NAME, name))
    until = min(end, issuer.certificate.not_valid_after_utc)
    authority_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.key.public_key())
    builder = (
        _builder(x509.Name(subject), issuer.certificate.subject, key, begin, until)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(authority_key, critical=False)
    )
    if hosts:
        names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    return KeyPair(builder.sign(issuer.key, hashes.SHA256()), key)


def pem(certificate: x509.Certificate) -> bytes:
    """PEM of a certificate."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, begin: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin - min(_BACKDATE, (end - begin) / 10))
        .not_valid_after(end)
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_usage(**wanted: bool) -> x509.KeyUsage:
    every: dict[str, Any] = dict.fromkeys(
        (
            "digital_signature",
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "key_cert_sign",
            "crl_sign",
            "encipher_only",
            "decipher_only",
        ),
        False,
    )
    return x509.KeyUsage(**{**every, **wanted})
