"""Which proxy is between us and the API server: kubectl's, in all forms that it takes."""

import json
from base64 import b64encode
from pathlib import Path

import pytest
from unit.kube.raw_server import Server
from vc_egpu.kube import ApiConnection, ConfigError
from vc_egpu.kube.wire import config as ours

VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
FAR = "https://203.0.113.7:6443"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def kubeconfig(folder: Path, server: str = FAR, **cluster: str) -> Path:
    path = folder / "config"
    document = {
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(json.dumps(document))
    return path


def proxy_of(path: Path) -> str:
    """The proxy of the pool that requests use; empty: none."""
    manager = ours.load(path).pool_manager(pool_size=1, block=True)
    return str(getattr(manager, "proxy", None) or "")


def test_the_environment_s_is_taken_by_scheme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.corp:3128")
    assert proxy_of(kubeconfig(tmp_path)) == "http://proxy.corp:3128"
    assert proxy_of(kubeconfig(tmp_path, "http://203.0.113.7:80")) == ""
    monkeypatch.setenv("HTTPS_PROXY", "proxy.corp:3128")
    assert proxy_of(kubeconfig(tmp_path)) == "http://proxy.corp:3128", "as it is often written"
    monkeypatch.setenv("NO_PROXY", "203.0.113.0/24")
    assert proxy_of(kubeconfig(tmp_path)) == ""


@pytest.mark.parametrize("server", ["https://127.0.0.1:6443", "https://localhost:6443", "https://[::1]:6443"])
def test_a_cluster_on_this_machine_is_reached_without(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.corp:3128")
    assert proxy_of(kubeconfig(tmp_path, server)) == ""


def test_one_for_everything_is_nothing_to_kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And often of a kind that would have ended us with a traceback."""
    monkeypatch.setenv("ALL_PROXY", "socks5h://127.0.0.1:7890")
    assert proxy_of(kubeconfig(tmp_path)) == ""


@pytest.mark.parametrize("everything", ["*", "203.0.113.0/24"])
def test_a_cluster_s_own_is_taken_whatever_the_environment_says(
    everything: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {"proxy-url": "http://bastion:8888"}
    monkeypatch.setenv("NO_PROXY", everything)
    assert proxy_of(kubeconfig(tmp_path, **own)) == "http://bastion:8888"
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.corp:3128")
    assert proxy_of(kubeconfig(tmp_path, "https://127.0.0.1:6443", **own)) == "http://bastion:8888"


@pytest.mark.parametrize("proxy", ["socks5://me:secret@127.0.0.1:1080", "http://", "http://me:secret@x:port"])
def test_one_that_we_cannot_use_is_refused(
    proxy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.corp:3128")
    with pytest.raises(ConfigError) as caught:
        ApiConnection.connect(kubeconfig(tmp_path, **{"proxy-url": proxy}))
    assert "secret" not in str(caught.value)
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    with pytest.raises(ConfigError):
        ApiConnection.connect(kubeconfig(tmp_path))
    monkeypatch.setenv("NO_PROXY", "203.0.113.7")
    ApiConnection.connect(kubeconfig(tmp_path)).close()


def test_who_we_are_is_told_to_a_proxy_that_asks(tmp_path: Path) -> None:
    server = Server()
    proxy = f"http://me:p%40ss@127.0.0.1:{server.port}"
    api = ApiConnection.connect(kubeconfig(tmp_path, "http://203.0.113.7", **{"proxy-url": proxy}))
    assert api.request_text("/readyz", timeout_s=5.0) == "ok"
    said = b"proxy-authorization: basic " + b64encode(b"me:p@ss").lower()
    assert said in server.seen[0].lower()
    api.close()
    server.close()
