"""``kubectl egpu ui``: one user with the rights of the kubeconfig; others of the machine see nothing."""

import json
from pathlib import Path
from typing import Any

import pytest
from unit.page.cluster_api import ClusterApi
from unit.page.conftest import Until
from unit.page.serving import Client, Site, local_site, signed_in
from vc_egpu.page.serving import guard


def cards(state: Any) -> dict[tuple[str, int], Any]:
    return {(name, card[0]): card for name, _, rows in state["nodes"] for card in rows}


def is_read(client: Client) -> bool:
    """All kinds that the user may see have been read and told."""
    state = client.json("/api/state")
    kinds = state["health"]["kinds"]
    return len(kinds) == 5 and all(one["synced"] for one in kinds.values()) and "waiting" in state["lists"]


def test_without_the_link_there_is_no_answer(site: Site) -> None:
    stranger = Client(site.url)
    for path in (
        "/api/state",
        "/api/stream",
        "/api/card?node=n1&index=0",
        "/api/job?namespace=ml&name=train",
    ):
        assert stranger.get(path).status == 401
    assert stranger.get("/?token=wrong").status == 403
    stranger.cookie = f"egpu-ui-{site.url.rpartition(':')[2]}=guessed"
    assert stranger.get("/api/state").status == 401


def test_the_cookie_is_for_this_page_alone(site: Site) -> None:
    answer = Client(site.url).get(site.link.removeprefix(site.url))
    assert answer.headers["Location"] == "/"
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert site.door is not None
    assert site.door.secret not in cookie


@pytest.mark.parametrize("path", ["/", "/static/js/app.js", "/api/state", "/nowhere", "/static/../main.py"])
def test_every_answer_has_the_headers(client: Client, path: str) -> None:
    answer = client.get(path)
    for name, value in guard.HEADERS.items():
        assert answer.headers[name] == value


@pytest.mark.parametrize("path", ["/static/../main.py", "/static/%2e%2e/main.py", "/static//etc/passwd"])
def test_no_other_file_is_served(client: Client, path: str) -> None:
    assert client.get(path).status == 404


def test_another_host_name_or_origin_is_refused(client: Client) -> None:
    assert client.get("/api/state", Host="evil.example").status == 403
    assert client.get("/api/state", Origin="http://evil.example").status == 403


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "POST"])
def test_nothing_can_be_changed(client: Client, method: str, api: ClusterApi) -> None:
    for path in ("/api/state", "/api/card", "/api/job"):
        answer = client.pool.request(
            method, client.url + path, headers={"Cookie": client.cookie, "Origin": client.url}, body=b"{}"
        )
        assert answer.status == 405
    asked = {method for method, path, _, _ in api.requests if "selfsubjectreviews" not in path}
    assert asked <= {"GET"}


def test_the_operator_sees_all(client: Client, until: Until) -> None:
    until(lambda: is_read(client))
    state = client.json("/api/state")
    assert cards(state)["n1", 0] == [0, "h20", 98304, 49152, 0, 25, 25, "ok", 2, 0, False]
    assert cards(state)["n2", 0][7] == "ill: XID 79"
    assert [row["name"] for row in state["lists"]["queues"]] == ["research", "serving"]
    (waits,) = state["lists"]["waiting"]["rows"]
    assert (waits["gang"], waits["reason"]) == ("ml/big", "WaitingForQuota")
    (decided,) = state["lists"]["decisions"]
    assert (decided["reason"], decided["message"]) == ("Preempted", "it made room for web/chat")
    card = client.json("/api/card?node=n1&index=0")
    assert card["uuid"] == "GPU-1"
    assert [(one["namespace"], one["pod"], one["class"]) for one in card["sharers"]] == [
        ("ml", "train-0", "low"),
        ("web", "chat-0", "high"),
    ]


def test_a_tenant_sees_others_as_a_number(api: ClusterApi, tmp_path: Path, until: Until) -> None:
    with local_site(api, tmp_path, token="tenant-token") as site:
        client = signed_in(site)
        until(lambda: is_read(client))
        state = client.get("/api/state")
        card = client.json("/api/card?node=n1&index=0")
        assert cards(json.loads(state.data))["n1", 0][8:] == [1, 1, True]
        assert [one["pod"] for one in card["sharers"]] == ["train-0"]
        for answer in (state, client.get("/api/find?text=chat"), client.get("/api/card?node=n1&index=0")):
            assert b"chat-0" not in answer.data
        assert client.get("/api/job?namespace=web&name=chat").status == 403
        scope = json.loads(state.data)["scope"]
        assert scope["places"]["pods"] == ["ml"]
        assert scope["places"]["nodes"] == [None]


def test_a_user_without_rights_is_told_so(api: ClusterApi, tmp_path: Path, until: Until) -> None:
    with local_site(api, tmp_path, token="nobody-token") as site:
        client = signed_in(site)
        until(lambda: client.json("/api/state")["scope"] is not None)
        state = client.json("/api/state")
        assert state["nodes"] == []
        assert set(map(tuple, state["scope"]["places"].values())) == {()}


def test_all_requests_carry_the_users_own_token(api: ClusterApi, tmp_path: Path, until: Until) -> None:
    with local_site(api, tmp_path, token="tenant-token") as site:
        client = signed_in(site)
        until(lambda: is_read(client))
        client.get("/api/job?namespace=ml&name=train")
    assert {token for _, _, token, _ in api.requests} == {"tenant-token"}


def test_nodes_are_read_first_and_pods_as_metadata(api: ClusterApi, client: Client, until: Until) -> None:
    until(lambda: is_read(client))
    lists = [(path, accept) for _, path, _, accept in api.requests if "limit=500" in path]
    assert "/nodes" in lists[0][0]
    ((path, accept),) = [(path, accept) for path, accept in lists if "/pods" in path]
    assert "as=PartialObjectMetadataList" in accept
    assert "labelSelector=egpu.volcano.sh%2Fmanaged%3Dtrue" in path

    def watches() -> list[str]:
        return [accept for _, path, _, accept in api.requests if "/pods" in path and "watch=true" in path]

    until(lambda: bool(watches()))
    assert "as=PartialObjectMetadata;" in watches()[0]


def test_two_tabs_have_one_watch_of_each_kind(api: ClusterApi, client: Client, until: Until) -> None:
    with client.stream() as one, client.stream() as other:
        assert next(one)[0] == next(other)[0] == "hello"
        until(lambda: is_read(client))
        kinds = [kind for kind, _ in api.watched()]
        assert sorted(kinds) == ["events", "nodes", "podgroups", "pods", "queues"]


def test_a_job_is_what_why_says(client: Client) -> None:
    (story,) = client.json("/api/job?namespace=ml&name=big")
    assert story["reason"] == "WaitingForQuota"
    assert story["message"] == "asks for 4; queue research uses 3 of 4"
    missing = client.get("/api/job?namespace=ml&name=bog")
    assert missing.status == 404
    assert "did you mean big" in json.loads(missing.data)["error"]


@pytest.mark.parametrize(
    "path",
    [
        "/api/card?node=n1&index=-1",
        "/api/card?node=n1&index=99999",
        "/api/card?node=n1",
        "/api/job?namespace=..&name=train",
        "/api/job?namespace=ml&name=a%2Fb",
        f"/api/find?text={'x' * 5000}",
        "/api/history?of=card",
    ],
)
def test_bad_questions_are_refused(client: Client, path: str) -> None:
    assert client.get(path).status in {400, 404, 414}


def test_a_flood_of_requests_is_slowed(client: Client) -> None:
    statuses = [client.get("/api/find?text=x").status for _ in range(150)]
    assert 429 in statuses
    assert statuses[0] == 200
