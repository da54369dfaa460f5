"""From kubeconfig or service account to what a connection needs: base URL, TLS, authorization header.

All loading (contexts, client certificates, exec plugins, token files) is the official package's.
"""

import logging
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import urllib3
from kubernetes.client import Configuration
from kubernetes.client.rest import RESTClientObject
from kubernetes.config import incluster_config, load_incluster_config, load_kube_config
from kubernetes.config.config_exception import ConfigException
from kubernetes.config.kube_config import KUBE_CONFIG_DEFAULT_LOCATION, KubeConfigMerger
from urllib3.exceptions import InsecureRequestWarning
from yaml import YAMLError

from vc_egpu.kube.wire import proxies
from vc_egpu.kube.wire.errors import Unauthorized

_TOKEN_CHECK_S: Final = 5.0
"""How often the token hook runs: it reads token files again, and asks exec plugins at expiry."""


class ConfigError(Exception):
    """No usable kubeconfig and not in a cluster; the text says what was tried."""


class Endpoint:
    """Where the API server is and how to prove who we are. Thread-safe."""

    def __init__(self, configuration: Any) -> None:
        self._configuration = configuration
        host = str(configuration.host).rstrip("/")
        parts = urlsplit(host)
        if parts.scheme not in {"http", "https"} or not parts.netloc:
            raise ConfigError(f"the API server's address {host!r} is not a http(s) URL")
        self.base_url = f"{parts.scheme}://{parts.netloc}"
        self.path_prefix = parts.path
        self.uses_proxy = bool(getattr(configuration, "proxy", None))
        self._lock = threading.Lock()
        self._header: str | None = None
        self._checked_at = float("-inf")

    def pool_manager(self, *, pool_size: int, block: bool) -> Any:
        """A urllib3 pool manager with this endpoint's TLS settings, proxy and keep-alive."""
        if not self._configuration.verify_ssl:
            # The operator who set `insecure-skip-tls-verify` knows it, but urllib3 warns at each request.
            urllib3.disable_warnings(InsecureRequestWarning)
        # A dropped connection, or a read that was sent again, is not worth a line in the log either.
        logging.getLogger("urllib3").setLevel(logging.ERROR)
        self._configuration.keep_alive = True
        self._configuration.connection_pool_maxsize = pool_size
        manager = RESTClientObject(self._configuration).pool_manager
        manager.connection_pool_kw["block"] = block
        return manager

    def authorization(self, *, renew: bool = False) -> str | None:
        """The Authorization header, or None where client certificates do the work."""
        now = time.monotonic()
        with self._lock:
            if renew or now - self._checked_at > _TOKEN_CHECK_S:
                try:
                    found = self._configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
                except (ConfigException, OSError) as error:
                    raise Unauthorized(f"the token cannot be read: {error}", status=401) from error
                header = str(found).strip() if found else None
                if header is not None and not (header.isascii() and header.isprintable()):
                    # The library that tries to send it would put it into errors and logs.
                    raise Unauthorized("the token has characters that no header may have", status=401)
                self._header = header
                self._checked_at = now
            return self._header


def load(kubeconfig: str | Path | None = None, context: str | None = None) -> Endpoint:
    """Find the API server: the file given, ``$KUBECONFIG``, the service account, ``~/.kube/config``.

    The first that is there counts; a context that is named is one of a file. Raises :class:`ConfigError` that
    names what was tried.
    """
    configuration = Configuration()
    in_cluster = _in_cluster(kubeconfig, context)
    try:
        if in_cluster:
            load_incluster_config(client_configuration=configuration)
            _read_again(configuration, Path(incluster_config.SERVICE_TOKEN_FILENAME))
            proxies.settle(configuration)
        else:
            # The package reads the variable once, at import: a process that sets it later is not heard.
            path = _paths(kubeconfig)
            files = KubeConfigMerger(path)
            context = context or _current_context(files)
            load_kube_config(config_file=path, context=context, client_configuration=configuration)
            name, user, beside = _active_user(files, context)
            _check_user(name, user, configuration)
            proxies.settle(configuration, _own_proxy(files, context))
            _not_at_once(configuration)
            if user.get("tokenFile"):
                _read_again(configuration, beside / user["tokenFile"])
    except (ConfigException, OSError, ValueError) as error:
        named = os.environ.get("KUBECONFIG")
        default = f"$KUBECONFIG ({named})" if named else KUBE_CONFIG_DEFAULT_LOCATION
        source = "the service account" if in_cluster else (kubeconfig or default)
        if not (in_cluster or kubeconfig or named or context) and _in_pod():
            source = f"{source}, and this pod has no token of a service account"
        raise ConfigError(f"no usable API server configuration in {source}: {error}") from error
    except (TypeError, KeyError, AttributeError, YAMLError) as error:
        # The official package stumbles over what it does not expect.
        raise ConfigError(f"{kubeconfig or '$KUBECONFIG'} is no kubeconfig: {error}") from error
    return Endpoint(configuration)


def with_token(server: str, ca_file: str | Path | None, token: str) -> Endpoint:
    """The API server at this URL, for the bearer of this token; ``ca_file`` None: the system's authorities.

    Nothing of the process itself is used, also no kubeconfig. Raises :class:`ConfigError`.
    """
    configuration = _at(server, ca_file)
    configuration.api_key = {"BearerToken": f"Bearer {token}"}
    return Endpoint(configuration)


def without_credentials(server: str, ca_file: str | Path | None) -> Endpoint:
    """The API server at this URL, for nobody: each request brings credentials, or is anonymous.

    Raises :class:`ConfigError`.
    """
    return Endpoint(_at(server, ca_file))


def _at(server: str, ca_file: str | Path | None) -> Configuration:
    configuration = Configuration()
    configuration.host = server
    configuration.ssl_ca_cert = str(ca_file) if ca_file is not None else None
    proxies.settle(configuration)
    return configuration


def _paths(kubeconfig: str | Path | None) -> str:
    """The file, or those of the variable."""
    return str(kubeconfig or os.environ.get("KUBECONFIG") or KUBE_CONFIG_DEFAULT_LOCATION)


def _current_context(files: KubeConfigMerger) -> str | None:
    """Which context is meant where none is named: of several files the first that says so counts, as with
    kubectl. The official package takes the last, which may lead to another cluster."""
    said = (files.config_files[file].get("current-context") for file in files.paths)
    return next((str(name) for name in said if name), None)


def _own_proxy(files: KubeConfigMerger, context: str | None) -> str:
    """The one that the cluster names, or empty."""
    known = files.config
    active = known["contexts"].get_with_name(context)["context"]
    return str(known["clusters"].get_with_name(active["cluster"])["cluster"].safe_get("proxy-url") or "")


def _active_user(files: KubeConfigMerger, context: str | None) -> tuple[str, Mapping[str, Any], Path]:
    """Name and credentials of the user, as they stand there, and the folder of the file that has them."""
    known = files.config
    active = known["contexts"].get_with_name(context)
    name = active["context"].safe_get("user")
    found = known["users"].get_with_name(name, safe=True) if name and known.safe_get("users") else None
    if found is None:
        return str(name), {}, Path()
    return str(name), found.value.get("user") or {}, Path(found.path or "").parent


def _check_user(name: str, user: Mapping[str, Any], configuration: Any) -> None:
    """Refuse what the official package ignores, and would do as another user."""
    wished = [key for key in user if key == "as" or key.startswith("as-")]
    if wished:
        # Requests meant for the rights of another user would use those of the certificate in the same entry,
        # which are often an administrator's.
        raise ConfigError(
            f"user {name!r} of the kubeconfig acts as another user ({wished[0]}: "
            f"{str(user[wished[0]])[:63]!r}), which is not supported: use credentials of their own"
        )
    plugin = user.get("exec") or user.get("auth-provider")
    if plugin and not configuration.api_key and not configuration.cert_file:
        # The plugin has logged why, or is of an unknown kind. Without an identity we may do next to nothing,
        # and the server's refusal says so.
        known = plugin if isinstance(plugin, dict) else {}
        command = str(known.get("command") or known.get("name") or plugin)[:63]
        raise ConfigError(f"user {name!r} of the kubeconfig: {command!r} has given no credentials")


def default_namespace(kubeconfig: str | Path | None = None, context: str | None = None) -> str:
    """Where who names no namespace is, as with kubectl: the context's, or the pod's own where its service
    account is what :func:`load` takes."""
    if _in_cluster(kubeconfig, context):
        file = Path(incluster_config.SERVICE_TOKEN_FILENAME).with_name("namespace")
        return os.environ.get("POD_NAMESPACE") or (file.read_text().strip() if file.is_file() else "default")
    try:
        files = KubeConfigMerger(_paths(kubeconfig))
        chosen = files.config["contexts"].get_with_name(context or _current_context(files))
        return str(chosen["context"].safe_get("namespace") or "default")
    except (ConfigException, OSError, TypeError):
        return "default"  # no such file: the connection reports it


def contexts(kubeconfig: str | Path | None = None) -> tuple[str, ...]:
    """The names of all contexts, in the order of the file. Raises :class:`ConfigError`."""
    path = _paths(kubeconfig)
    try:
        found = KubeConfigMerger(path).config
        return tuple(str(one["name"]) for one in found["contexts"].value) if found is not None else ()
    except (ConfigException, OSError, ValueError, TypeError, KeyError, AttributeError, YAMLError) as error:
        raise ConfigError(f"{path} is no kubeconfig with contexts: {error}") from error


def _in_cluster(kubeconfig: str | Path | None, context: str | None) -> bool:
    """Whether the service account is what is there first; a pod need not have one mounted."""
    named = kubeconfig is not None or context is not None or os.environ.get("KUBECONFIG")
    return not named and _in_pod() and Path(incluster_config.SERVICE_TOKEN_FILENAME).is_file()


def _in_pod() -> bool:
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST"))


def _not_at_once(configuration: Any) -> None:
    """Credentials that a plugin just gave are not asked for again at the first request. The official package
    treats five minutes or less as expired, so a plugin that opens a browser opened two."""
    hook, loaded_at = configuration.refresh_api_key_hook, time.monotonic()

    def later(configuration: Any) -> None:
        if time.monotonic() - loaded_at > _TOKEN_CHECK_S:
            hook(configuration)

    configuration.refresh_api_key_hook = later if hook is not None else None


def _read_again(configuration: Any, token_file: Path) -> None:
    # The official package reads a kubeconfig's token once, and such tokens live for an hour. It reads a
    # service account's token by the time of day, which may have been set back. It also does not read it at
    # once after a refusal.
    def read(configuration: Any) -> None:
        try:
            token = token_file.read_text().strip()
        except (OSError, ValueError):
            return  # it is being replaced: the last one is good for a while
        if token:
            configuration.api_key["BearerToken"] = f"Bearer {token}"

    configuration.refresh_api_key_hook = read
