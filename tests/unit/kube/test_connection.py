"""Requests and their errors: what is sent, what an answer becomes, what is never repeated."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from unit.kube.tiny_api import TinyApi, status
from vc_egpu.kube import ApiConnection, ConfigError, connection
from vc_egpu.kube.resources import CONFIG_MAPS, NODES, PODS, QUEUES, Resource
from vc_egpu.kube.wire import config
from vc_egpu.kube.wire.errors import (
    AlreadyExists,
    BudgetExhausted,
    Conflict,
    Forbidden,
    Gone,
    ImpossibleName,
    Invalid,
    KubeError,
    LeaseLost,
    NotFound,
    Refused,
    RequestTimeout,
    Stale,
    Temporary,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    error_of,
)

CLUSTER_ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role", namespaced=False)


@pytest.mark.parametrize(
    ("code", "reason", "expected", "root"),
    [
        (400, "BadRequest", Invalid, Refused),
        (401, "Unauthorized", Unauthorized, Refused),
        (403, "Forbidden", Forbidden, Refused),
        (404, "NotFound", NotFound, Stale),
        (409, "Conflict", Conflict, Stale),
        (409, "AlreadyExists", AlreadyExists, Stale),
        (410, "Expired", Gone, Stale),
        (422, "Invalid", Invalid, Refused),
        (418, "Teapot", Refused, Refused),
        (429, "TooManyRequests", TooManyRequests, Temporary),
        (500, "InternalError", Unavailable, Temporary),
        (503, "ServiceUnavailable", Unavailable, Temporary),
        (504, "Timeout", RequestTimeout, Temporary),
    ],
)
def test_status_becomes_type(
    code: int, reason: str, expected: type[KubeError], root: type[KubeError]
) -> None:
    error = error_of(code, status(code, reason, "because"), context="GET /x")
    assert type(error) is expected
    assert isinstance(error, root)
    assert error.status == code
    assert "because" in str(error) and "GET /x" in str(error)


def test_an_answer_without_a_body_still_says_something() -> None:
    assert "502" in str(error_of(502, None))


def test_a_budget_is_told_from_an_overload() -> None:
    body = status(429, "TooManyRequests", causes=[{"reason": "DisruptionBudget"}])
    assert type(error_of(429, body)) is BudgetExhausted


@pytest.mark.parametrize(
    ("resource", "namespace", "name", "sub", "expected"),
    [
        (PODS, "team", "p", None, "/api/v1/namespaces/team/pods/p"),
        (PODS, None, None, None, "/api/v1/pods"),
        (PODS, "team", "p", "eviction", "/api/v1/namespaces/team/pods/p/eviction"),
        (NODES, None, "n", "status", "/api/v1/nodes/n/status"),
        (QUEUES, None, "q", None, "/apis/scheduling.volcano.sh/v1beta1/queues/q"),
        (PODS, "a b", "x?y#z", None, "/api/v1/namespaces/a%20b/pods/x%3Fy%23z"),
        (CLUSTER_ROLES, None, "system:node", None, "/apis/rbac.authorization.k8s.io/v1/roles/system:node"),
    ],
)
def test_paths(
    resource: Resource, namespace: str | None, name: str | None, sub: str | None, expected: str
) -> None:
    assert resource.path(namespace, name, sub) == expected


def test_paths_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="namespace is needed"):
        PODS.path(None, "p")
    with pytest.raises(ValueError, match="have no namespace"):
        NODES.path("team")
    with pytest.raises(ValueError, match="name is empty"):
        PODS.path("team", "")


@pytest.mark.parametrize("name", ["", ".", "..", "../../x", "a/b", "a%2Fb"])
def test_a_name_that_would_address_something_else_is_in_no_path(name: str) -> None:
    for namespace, own, sub in ((name, "p", None), ("team", name, None), ("team", "p", name or "/")):
        with pytest.raises(ValueError, match=r"the (name|namespace|subresource) |a namespace is needed"):
            PODS.path(namespace, own, sub)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a%2Fb"])
def test_such_a_name_is_not_sent(api: ApiConnection, server: TinyApi, name: str) -> None:
    """It may come out of an object that a tenant wrote: for who asks, there is no such object."""
    named = {"metadata": {"name": name, "namespace": "n"}}
    for call in (
        lambda: api.get(PODS, name, "n"),
        lambda: api.list(PODS, name),
        lambda: api.create(PODS, {}, "n", subresource=(name, "eviction")),
        lambda: api.update(PODS, named),
        lambda: api.patch(PODS, name, {}, "n"),
        lambda: api.patch(PODS, "p", {}, "n", subresource=name or "/"),
        lambda: api.delete(PODS, name, "n"),
        lambda: api.delete_collection(PODS, name),
        lambda: api.evict(name, "n"),
        lambda: api.pod_log(name, "n"),
    ):
        with pytest.raises(ImpossibleName):
            call()
        with pytest.raises(ValueError, match=r"the (name|namespace|subresource) "):
            call()
    assert server.requests == []


def _config_map(name: str = "a", **data: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "n"},
        "data": data,
    }


def test_create_read_change_delete(api: ApiConnection) -> None:
    made = api.create(CONFIG_MAPS, _config_map(a="1"))
    with pytest.raises(AlreadyExists):
        api.create(CONFIG_MAPS, _config_map())
    read = api.get(CONFIG_MAPS, "a", "n")
    assert read == made
    api.update(CONFIG_MAPS, {**read, "data": {"a": "2"}})
    with pytest.raises(Conflict):
        api.update(CONFIG_MAPS, {**read, "data": {"a": "3"}})
    with pytest.raises(Conflict):
        api.delete(CONFIG_MAPS, "a", "n", uid="another")
    api.delete(CONFIG_MAPS, "a", "n", uid=read["metadata"]["uid"])
    with pytest.raises(NotFound):
        api.get(CONFIG_MAPS, "a", "n")


def test_what_is_sent(api: ApiConnection, server: TinyApi) -> None:
    server.put("/api/v1/namespaces/n/pods/p", {"metadata": {"name": "p"}})
    api.patch(PODS, "p", {"x": 1}, "n", kind="apply", field_manager="me", force=True)
    method, path, _ = server.requests[-1]
    assert (method, path) == ("PATCH", "/api/v1/namespaces/n/pods/p?fieldManager=me&force=true")
    server.script.append((201, {"kind": "Status"}, {}))
    api.evict("p", "n", uid="u", dry_run=True)
    method, path, body = server.requests[-1]
    assert (method, path) == ("POST", "/api/v1/namespaces/n/pods/p/eviction")
    assert body["deleteOptions"]["preconditions"] == {"uid": "u"}
    assert body["deleteOptions"]["dryRun"] == ["All"]


def test_an_eviction_that_failed_with_the_status_of_a_success_is_refused(
    api: ApiConnection, server: TinyApi
) -> None:
    """So the API server answers where two PodDisruptionBudgets guard a pod, to a dry try as well."""
    text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    failed = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": text, "code": 500}
    server.script.append((201, failed, {}))
    with pytest.raises(Refused, match="more than one PodDisruptionBudget"):
        api.evict("p", "n", uid="u", dry_run=True)
    server.script.append((201, {"kind": "Status", "status": "Success", "code": 201}, {}))
    api.evict("p", "n", uid="u", dry_run=True)


def test_apply_needs_a_manager(api: ApiConnection) -> None:
    with pytest.raises(ValueError, match="field_manager"):
        api.patch(PODS, "p", {}, "n", kind="apply")


def test_lists_are_read_page_by_page(api: ApiConnection, server: TinyApi) -> None:
    page = {"metadata": {"resourceVersion": "7", "continue": "more"}, "items": [{"metadata": {"name": "a"}}]}
    last = {"metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "b"}}]}
    server.script += [(200, page, {}), (200, last, {})]
    found = api.list(PODS, "n", label_selector="a=b", page_size=1)
    assert ([item["metadata"]["name"] for item in found.items], found.resource_version) == (["a", "b"], "7")
    assert "continue=more" in server.requests[-1][1] and "labelSelector=a%3Db" in server.requests[-1][1]


def test_a_page_of_large_objects_is_asked_for_in_smaller_ones(
    api: ApiConnection, server: TinyApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five hundred pods of a megabyte are five gigabytes in memory: nobody could lead where they are."""
    monkeypatch.setattr(connection, "MOST_PAGE_BYTES", 100_000)
    large = {"metadata": {"name": "large"}, "spec": "x" * 60_000}
    more = {"resourceVersion": "7", "continue": "more"}
    pages: list[tuple[dict[str, Any], int]] = [
        (more, 2), (more, 1), ({**more, "continue": "most"}, 2), ({**more, "continue": "most"}, 1),
        ({"resourceVersion": "7"}, 0),
    ]  # fmt: skip
    server.script += [
        (200, {"metadata": metadata, "items": [large] * count}, {}) for metadata, count in pages
    ]
    found = api.list(PODS, "n", page_size=16)
    assert (len(found.items), found.resource_version) == (2, "7")
    asked = [parse_qs(urlsplit(path).query) for _, path, *_ in server.requests[-5:]]
    assert [query["limit"] for query in asked] == [["16"], ["2"], ["4"], ["1"], ["2"]]
    assert [query.get("continue") for query in asked] == [None, None, ["more"], ["more"], ["most"]]


def test_a_list_from_memory_that_is_too_large_is_read_page_by_page(
    api: ApiConnection, server: TinyApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MOST_PAGE_BYTES", 100_000)
    large = {"metadata": {"name": "large"}, "spec": "x" * 60_000}
    for count in (2, 1):
        server.script.append((200, {"metadata": {"resourceVersion": "7"}, "items": [large] * count}, {}))
    assert len(api.list(PODS, "n", not_older_than="5").items) == 1
    asked = [parse_qs(urlsplit(path).query) for _, path, *_ in server.requests[-2:]]
    assert ["resourceVersionMatch" in query for query in asked] == [True, False]
    assert ["limit" in query for query in asked] == [False, True]


def test_a_list_whose_pages_were_compacted_away_is_begun_anew_and_at_last_read_in_one(
    api: ApiConnection, server: TinyApi
) -> None:
    page = {"metadata": {"resourceVersion": "7", "continue": "more"}, "items": [{"metadata": {"name": "a"}}]}
    whole = {"metadata": {"resourceVersion": "9"}, "items": [{"metadata": {"name": "a"}}]}
    gone: tuple[int, dict[str, Any], dict[str, str]] = (410, status(410, "Expired"), {})
    server.script += [(200, page, {}), gone, (200, page, {}), gone, (200, whole, {})]
    found = api.list(PODS, "n", page_size=1)
    assert ([item["metadata"]["name"] for item in found.items], found.resource_version) == (["a"], "9")
    asked = [(("limit" in path), ("continue" in path)) for _, path, *_ in server.requests[-5:]]
    assert asked == [(True, False), (True, True), (True, False), (True, True), (False, False)]


def test_of_each_object_of_a_list_only_what_is_wanted_is_kept(api: ApiConnection, server: TinyApi) -> None:
    for name, more in (("a", "more"), ("b", "")):
        items = [{"metadata": {"name": name}, "spec": "large"}]
        page = {"metadata": {"resourceVersion": "7", "continue": more}, "items": items}
        server.script.append((200, page, {}))
    found = api.list(PODS, "n", page_size=1, transform=lambda document: {"metadata": document["metadata"]})
    assert found.items == [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}]


def test_retry_after_is_passed_on(api: ApiConnection, server: TinyApi) -> None:
    server.script.append((429, status(429, "TooManyRequests"), {"Retry-After": "7"}))
    with pytest.raises(TooManyRequests) as caught:
        api.get(PODS, "p", "n")
    assert caught.value.retry_after_s == 7


@pytest.fixture
def patient(server: TinyApi, tmp_path: Path) -> Iterator[ApiConnection]:
    connection = ApiConnection.connect(server.kubeconfig(tmp_path), patience_s=20.0)
    yield connection
    connection.close()


def _busy(code: int, after_s: str, **details: Any) -> tuple[int, dict[str, Any], dict[str, str]]:
    return code, status(code, "Busy", **details), {"Retry-After": after_s}


def test_who_is_patient_comes_back_when_the_server_says(patient: ApiConnection, server: TinyApi) -> None:
    """As kubectl does, ten times: a busy server is no reason to give up."""
    server.put("/api/v1/namespaces/n/configmaps/a", _config_map())
    server.script += [_busy(429, "0"), _busy(503, "0"), _busy(429, "1")]
    assert patient.get(CONFIG_MAPS, "a", "n")["data"] == {}
    server.script += [_busy(429, "0")]
    patient.delete(CONFIG_MAPS, "a", "n")
    assert [method for method, *_ in server.requests] == ["GET"] * 4 + ["DELETE"] * 2


@pytest.mark.parametrize(
    "answer",
    [
        _busy(503, "0"),
        _busy(429, "30"),
        _busy(429, ""),
        _busy(429, "0", causes=[{"reason": "DisruptionBudget"}]),
    ],
    ids=["perhaps it was done", "too late", "nobody knows when", "a budget"],
)
def test_a_write_is_sent_again_only_if_it_was_not_done_and_may_be_soon(
    patient: ApiConnection, server: TinyApi, answer: tuple[int, dict[str, Any], dict[str, str]]
) -> None:
    server.script.append(answer)
    with pytest.raises(Temporary):
        patient.delete(CONFIG_MAPS, "a", "n")
    assert len(server.requests) == 1


def test_no_answer_in_time(api: ApiConnection, server: TinyApi) -> None:
    server.answers.clear()
    with pytest.raises(RequestTimeout, match=r"within 1\.0 s"):
        api.get(PODS, "p", "n", timeout_s=1.0)


def test_nobody_there(tmp_path: Path) -> None:
    dead = TinyApi()
    dead.url = "http://127.0.0.1:9"
    with pytest.raises(Unavailable, match="was not reached"):
        ApiConnection.connect(dead.kubeconfig(tmp_path)).get(PODS, "p", "n")


def test_a_refused_token_is_read_anew_once(api: ApiConnection, server: TinyApi) -> None:
    server.script += [(401, status(401, "Unauthorized"), {})] * 2
    with pytest.raises(Unauthorized):
        api.get(PODS, "p", "n")
    assert len(server.requests) == 2


def test_a_failed_write_is_not_repeated(api: ApiConnection, server: TinyApi) -> None:
    server.script.append((500, status(500, "InternalError"), {}))
    with pytest.raises(Unavailable):
        api.create(CONFIG_MAPS, _config_map())
    assert len(server.requests) == 1


class _Fence:
    def __init__(self, remaining_s: float) -> None:
        self.value_s = remaining_s

    def remaining_s(self) -> float:
        return self.value_s


def test_a_fence_holds_writes_back_and_lets_reads_pass(api: ApiConnection, server: TinyApi) -> None:
    fence = _Fence(0.0)
    fenced = api.fenced(fence)
    server.put("/api/v1/namespaces/n/configmaps/a", _config_map())
    fenced.get(CONFIG_MAPS, "a", "n")
    before = len(server.requests)
    with pytest.raises(LeaseLost):
        fenced.delete(CONFIG_MAPS, "a", "n")
    assert len(server.requests) == before, "it was not even sent"
    fence.value_s = 10.0
    fenced.delete(CONFIG_MAPS, "a", "n")


def test_a_fenced_write_ends_before_the_lease_does(api: ApiConnection, server: TinyApi) -> None:
    server.answers.clear()
    with pytest.raises(RequestTimeout, match=r"within 1\.0 s"):
        api.fenced(_Fence(1.0)).create(CONFIG_MAPS, _config_map())
    assert "timeout=" in server.requests[-1][1], "the server gives up as well"


def test_no_secret_in_errors(api: ApiConnection, server: TinyApi) -> None:
    server.script += [(401, status(401, "Unauthorized"), {})] * 2
    with pytest.raises(Unauthorized) as caught:
        api.get(PODS, "p", "n")
    assert "secret-token" not in str(caught.value)


def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        ApiConnection.connect(tmp_path / "nowhere")


def test_the_file_that_the_variable_names_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match=r"\$KUBECONFIG \(.*/nowhere\)"):
        ApiConnection.connect()


@pytest.mark.parametrize("wish", [{"as": "alice"}, {"as-groups": ["team"]}])
def test_nobody_acts_with_rights_of_his_own_who_wished_for_others(
    tmp_path: Path, wish: dict[str, Any]
) -> None:
    document = {
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [
            {"name": "as-alice", "user": {"token": "t", **wish}},
            {"name": "me", "user": {"token": "t"}},
        ],
        "contexts": [
            {"name": "wished", "context": {"cluster": "c", "user": "as-alice"}},
            {"name": "own", "context": {"cluster": "c", "user": "me"}},
        ],
        "current-context": "wished",
    }
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **document}))
    with pytest.raises(ConfigError, match=r"user 'as-alice' .* \(as"):
        ApiConnection.connect(path)
    ApiConnection.connect(path, "own").close()


def test_a_token_file_is_read_again(tmp_path: Path) -> None:
    """Such tokens live for an hour. A process outlives them."""
    document = {
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "me", "user": {"tokenFile": "secrets/token"}}],
        "contexts": [{"name": "own", "context": {"cluster": "c", "user": "me"}}],
        "current-context": "own",
    }
    path, token = tmp_path / "kubeconfig", tmp_path / "secrets" / "token"
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **document}))
    token.parent.mkdir()
    token.write_text("first\n")
    endpoint = config.load(path)
    assert endpoint.authorization() == "Bearer first"
    token.write_text("second")
    assert endpoint.authorization(renew=True) == "Bearer second"
    token.unlink()
    assert endpoint.authorization(renew=True) == "Bearer second", "while it is being replaced"


@pytest.mark.parametrize("text", ["[]", "- a", "{", "clusters: 7", "current-context: [x"])
def test_a_file_that_is_no_kubeconfig_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "odd"
    file.write_text(text)
    with pytest.raises(ConfigError, match="odd"):
        ApiConnection.connect(file)


def test_an_answer_that_is_no_json(api: ApiConnection, server: TinyApi) -> None:
    server.script.append((200, [], {}))  # type: ignore[arg-type]  # that is the point
    with pytest.raises(Unavailable, match="no JSON object"):
        api.get(PODS, "p", "n")
