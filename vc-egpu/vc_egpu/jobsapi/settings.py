"""Flags of ``vc-egpu jobs-api``, and what the server needs to know of them."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

SERVER: Final = "https://kubernetes.default.svc"
SERVICE_CA: Final = Path("/var/run/secrets/vc-egpu/ca.crt")
"""Where the manifest mounts the cluster's own ConfigMap ``kube-root-ca.crt``."""
CATALOGUE: Final = Path("/etc/vc-egpu/catalogue/catalogue.yaml")
"""Where the manifest mounts the ConfigMap ``vc-egpu-catalogue``."""
PORT: Final = 9452
METRICS_PORT: Final = 9453


@dataclass(frozen=True, slots=True)
class Settings:
    """How Jobs are taken over HTTP."""

    listen: str
    port: int
    metrics_port: int
    """0: none."""
    server: str
    """URL of the API server."""
    ca_file: Path | None
    tls_files: tuple[Path, Path] | None
    """Certificate and key; None: plain HTTP."""
    catalogue: Path
    """A file that is not there is an empty catalogue."""
    timeout_s: float
    """For each call to the API server."""
    leader: str
    """URL of the admission controller's replicas; empty: no what-if."""
    most_under_way: int
    """Requests that wait for the API server at the same time; more are told to come again."""


def parser() -> argparse.ArgumentParser:
    """The flags."""
    flags = argparse.ArgumentParser(
        prog="vc-egpu jobs-api", description="Jobs over plain HTTP, each with the rights of its own token."
    )
    flags.add_argument("--listen", default="", metavar="ADDRESS", help="default: all addresses")
    flags.add_argument("--port", type=int, default=PORT, help=f"default: {PORT}")
    flags.add_argument("--metrics-port", type=int, default=METRICS_PORT, help="0: none")
    flags.add_argument("--server", default=SERVER, metavar="URL", help="of the API server")
    flags.add_argument("--ca-file", type=Path, default=SERVICE_CA, help="the API server's authority")
    flags.add_argument("--tls-cert-file", type=Path, help="serve https with this certificate")
    flags.add_argument("--tls-key-file", type=Path, help="and this key")
    flags.add_argument(
        "--plain-http", action="store_true", help="tokens come in plain text: TLS ends before this process"
    )
    flags.add_argument("--catalogue", type=Path, default=CATALOGUE, metavar="FILE", help="of adapted models")
    flags.add_argument("--timeout-s", type=float, default=15.0, help="for each call to the API server")
    flags.add_argument("--leader", default="", metavar="URL", help="http://HOST:PORT, for what-if")
    flags.add_argument("--most-under-way", type=int, default=128, help="requests at the same time")
    return flags


def settings_of(argv: Sequence[str]) -> Settings:
    """The settings; exits with a usage error for a value that cannot be."""
    flags = parser()
    found = flags.parse_args(argv)
    parts = urlsplit(found.server)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.password:
        flags.error(f"--server: {found.server!r} is no http or https URL without a password")
    if (found.tls_cert_file is None) != (found.tls_key_file is None):
        flags.error("--tls-cert-file and --tls-key-file belong together")
    if found.tls_cert_file is None and not found.plain_http:
        flags.error(
            "tokens would cross the network in plain text: name --tls-cert-file and --tls-key-file, or say "
            "--plain-http where TLS ends before this process"
        )
    if found.most_under_way < 1 or found.timeout_s <= 0:
        flags.error("--most-under-way and --timeout-s must be positive")
    return Settings(
        listen=found.listen,
        port=found.port,
        metrics_port=found.metrics_port,
        server=found.server,
        ca_file=found.ca_file if found.ca_file.is_file() else None,
        tls_files=(found.tls_cert_file, found.tls_key_file) if found.tls_cert_file else None,
        catalogue=found.catalogue,
        timeout_s=found.timeout_s,
        leader=found.leader,
        most_under_way=found.most_under_way,
    )
