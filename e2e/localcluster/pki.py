"""Certificates of one cluster: one authority, one key pair per identity."""

from __future__ import annotations

import base64
import datetime
from dataclasses import dataclass
from pathlib import Path

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from vc_egpu.webhook.serving.authority import CLIENT, SERVER, issue, make_authority
from vc_egpu.webhook.serving.authority import KeyPair as CertifiedKey

_LIFETIME = datetime.timedelta(days=365)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """Paths of a certificate and its key."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority in a folder."""

    folder: Path

    @property
    def pair(self) -> KeyPair:
        """The authority's own certificate and key."""
        return KeyPair(self.folder / "ca.crt", self.folder / "ca.key")

    @classmethod
    def create(cls, folder: Path) -> Authority:
        """Make a new authority; the folder becomes readable for its owner only."""
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        authority = cls(folder)
        now = datetime.datetime.now(datetime.UTC)
        _write(authority.pair, make_authority("vc-egpu local cluster", now, now + _LIFETIME))
        return authority

    def issue(
        self, file_name: str, common_name: str, groups: tuple[str, ...] = (), hosts: tuple[str, ...] = ()
    ) -> KeyPair:
        """Sign a certificate for both sides of TLS; ``hosts`` are names and addresses."""
        ca = CertifiedKey.from_pem(self.pair.certificate.read_bytes(), self.pair.key.read_bytes())
        now = datetime.datetime.now(datetime.UTC)
        made = issue(
            ca,
            common_name,
            now,
            now + _LIFETIME,
            organizations=groups,
            hosts=hosts,
            purposes=(CLIENT, SERVER),
        )
        pair = KeyPair(self.folder / f"{file_name}.crt", self.folder / f"{file_name}.key")
        _write(pair, made)
        return pair


def write_service_account_keys(folder: Path) -> KeyPair:
    """Key that signs service account tokens; ``certificate`` is the bare public key here."""
    key = ec.generate_private_key(ec.SECP256R1())
    pair = KeyPair(folder / "sa.pub", folder / "sa.key")
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    pair.certificate.write_bytes(public)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    _write_key(pair.key, private)
    return pair


def write_kubeconfig(path: Path, server: str, authority: Authority, user: KeyPair, cluster: str) -> None:
    """Write a kubeconfig that holds its certificates inline, so that it can be copied elsewhere."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": cluster,
                "cluster": {
                    "server": server,
                    "certificate-authority-data": _base64(authority.pair.certificate),
                },
            }
        ],
        "users": [
            {
                "name": cluster,
                "user": {
                    "client-certificate-data": _base64(user.certificate),
                    "client-key-data": _base64(user.key),
                },
            }
        ],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": cluster}}],
        "current-context": cluster,
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")


def _write(pair: KeyPair, made: CertifiedKey) -> None:
    pair.certificate.write_bytes(made.certificate_pem)
    _write_key(pair.key, made.key_pem)


def _write_key(path: Path, key_pem: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(key_pem)


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
