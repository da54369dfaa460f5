"""Changes arrive as they happen; what is lost is told and comes back."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.page import synthetic
from unit.page.cluster_api import ClusterApi
from unit.page.conftest import Until
from unit.page.serving import Client, local_site, signed_in
from unit.page.test_local import is_read

Events = Iterator[tuple[str, Any]]


def change(events: Events, *keys: str) -> Any:
    """The next change that has one of these keys."""
    for kind, data in events:
        if kind == "change" and set(keys) & set(data):
            return data
    raise AssertionError("the stream ended")


def test_a_pod_that_comes_and_goes(api: ClusterApi, client: Client, until: Until) -> None:
    with client.stream() as events:
        until(lambda: is_read(client))
        revision = client.json("/api/state")["rev"]
        api.put("pods", synthetic.pod("new-0", ("ml", "research"), ("n1", "GPU-2"), ("h20", 1024, 10, "low")))
        told = change(events, "nodes")
        while told["rev"] <= revision:
            told = change(events, "nodes")
        ((name, _, rows),) = told["nodes"]
        assert (name, rows[1][3]) == ("n1", 1024)
        assert rows[0][3] == 49152
        api.remove("pods", "new-0", "ml")
        assert change(events, "nodes")["nodes"][0][2][1][3] == 0


def test_lists_follow(api: ClusterApi, client: Client, until: Until) -> None:
    with client.stream() as events:
        until(lambda: is_read(client))
        api.remove("podgroups", "big", "ml")
        while (told := change(events, "lists")["lists"]).get("waiting", {"count": 1})["count"]:
            continue
        assert told["waiting"] == {"count": 0, "rows": []}


def test_a_node_that_goes_is_told_by_its_name(api: ClusterApi, client: Client, until: Until) -> None:
    with client.stream() as events:
        until(lambda: is_read(client))
        api.remove("nodes", "n2")
        while ["n2"] not in change(events, "nodes")["nodes"]:
            continue
    assert [name for name, *_ in client.json("/api/state")["nodes"]] == ["n1"]


def test_revisions_only_grow(api: ClusterApi, client: Client, until: Until) -> None:
    with client.stream() as events:
        until(lambda: is_read(client))
        seen = []
        for number in range(5):
            share = ("h20", 1024 * (number + 1), 10, "low")
            api.put("pods", synthetic.pod("new-0", ("ml", "research"), ("n1", "GPU-2"), share))
            while (told := change(events, "nodes"))["nodes"][0][2][1][3] != 1024 * (number + 1):
                seen.append(told["rev"])
            seen.append(told["rev"])
        assert seen == sorted(set(seen))


def test_an_api_server_that_is_away_is_told_and_comes_back(
    api: ClusterApi, client: Client, until: Until
) -> None:
    until(lambda: is_read(client))
    with client.stream() as events:
        api.go_away()
        while not any(one["error"] for one in change(events, "health")["health"]["kinds"].values()):
            continue
        # What was seen stays in sight meanwhile.
        assert len(client.json("/api/state")["nodes"]) == 2
        api.come_back()
        while any(one["error"] for one in change(events, "health")["health"]["kinds"].values()):
            continue
        api.put("pods", synthetic.pod("new-0", ("ml", "research"), ("n1", "GPU-2"), ("h20", 1024, 10, "low")))
        while change(events, "nodes")["nodes"][0][2][1][3] != 1024:
            continue


def test_an_api_server_that_is_away_from_the_start(api: ClusterApi, tmp_path: Path, until: Until) -> None:
    with local_site(api, tmp_path) as site:
        client = signed_in(site)
        api.go_away()
        until(lambda: client.json("/api/state")["health"]["error"] != "")
        api.come_back()
        until(lambda: is_read(client))


def test_rights_that_are_taken_away_take_the_rows_away(api: ClusterApi, client: Client, until: Until) -> None:
    until(lambda: is_read(client))
    with client.stream() as events:
        assert next(events)[0] == "hello"
        api.accounts["operator-token"].namespaces = {"ml"}
        api.end_watches()
        while (event := next(events))[0] != "ended":
            continue
        assert event[1] == {"why": "rights"}
    until(lambda: is_read(client))
    state = client.json("/api/state")
    assert state["scope"]["places"]["pods"] == ["ml"]
    assert next(card for name, _, rows in state["nodes"] if name == "n1" for card in rows)[8:] == [1, 1, True]


def test_a_token_that_ends_ends_the_page(api: ClusterApi, client: Client, until: Until) -> None:
    until(lambda: is_read(client))
    with client.stream() as events:
        assert next(events)[0] == "hello"
        api.accounts.clear()
        api.end_watches()
        while (event := next(events))[0] != "ended":
            continue
    assert event[1] == {"why": "signed-out"}


@pytest.mark.parametrize("kind", ["queues", "podgroups"])
def test_a_cluster_without_our_kinds_shows_its_cards(
    api: ClusterApi, client: Client, until: Until, kind: str
) -> None:
    api.absent.add(kind)
    until(lambda: bool(client.json("/api/state")["nodes"]))
    until(lambda: client.json("/api/state")["scope"]["absent"] != [])
