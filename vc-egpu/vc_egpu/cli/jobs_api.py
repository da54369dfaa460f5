"""The way to the jobs API for commands of users that may not read the whole cluster."""

import argparse
import ipaddress
import os
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from vc_egpu.jobsapi.client import JobsClient
from vc_egpu.kube import ApiConnection

VARIABLE: Final = "VC_EGPU_JOBS_API"
"""Names the URL where no flag does."""


class CannotAskError(Exception):
    """The jobs API cannot be asked; the text says why."""


def url_of(options: argparse.Namespace) -> str:
    """The URL that the flags or the environment name; empty: none."""
    return str(options.jobs_api or os.environ.get(VARIABLE, ""))


def client(api: ApiConnection, url: str, ca_file: Path | None) -> JobsClient:
    """Asks with this user's own token. Raises :class:`CannotAskError`."""
    _must_be_safe(url)
    token = api.bearer_token()
    if token is None:
        raise CannotAskError(
            "the jobs API takes tokens, and your kubeconfig has a certificate in place of one. "
            "Use one with a token, as of `kubectl create token`"
        )
    return JobsClient(url, token, ca_file=ca_file)


def _must_be_safe(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme == "https" and parts.hostname:
        return
    if parts.scheme == "http" and _is_here(parts.hostname or ""):
        return
    raise CannotAskError(
        f"{url!r}: your token goes there, so it must be https://HOST, or http to this machine, "
        "where a port-forward begins"
    )


def _is_here(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
