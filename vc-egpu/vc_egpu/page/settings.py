"""Flags of ``vc-egpu ui``, and what the server needs to know of them."""

import argparse
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

SERVICE_CA: Final = Path("/var/run/secrets/vc-egpu/ca.crt")
"""Where the manifest mounts the cluster's own ConfigMap ``kube-root-ca.crt``."""
SERVER: Final = "https://kubernetes.default.svc"
LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True, slots=True)
class Settings:
    """How the page is served to several users."""

    listen: str
    port: int
    public_url: str
    """What users type; its host and its scheme are the only ones that are answered."""
    server: str
    """URL of the API server."""
    ca_file: Path | None
    tls_files: tuple[Path, Path] | None
    """Certificate and key, where the page serves https itself."""
    proxy_cidrs: tuple[Network, ...]
    proxy_header: str
    """The header in which a proxy from these networks sends the user's own token."""
    prometheus: str
    leader: str
    """URL of the admission controller's replicas; empty: what others hold is not shown."""
    most_users: int
    idle_s: float
    """A user that looks at nothing for so long is forgotten."""


def parser() -> argparse.ArgumentParser:
    """The flags of ``vc-egpu ui``."""
    flags = argparse.ArgumentParser(
        prog="vc-egpu ui", description="The page for several users, each with the rights of their own token."
    )
    flags.add_argument("--listen", default="", metavar="ADDRESS", help="default: all addresses")
    flags.add_argument("--port", type=int, default=9450, help="default: 9450")
    flags.add_argument(
        "--public-url", default="http://localhost:9450", metavar="URL", help="as users type it"
    )
    flags.add_argument("--server", default=SERVER, metavar="URL", help="of the API server")
    flags.add_argument("--ca-file", type=Path, default=SERVICE_CA, help="the API server's authority")
    flags.add_argument("--tls-cert-file", type=Path, help="serve https with this certificate")
    flags.add_argument("--tls-key-file", type=Path, help="and this key")
    flags.add_argument(
        "--proxy-cidr",
        action="append",
        default=[],
        metavar="CIDR",
        help="an authenticating proxy is there, and sends the user's token; may be repeated",
    )
    flags.add_argument("--proxy-header", default="Authorization", help="the header that has the token")
    flags.add_argument("--prometheus", default="", metavar="URL", help="for the history of cards and queues")
    flags.add_argument(
        "--leader",
        default="",
        metavar="URL",
        help="http://HOST:PORT of the admission controllers: what others hold",
    )
    flags.add_argument("--most-users", type=int, default=32, help="at the same time; default: 32")
    flags.add_argument("--idle-s", type=float, default=1800.0, help="until a user is forgotten")
    return flags


def settings_of(argv: Sequence[str]) -> Settings:
    """The settings; exits with a usage error for a value that cannot be."""
    flags = parser()
    found = flags.parse_args(argv)
    try:
        cidrs = tuple(ipaddress.ip_network(text) for text in found.proxy_cidr)
    except ValueError as error:
        flags.error(f"--proxy-cidr: {error}")
    for name in ("public_url", "server", "prometheus", "leader"):
        if problem := _problem(str(getattr(found, name))):
            flags.error(f"--{name.replace('_', '-')}: {problem}")
    if found.most_users < 1:
        flags.error("--most-users must be at least 1")
    if (found.tls_cert_file is None) != (found.tls_key_file is None):
        flags.error("--tls-cert-file and --tls-key-file belong together")
    parts = urlsplit(found.public_url)
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        flags.error(
            "--public-url: tokens would cross the network in plain text. Put TLS before the page and name "
            "its https URL, or use http://localhost with `kubectl port-forward`"
        )
    return Settings(
        listen=found.listen,
        port=found.port,
        public_url=found.public_url.rstrip("/"),
        server=found.server,
        ca_file=found.ca_file if found.ca_file.is_file() else None,
        tls_files=(found.tls_cert_file, found.tls_key_file) if found.tls_cert_file else None,
        proxy_cidrs=cidrs,
        proxy_header=found.proxy_header,
        prometheus=found.prometheus.rstrip("/"),
        leader=found.leader.rstrip("/"),
        most_users=found.most_users,
        idle_s=found.idle_s,
    )


def is_loopback(host: str) -> bool:
    """Whether a host of a URL is this very machine."""
    return host in {"localhost", "127.0.0.1", "::1"}


def _problem(url: str) -> str:
    if not url:
        return ""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        return f"{url!r} is no http or https URL"
    return "a URL with a password in it stands in every log" if parts.password else ""
