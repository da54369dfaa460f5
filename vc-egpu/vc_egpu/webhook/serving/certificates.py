"""The webhook's certificates: how they are renewed without a moment of distrust. No I/O in here.

A new authority is first only added to the bundle (``next_issuer``). When the bundle with it has been in both
webhook configurations for a while, serving certificates are issued from it. The old authority stays in the
bundle until it expires, so that a replica that is slow to notice is still trusted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from vc_egpu.webhook.serving.authority import CertificateError, KeyPair, issue, make_authority, pem

_SECRET_KEYS: Final = ("tls.crt", "tls.key", "ca.crt", "issuer.crt", "issuer.key")


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """How long certificates hold. Both are renewed when a third of that is left."""

    authority: timedelta = timedelta(days=365)
    serving: timedelta = timedelta(days=90)
    settle: timedelta = timedelta(seconds=60)
    """How long a new authority is in both configurations before anything it signed is served."""


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
        issuer = _authority(now, lifetimes)
        return Material(issuer, _serving(issuer, hosts, now, lifetimes), (issuer.certificate,))
    if material.next_issuer is not None and next_is_settled:
        issuer = material.next_issuer
        serving = _serving(issuer, hosts, now, lifetimes)
        material = replace(material, issuer=issuer, serving=serving, next_issuer=None)
    elif material.next_issuer is None and _is_due(material.issuer.certificate, now):
        successor = _authority(now, lifetimes)
        bundle = (*material.bundle, successor.certificate)
        material = replace(material, next_issuer=successor, bundle=bundle)
    if not _serves(material, hosts, now):
        material = replace(material, serving=_serving(material.issuer, hosts, now, lifetimes))
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


def _authority(now: datetime, lifetimes: Lifetimes) -> KeyPair:
    return make_authority(f"vc-egpu webhook CA {now:%Y-%m-%dT%H:%M:%SZ}", now, now + lifetimes.authority)


def _serving(issuer: KeyPair, hosts: Sequence[str], now: datetime, lifetimes: Lifetimes) -> KeyPair:
    return issue(issuer, hosts[0][:64], now, now + lifetimes.serving, hosts=hosts)
