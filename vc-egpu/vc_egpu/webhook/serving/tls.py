"""Keeps the webhook's certificates: in a Secret, in both webhook configurations, and in the live TLS context.

Every replica runs this loop, and no leader is needed. The Secret is created only if it is absent, and updated
only at the version that was read. If two replicas renew at once, one wins and the other reads.
"""

import base64
import logging
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.resources import MUTATING_WEBHOOKS, SECRETS, VALIDATING_WEBHOOKS
from vc_egpu.kube.wire.errors import AlreadyExists, Conflict, KubeError, NotFound
from vc_egpu.webhook.serving.authority import CertificateError
from vc_egpu.webhook.serving.certificates import Lifetimes, Material, advance

Json = dict[str, Any]
CONFIGURATION: Final = "vc-egpu"
"""Name of the MutatingWebhookConfiguration and of the ValidatingWebhookConfiguration."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Where certificates are kept and what they are for."""

    namespace: str
    hosts: tuple[str, ...]
    """DNS names and addresses under which the API server calls."""
    secret: str = "vc-egpu-webhook-tls"  # noqa: S105 - the name of a Secret
    interval_s: float = 15.0
    lifetimes: Lifetimes = field(default_factory=Lifetimes)


class TlsKeeper:
    """Runs on a thread of its own; :attr:`ready` is set once a certificate is being served."""

    def __init__(
        self,
        api: ApiConnection,
        settings: TlsSettings,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.context = _context()
        """The listener's. Each handshake moves to the newest certificate's own context. A live context that
        gets a new certificate and then its key would fail the handshakes in between."""
        self.context.sni_callback = self._choose
        self.ready = threading.Event()
        self.not_after: datetime | None = None
        self.failures = 0
        self.reloads = 0
        self._api = api
        self._settings = settings
        self._now = now
        self._stopping = threading.Event()
        self._served: bytes | None = None
        self._newest: ssl.SSLContext | None = None
        self._settled: tuple[bytes, float] | None = None
        """(next issuer's certificate, monotonic instant since which it is in both configurations)."""
        self._thread = threading.Thread(target=self._run, name="tls", daemon=True)

    def start(self) -> "TlsKeeper":
        """Begin."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(5.0)

    def _run(self) -> None:
        while not self._stopping.is_set():
            pause_s = self._settings.interval_s
            try:
                self.step()
            except (KubeError, OSError, ssl.SSLError) as error:
                self.failures += 1
                logger.warning("certificates: %s; trying again", error)
                pause_s = min(2.0, pause_s)
            except Exception:
                self.failures += 1
                logger.exception("certificates: a fault of ours; trying again")
            self._stopping.wait(pause_s)

    def step(self) -> None:
        """One round: read, renew what is due, serve, publish. Raises :class:`KubeError`."""
        material = self._stored()
        self._serve(material)
        self._publish(material)

    # --- the Secret ----------------------------------------------------------------------------------

    def _stored(self) -> Material:
        """The material in force, renewed and written first where that is due."""
        settings = self._settings
        while True:
            secret, material = self._read()
            wanted = advance(
                material,
                settings.hosts,
                self._now(),
                settings.lifetimes,
                next_is_settled=self._is_settled(material),
            )
            if wanted is material:
                return wanted
            try:
                self._write(secret, wanted)
            except (AlreadyExists, Conflict):
                continue  # another replica was quicker: what it wrote holds
            logger.info("certificates: wrote new ones, valid until %s", _until(wanted))
            return wanted

    def _read(self) -> tuple[Json | None, Material | None]:
        try:
            secret = self._api.get(SECRETS, self._settings.secret, self._settings.namespace)
        except NotFound:
            return None, None
        try:
            data = {key: base64.b64decode(value) for key, value in (secret.get("data") or {}).items()}
            return secret, Material.from_secret(data)
        except (CertificateError, ValueError) as error:
            logger.warning("certificates: Secret %s is of no use: %s", self._settings.secret, error)
            return secret, None

    def _write(self, secret: Json | None, material: Material) -> None:
        data = {key: base64.b64encode(value).decode() for key, value in material.to_secret().items()}
        if secret is None:
            metadata = {"name": self._settings.secret, "namespace": self._settings.namespace}
            body = {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": metadata,
                "type": "Opaque",
                "data": data,
            }
            self._api.create(SECRETS, body, self._settings.namespace)
            return
        self._api.update(SECRETS, {**secret, "data": data})

    # --- serving -------------------------------------------------------------------------------------

    def _serve(self, material: Material) -> None:
        """Take the serving certificate into use: new connections get it, old ones live on."""
        chain = material.serving.certificate_pem
        if chain != self._served:
            with tempfile.TemporaryDirectory(prefix="vc-egpu-tls-") as folder:
                certificate, key = Path(folder, "tls.crt"), Path(folder, "tls.key")
                certificate.write_bytes(chain)
                key.touch(mode=0o600)
                key.write_bytes(material.serving.key_pem)
                newest = _context()
                newest.load_cert_chain(certificate, key)
            self._newest, self._served = newest, chain
            self.reloads += 1
            self.not_after = material.serving.certificate.not_valid_after_utc
            logger.info("certificates: serving one that is valid until %s", _until(material))
        self.ready.set()

    def _choose(self, connection: Any, _name: str | None, _context: ssl.SSLContext) -> int | None:
        """Called in each handshake, with or without a server name."""
        if self._newest is None:
            return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR
        connection.context = self._newest
        return None

    # --- the webhook configurations ------------------------------------------------------------------

    def _publish(self, material: Material) -> None:
        bundle = base64.b64encode(material.bundle_pem).decode()
        for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
            try:
                configuration = self._api.get(resource, CONFIGURATION)
            except NotFound:
                continue  # not installed yet, or being removed
            operations = bundle_operations(configuration, bundle)
            if operations:
                self._api.patch(resource, CONFIGURATION, operations, kind="json")
                logger.info("certificates: wrote the bundle into the %s", resource.kind)
        self._note_published(material)

    def _note_published(self, material: Material) -> None:
        successor = material.next_issuer
        if successor is None:
            self._settled = None
        elif self._settled is None or self._settled[0] != successor.certificate_pem:
            self._settled = (successor.certificate_pem, time.monotonic())

    def _is_settled(self, material: Material | None) -> bool:
        if material is None or material.next_issuer is None or self._settled is None:
            return False
        certificate, since = self._settled
        waited_s = time.monotonic() - since
        enough = waited_s >= self._settings.lifetimes.settle.total_seconds()
        return certificate == material.next_issuer.certificate_pem and enough


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def bundle_operations(configuration: Json, bundle: str) -> Sequence[Json]:
    """The JSON patch that gives every webhook of a configuration this ``caBundle``; empty if all have it."""
    operations: list[Json] = [
        {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": bundle}
        for index, webhook in enumerate(configuration.get("webhooks") or ())
        if (webhook.get("clientConfig") or {}).get("caBundle") != bundle
    ]
    if not operations:
        return ()
    version = (configuration.get("metadata") or {}).get("resourceVersion")
    return [{"op": "test", "path": "/metadata/resourceVersion", "value": version}, *operations]


def _until(material: Material) -> str:
    return f"{material.serving.certificate.not_valid_after_utc:%Y-%m-%d %H:%M:%SZ}"
