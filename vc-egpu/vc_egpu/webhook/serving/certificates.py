"""The webhook's own certificate authority: made, renewed and replaced without a moment in which the API
server and a replica disagree. No I/O in here.

A new authority is first only added to the bundle (``next_issuer``). When the bundle with it has been in both
webhook configurations for a while, serving certificates are issued from it. The old authority stays in the
bundle until it expires, so that a replica that is slow to notice is still trusted.
"""

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_BACKDATE: Final = timedelta(minutes=5)
"""Clocks of API servers differ a little from ours."""
_SECRET_KEYS: Final = ("tls.crt", "tls.key", "ca.crt", "issuer.crt", "issuer.key")


class CertificateError(ValueError):
    """What is stored is not what this module writes; the text says what is wrong."""


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """How long certificates hold. Both are renewed when a third of that is left."""

    authority: timedelta = timedelta(days=365)
    serving: timedelta = timedelta(days=90)
    settle: timedelta = timedelta(seconds=60)
    """How long a new authority is in both configurations before anything it signed is served."""


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


@dataclass(frozen=True, slots=True)
class Material:
    """All that the Secret holds."""

    issuer: KeyPair
    serving: KeyPair
    bundle: tuple[x509.Certificate, ...]
    """Every authority that the API server is to trust, the issuer among them."""
    next_issuer: KeyPair | None = None

    @property
    def bundle_pem(self) -> bytes:
        """The ``caBundle``."""
        return b"".join(pem(certificate) for certificate in self.bundle)

    def to_secret(self) -> dict[str, bytes]:
        """The Secret's data."""
        data = {
            "tls.crt": self.serving.certificate_pem,
            "tls.key": self.serving.key_pem,
            "ca.crt": self.bundle_pem,
            "issuer.crt": self.issuer.certificate_pem,
            "issuer.key": self.issuer.key_pem,
        }
        if self.next_issuer is not None:
            data["next-issuer.crt"] = self.next_issuer.certificate_pem
            data["next-issuer.key"] = self.next_issuer.key_pem
        return data

    @classmethod
    def from_secret(cls, data: Mapping[str, bytes]) -> "Material":
        """Read the Secret's data back; raises :class:`CertificateError`."""
        missing = [key for key in _SECRET_KEYS if not data.get(key)]
        if missing:
            raise CertificateError(f"the Secret lacks {', '.join(missing)}")
        try:
            bundle = tuple(x509.load_pem_x509_certificates(data["ca.crt"]))
        except ValueError as error:
            raise CertificateError(f"ca.crt does not parse: {error}") from error
        has_next = data.get("next-issuer.crt") and data.get("next-issuer.key")
        return cls(
            issuer=KeyPair.from_pem(data["issuer.crt"], data["issuer.key"]),
            serving=KeyPair.from_pem(data["tls.crt"], data["tls.key"]),
            bundle=bundle,
            next_issuer=KeyPair.from_pem(data["next-issuer.crt"], data["next-issuer.key"])
            if has_next
            else None,
        )


def advance(
    material: Material | None,
    hosts: Sequence[str],
    now: datetime,
    lifetimes: Lifetimes,
    *,
    next_is_settled: bool = False,
) -> Material:
    """What should be stored now; the same object where nothing is due.

    ``next_is_settled``: the bundle with ``next_issuer`` has been in both configurations for
    ``lifetimes.settle``.
    """
    if material is None or _expired(material.issuer.certificate, now):
        issuer = make_authority(now, lifetimes)
        return Material(issuer, make_serving(issuer, hosts, now, lifetimes), (issuer.certificate,))
    if material.next_issuer is not None and next_is_settled:
        issuer = material.next_issuer
        serving = make_serving(issuer, hosts, now, lifetimes)
        material = replace(material, issuer=issuer, serving=serving, next_issuer=None)
    elif material.next_issuer is None and _is_due(material.issuer.certificate, now):
        successor = make_authority(now, lifetimes)
        bundle = (*material.bundle, successor.certificate)
        material = replace(material, next_issuer=successor, bundle=bundle)
    if not _serves(material, hosts, now):
        material = replace(material, serving=make_serving(material.issuer, hosts, now, lifetimes))
    return _with_bundle(material, now)


def _with_bundle(material: Material, now: datetime) -> Material:
    needed = [
        material.issuer.certificate,
        *([material.next_issuer.certificate] if material.next_issuer else []),
    ]
    kept = [certificate for certificate in material.bundle if not _expired(certificate, now)]
    bundle = tuple(dict.fromkeys([*kept, *needed]))
    return material if bundle == material.bundle else replace(material, bundle=bundle)


def _serves(material: Material, hosts: Sequence[str], now: datetime) -> bool:
    certificate = material.serving.certificate
    try:
        certificate.verify_directly_issued_by(material.issuer.certificate)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return not _is_due(certificate, now) and set(hosts) <= _hosts_of(certificate)


def _hosts_of(certificate: x509.Certificate) -> set[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    addresses = {str(address) for address in names.get_values_for_type(x509.IPAddress)}
    return set(names.get_values_for_type(x509.DNSName)) | addresses


def _is_due(certificate: x509.Certificate, now: datetime) -> bool:
    life = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    return certificate.not_valid_after_utc - now < life / 3


def _expired(certificate: x509.Certificate, now: datetime) -> bool:
    return certificate.not_valid_after_utc <= now


def make_authority(now: datetime, lifetimes: Lifetimes) -> KeyPair:
    """A new self-signed authority that may sign nothing but leaf certificates."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        [x509.NameAttribute(NameOID.COMMON_NAME, f"vc-egpu webhook CA {now:%Y-%m-%dT%H:%M:%SZ}")]
    )
    usage = _key_usage(key_cert_sign=True, crl_sign=True)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = (
        _builder(name, name, key, now, now + lifetimes.authority)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(identifier, critical=False)
    )
    return KeyPair(builder.sign(key, hashes.SHA256()), key)


def make_serving(issuer: KeyPair, hosts: Sequence[str], now: datetime, lifetimes: Lifetimes) -> KeyPair:
    """A new serving certificate for these DNS names and addresses; it never outlives its issuer."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0][:64])])
    until = min(now + lifetimes.serving, issuer.certificate.not_valid_after_utc)
    authority_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.key.public_key())
    builder = (
        _builder(name, issuer.certificate.subject, key, now, until)
        .add_extension(x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(authority_key, critical=False)
    )
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
