"""Which proxy stands before the API server: the one that kubectl takes. The official package has other rules.

A cluster's own (``proxy-url``) counts, whatever the environment says. Otherwise ``HTTPS_PROXY`` does (or
``HTTP_PROXY``, by the server's scheme). Hosts in ``NO_PROXY`` and this machine itself need no proxy: a
company's proxy does not lead to a local cluster. kubectl ignores ``ALL_PROXY``.
"""

import ipaddress
from typing import Any, Final
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies_environment

from kubernetes.client.rest import should_bypass_proxies
from urllib3.util import make_headers

_KINDS: Final = frozenset({"http", "https"})


def settle(configuration: Any, own: str = "") -> None:
    """Set it; ``own``: the cluster's. Raises ValueError for one that we cannot use."""
    configuration.proxy = proxy = own or _of_environment(str(configuration.host))
    configuration.no_proxy = ""  # it is heard already
    if not proxy:
        return
    parts = urlsplit(proxy)
    if parts.scheme not in _KINDS or not parts.hostname or parts.port == 0:
        kind = f"a proxy of kind {parts.scheme}" if parts.hostname else "a proxy without a host"
        raise ValueError(f"{kind} is named, which is not supported: one of kind http or https is")
    if parts.username is not None:
        who = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        configuration.proxy_headers = make_headers(proxy_basic_auth=who)


def _of_environment(server: str) -> str:
    """Empty: none."""
    parts, known = urlsplit(server), getproxies_environment()
    proxy = known.get(parts.scheme, "")
    if not proxy or _is_here(parts.hostname or "") or should_bypass_proxies(server, known.get("no", "")):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
