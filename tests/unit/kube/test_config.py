"""Which API server, and which namespace: from files, and in pods that have a service account or none."""

import json
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from kubernetes.config import incluster_config, kube_config
from urllib3.exceptions import InsecureRequestWarning
from vc_egpu.kube import ConfigError
from vc_egpu.kube.wire import config as ours
from vc_egpu.kube.wire.errors import Unauthorized


def kubeconfig(path: Path) -> Path:
    clusters = {"one": "http://127.0.0.1:1", "two": "http://127.0.0.1:2"}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": url}} for name, url in clusters.items()],
        "users": [{"name": "u", "user": {}}],
        "contexts": [
            {"name": "one", "context": {"cluster": "one", "user": "u", "namespace": "first"}},
            {"name": "two", "context": {"cluster": "two", "user": "u"}},
        ],
        "current-context": "one",
    }
    path.write_text(json.dumps(document))
    return path


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As in a pod; the folder of its service account."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("POD_NAMESPACE", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    for name in ("token", "namespace", "ca.crt"):
        (tmp_path / name).write_text({"token": "secret", "namespace": "notebooks\n", "ca.crt": "x"}[name])
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    for module in (ours, kube_config):
        monkeypatch.setattr(module, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "home"))
    return tmp_path


def test_who_names_no_namespace_in_a_pod_is_in_the_pod_s_own(
    pod: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ours.load().base_url == "https://10.0.0.1:443"
    assert ours.default_namespace() == "notebooks"
    monkeypatch.setenv("POD_NAMESPACE", "named")
    assert ours.default_namespace() == "named", "as kubectl has it"
    monkeypatch.delenv("POD_NAMESPACE")
    (pod / "namespace").unlink()
    assert ours.default_namespace() == "default"


def test_a_context_that_is_named_in_a_pod_is_not_passed_over(pod: Path) -> None:
    """A user who gives `--context` in a pod means another cluster than the pod's."""
    kubeconfig(pod / "home")
    assert ours.load(context="two").base_url == "http://127.0.0.1:2"
    assert ours.default_namespace(context="one") == "first"
    assert ours.load().base_url == "https://10.0.0.1:443"


def test_a_pod_without_a_service_account_has_its_file(pod: Path) -> None:
    """As notebooks often have none mounted."""
    (pod / "token").unlink()
    with pytest.raises(ConfigError, match="no token of a service account"):
        ours.load()
    kubeconfig(pod / "home")
    assert ours.load().base_url == "http://127.0.0.1:1"
    assert ours.default_namespace() == "first"


def test_a_service_account_s_token_is_read_again_whatever_the_time_of_day(pod: Path) -> None:
    """A node may begin with a clock of tomorrow, and is set right soon; tokens live an hour."""
    (pod / "token").write_text("first\n")
    endpoint = ours.load()
    assert endpoint.authorization() == "Bearer first"
    (pod / "token").write_text("second")
    assert endpoint.authorization(renew=True) == "Bearer second", "as after a refusal"
    (pod / "token").write_text("")
    assert endpoint.authorization(renew=True) == "Bearer second", "while it is being replaced"


def test_of_a_token_and_a_file_of_it_the_file_counts(tmp_path: Path) -> None:
    """As kubectl has it: the token in the same entry is an old one."""
    path = kubeconfig(tmp_path / "config")
    user = {"token": "old", "tokenFile": str(tmp_path / "token")}
    document = json.loads(path.read_text()) | {"users": [{"name": "u", "user": user}]}
    path.write_text(json.dumps(document))
    endpoint = ours.load(path)
    assert endpoint.authorization() == "Bearer old", "there is no file yet"
    (tmp_path / "token").write_text("new")
    assert endpoint.authorization(renew=True) == "Bearer new"


@pytest.mark.parametrize("token", ["se\ncret", "se\u2026cret", "se\x7fcret"])
def test_a_token_that_cannot_be_sent_is_not_told_of(token: str, tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config")
    document = json.loads(path.read_text()) | {"users": [{"name": "u", "user": {"token": token}}]}
    path.write_text(json.dumps(document))
    with pytest.raises(Unauthorized, match="characters") as caught:
        ours.load(path).authorization()
    assert "cret" not in repr(caught.value)
    path.write_text(path.read_text().replace(json.dumps(token), '"secret\\n"'))
    assert ours.load(path).authorization() == "Bearer secret", "as files of editors end"


def test_the_namespace_is_that_of_the_context(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config")
    assert ours.default_namespace(path) == "first"
    assert ours.default_namespace(path, "two") == "default"
    path.write_text(path.read_text().replace('"current-context": "one"', '"current-context": "gone"'))
    assert ours.default_namespace(path, "one") == "first", "the context that is named counts"
    assert ours.default_namespace(path) == "default"


@pytest.mark.parametrize("first", ["one", "", None])
def test_of_several_files_the_first_that_names_a_context_has_it(
    first: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As kubectl has it: `kubectl egpu stop-admitting` shall not reach another cluster than `kubectl get`."""
    paths = [kubeconfig(tmp_path / name) for name in ("a", "b")]
    documents = [json.loads(path.read_text()) for path in paths]
    documents[0]["current-context"], documents[1]["current-context"] = first, "two"
    for path, document in zip(paths, documents, strict=True):
        path.write_text(json.dumps(document))
    monkeypatch.setenv("KUBECONFIG", ":".join(map(str, paths)))
    meant = ("http://127.0.0.1:1", "first") if first else ("http://127.0.0.1:2", "default")
    assert (ours.load().base_url, ours.default_namespace()) == meant
    assert ours.load(context="two").base_url == "http://127.0.0.1:2"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("false", "'false' has given no"),
        ("no-such-program", "'no-such-program' has given no"),
        ("true", "no cred"),
    ],
)
def test_a_plugin_that_gives_no_credentials_makes_nobody_of_us(
    command: str, words: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As where a login is over: "you may not" of ``system:anonymous`` sent people to their administrator."""
    path = kubeconfig(tmp_path / "config")
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": command, "interactiveMode": "Never"}
    document = json.loads(path.read_text()) | {"users": [{"name": "u", "user": {"exec": plugin}}]}
    path.write_text(json.dumps(document))
    with pytest.raises(ConfigError, match=words):
        ours.load(path)
    assert caplog.records, "and why"


def test_a_plugin_is_asked_once_however_soon_its_credentials_are_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five minutes are what Keycloak gives, and a login may open a browser."""
    path, asked = kubeconfig(tmp_path / "config"), tmp_path / "asked"
    until = f"{datetime.now(UTC) + timedelta(minutes=4):%Y-%m-%dT%H:%M:%SZ}"
    version = "client.authentication.k8s.io/v1"
    status = {"token": "t", "expirationTimestamp": until}
    given = json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status})
    plugin = {"apiVersion": version, "command": "sh", "args": ["-c", f"echo >>{asked}; echo '{given}'"]}
    document = json.loads(path.read_text()) | {"users": [{"name": "u", "user": {"exec": plugin}}]}
    path.write_text(json.dumps(document))
    endpoint = ours.load(path)
    assert endpoint.authorization() == "Bearer t"
    assert asked.read_text() == "\n"
    monkeypatch.setattr(ours, "_TOKEN_CHECK_S", -1.0)
    assert endpoint.authorization() == "Bearer t"
    assert asked.read_text() == "\n\n", "later it is, since they may be over"


def test_a_provider_of_before_makes_nobody_of_us(tmp_path: Path) -> None:
    """kubectl has given up all of them but OIDC."""
    path = kubeconfig(tmp_path / "config")
    user = {"auth-provider": {"name": "azure", "config": {"tenant-id": "x"}}}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"users": [{"name": "u", "user": user}]}))
    with pytest.raises(ConfigError, match="'azure' has given no credentials"):
        ours.load(path)


def test_a_plugin_that_gives_some_is_who_we_are(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config")
    given = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "t"},
    }
    plugin = {"apiVersion": given["apiVersion"], "command": "echo", "args": [json.dumps(given)]}
    document = json.loads(path.read_text()) | {"users": [{"name": "u", "user": {"exec": plugin}}]}
    path.write_text(json.dumps(document))
    assert ours.load(path).authorization() == "Bearer t"


@pytest.mark.parametrize("insecure", [True, False])
def test_who_skips_verification_is_not_told_so_at_each_request(insecure: bool, tmp_path: Path) -> None:
    """`kubectl egpu suspend` told it twice a second, and little else was to be seen."""
    path = kubeconfig(tmp_path / "config")
    document = json.loads(path.read_text())
    document["clusters"][0]["cluster"] = {
        "server": "https://127.0.0.1:1",
        "insecure-skip-tls-verify": insecure,
    }
    path.write_text(json.dumps(document))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", InsecureRequestWarning)  # as urllib3 has it
        ours.load(path).pool_manager(pool_size=1, block=True)
        warnings.warn("unverified", InsecureRequestWarning, stacklevel=1)
    assert bool(told) is not insecure
