"""``vc-egpu ui``: several users, each with their own token; the page itself has no rights."""

import json
from pathlib import Path

import pytest
from unit.page.cluster_api import ClusterApi
from unit.page.conftest import Until
from unit.page.serving import Client, Site, shared_site
from unit.page.test_local import is_read
from vc_egpu.kube.server import Answer, GetServer, Request
from vc_egpu.page.settings import settings_of


def sign_in(site: Site, token: str, namespaces: str = "ml") -> Client:
    client = Client(site.url)
    answer = client.post("/api/sign-in", {"token": token, "namespaces": namespaces})
    assert answer.status == 200, answer.data
    return client


def test_each_sees_what_the_own_token_may(api: ClusterApi, until: Until) -> None:
    with shared_site(api) as site:
        operator, tenant = sign_in(site, "operator-token"), sign_in(site, "tenant-token")
        until(lambda: is_read(operator) and is_read(tenant))
        assert operator.json("/api/session")["user"] == "operator"
        assert tenant.json("/api/session")["user"] == "ann"
        assert b"chat-0" in operator.get("/api/card?node=n1&index=0").data
        assert b"chat-0" not in tenant.get("/api/card?node=n1&index=0").data
    assert {token for _, _, token, _ in api.requests} == {"operator-token", "tenant-token"}
    assert all("Impersonate" not in path for _, path, _, _ in api.requests)


VIEW = {
    "revision": 1,
    "everything": False,
    "namespaces": ["ml"],
    "nodes": [
        {
            "name": "n1",
            "cards": [
                {
                    "index": 0,
                    "model": "h20",
                    "memoryMiB": 98304,
                    "takesShares": True,
                    "heldByOthers": {"pods": 1, "memoryMiB": 24576, "coresHighPercent": 25},
                }
            ],
        }
    ],
    "queues": [],
    "waiting": [],
    "waitingOfOthers": 0,
    "isCutShort": False,
}


def test_a_tenant_sees_what_others_hold_without_a_name(api: ClusterApi, until: Until) -> None:
    asked: list[Request] = []
    said = [Answer(200, json.dumps(VIEW).encode(), "application/json")]

    def view(request: Request) -> Answer:
        asked.append(request)
        return said[0]

    leader = GetServer(("127.0.0.1", 0), view).start()
    try:
        with shared_site(api, "--leader", f"http://127.0.0.1:{leader.port}") as site:
            tenant = sign_in(site, "tenant-token")

            def first() -> list[object]:
                nodes = {name: cards for name, _, cards in tenant.json("/api/state")["nodes"]}
                return list(nodes["n1"][0]) if "n1" in nodes else []

            until(lambda: is_read(tenant) and first()[10:] == [False])
            assert (first()[3], first()[5], first()[9]) == (49152, 25, 1)
            assert b"chat-0" not in tenant.get("/api/state").data
            operator = sign_in(site, "operator-token")
            until(lambda: is_read(operator))
    finally:
        leader.stop()
    assert {(one.authorization, one.query) for one in asked} == {("Bearer tenant-token", "namespaces=ml")}


@pytest.mark.parametrize(
    "answer",
    [
        Answer(429, b"too many views"),
        Answer(200, b"{}"),
        Answer(200, json.dumps({**VIEW, "namespaces": []}).encode()),
        Answer(200, json.dumps({**VIEW, "everything": True}).encode()),
    ],
)
def test_without_a_view_of_these_rights_it_says_at_least(
    api: ClusterApi, until: Until, answer: Answer
) -> None:
    asked: list[Request] = []

    def view(request: Request) -> Answer:
        asked.append(request)
        return answer

    leader = GetServer(("127.0.0.1", 0), view).start()
    try:
        with shared_site(api, "--leader", f"http://127.0.0.1:{leader.port}") as site:
            tenant = sign_in(site, "tenant-token")
            until(lambda: is_read(tenant) and bool(asked))
            (card, _) = next(cards for name, _, cards in tenant.json("/api/state")["nodes"] if name == "n1")
            assert (card[3], card[9], card[10]) == (24576, 1, True)
    finally:
        leader.stop()


def test_a_wrong_token_opens_nothing(api: ClusterApi) -> None:
    with shared_site(api) as site:
        client = Client(site.url)
        answer = client.post("/api/sign-in", {"token": "stolen"})
        assert answer.status == 401
        assert "Set-Cookie" not in answer.headers
        assert client.get("/api/state").status == 401
        assert b"stolen" not in answer.data


@pytest.mark.parametrize(
    "body", [{}, [], {"token": ""}, {"token": "a\nb"}, {"token": "x" * 40_000}, {"token": "ü"}]
)
def test_what_is_no_token_is_not_sent_on(api: ClusterApi, body: object) -> None:
    with shared_site(api) as site:
        assert Client(site.url).post("/api/sign-in", body).status == 400
    assert api.requests == []


def test_a_body_that_is_too_large_is_not_read(api: ClusterApi) -> None:
    with shared_site(api) as site:
        assert Client(site.url).post("/api/sign-in", {"token": "x" * 100_000}).status == 413


def test_the_cookie_holds_no_token(api: ClusterApi) -> None:
    with shared_site(api) as site:
        answer = Client(site.url).post("/api/sign-in", {"token": "operator-token"})
        cookie = answer.headers["Set-Cookie"]
        assert "operator-token" not in cookie
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie


def test_signing_out_forgets_the_token(api: ClusterApi, until: Until) -> None:
    with shared_site(api) as site:
        client = sign_in(site, "operator-token")
        until(lambda: is_read(client))
        former = client.cookie
        assert client.post("/api/sign-out", {}).status == 200
        client.cookie = former
        assert client.get("/api/state").status == 401
        assert site.visitors is not None
        assert site.visitors.count() == 0
        until(lambda: api.watched() == [])


def test_two_browsers_of_one_user_have_one_set_of_watches(api: ClusterApi, until: Until) -> None:
    with shared_site(api) as site:
        one, other = sign_in(site, "operator-token"), sign_in(site, "operator-token")
        until(lambda: is_read(one) and is_read(other))
        assert len(api.watched()) == 5
        one.post("/api/sign-out", {})
        assert other.get("/api/state").status == 200


def test_more_users_than_there_is_room_for_are_told_so(api: ClusterApi) -> None:
    with shared_site(api, "--most-users", "1") as site:
        sign_in(site, "operator-token")
        assert Client(site.url).post("/api/sign-in", {"token": "tenant-token"}).status == 503


def test_a_user_that_looks_at_nothing_makes_room(api: ClusterApi) -> None:
    with shared_site(api, "--most-users", "1", "--idle-s", "0") as site:
        sign_in(site, "operator-token")
        assert sign_in(site, "tenant-token").json("/api/session")["user"] == "ann"


def test_a_proxy_of_a_named_network_passes_the_token_on(api: ClusterApi) -> None:
    with shared_site(api, "--proxy-cidr", "127.0.0.0/8", "--proxy-cidr", "::1/128") as site:
        client = Client(site.url, headers={"Authorization": "Bearer tenant-token"})
        assert client.json("/api/session")["user"] == "ann"
        assert client.get("/api/state").status == 200
        wrong = Client(site.url, headers={"Authorization": "Bearer wrong"})
        assert wrong.get("/api/state").status == 401


def test_behind_a_proxy_a_tenant_names_the_namespaces(api: ClusterApi, until: Until) -> None:
    with shared_site(api, "--proxy-cidr", "127.0.0.0/8", "--proxy-cidr", "::1/128") as site:
        client = Client(site.url, headers={"Authorization": "Bearer tenant-token"})
        until(lambda: client.json("/api/state")["scope"] is not None)
        assert client.json("/api/state")["scope"]["places"]["pods"] == []
        assert client.post("/api/sign-in", {"token": "", "namespaces": "ml"}).status == 200
        until(lambda: client.json("/api/state")["scope"] is not None)
        assert client.json("/api/state")["scope"]["places"]["pods"] == ["ml"]
        assert client.json("/api/session")["namespaces"] == ["ml"]


def test_the_header_of_anybody_else_does_not_count(api: ClusterApi) -> None:
    with shared_site(api, "--proxy-cidr", "10.1.0.0/16") as site:
        client = Client(site.url, headers={"Authorization": "Bearer operator-token"})
        assert client.json("/api/session")["signedIn"] is False
        assert client.get("/api/state").status == 401
    assert api.requests == []


def test_sign_ins_are_slowed(api: ClusterApi) -> None:
    with shared_site(api) as site:
        statuses = {Client(site.url).post("/api/sign-in", {"token": "guess"}).status for _ in range(20)}
        assert statuses == {401, 429}


@pytest.mark.parametrize(
    "argv",
    [
        ["--public-url", "http://page.example"],
        ["--public-url", "page.example"],
        ["--proxy-cidr", "10.0.0.1/8"],
        ["--prometheus", "http://user:secret@prometheus"],
        ["--most-users", "0"],
    ],
)
def test_settings_that_are_not_safe_are_refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        settings_of(argv)
    said = capsys.readouterr().err
    assert argv[0] in said
    assert "secret" not in said


def test_over_https_the_cookie_is_for_https_alone(api: ClusterApi, tmp_path: Path) -> None:
    with shared_site(api) as site:
        plain = Client(site.url).post("/api/sign-in", {"token": "operator-token"}).headers["Set-Cookie"]
        assert "Secure" not in plain
    with shared_site(api, "--public-url", "https://page.example") as site:
        client = Client(site.url, headers={"Host": "page.example", "Origin": "https://page.example"})
        answer = client.pool.request(
            "POST",
            f"{site.url}/api/sign-in",
            headers=client.headers,
            body=json.dumps({"token": "operator-token"}),
        )
        assert answer.status == 200
        assert "Secure" in answer.headers["Set-Cookie"]
        assert answer.headers["Set-Cookie"].startswith("__Host-")
