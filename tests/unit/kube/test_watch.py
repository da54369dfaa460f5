"""A live copy stays true whatever the server and the network do."""

import math
import threading
import time
from collections.abc import Callable
from typing import Any, cast
from urllib.parse import parse_qs

import pytest
from unit.kube.live import PATH, Seen, Start, config_map
from unit.kube.tiny_api import TinyApi, status
from vc_egpu.kube import ApiConnection, Backoff, Change, Json, ObjectList, Reflector
from vc_egpu.kube.resources import CONFIG_MAPS
from vc_egpu.kube.wire.errors import Forbidden, KubeError, Unavailable


def test_list_then_changes(start: Start, server: TinyApi) -> None:
    server.put(f"{PATH}/a", config_map("a"))
    reflector, seen = start()
    assert seen.next() == ("ADDED", "a")
    server.put(f"{PATH}/a", config_map("a", "2"))
    assert seen.next() == ("MODIFIED", "a")
    server.put(f"{PATH}/b", config_map("b"))
    assert seen.next() == ("ADDED", "b")
    server.remove(f"{PATH}/a")
    assert seen.next() == ("DELETED", "a")
    assert [item["metadata"]["name"] for item in reflector.objects()] == ["b"]
    assert reflector.get("b", "n") is not None


def test_listed_objects_say_what_they_are(start: Start, server: TinyApi) -> None:
    server.put(f"{PATH}/a", config_map("a"))
    reflector, _ = start()
    (item,) = reflector.objects()
    assert (item["apiVersion"], item["kind"]) == ("v1", "ConfigMap")


def test_it_goes_on_where_the_watch_ended(start: Start, server: TinyApi) -> None:
    reflector, seen = start()
    server.put(f"{PATH}/a", config_map("a"))
    assert seen.next() == ("ADDED", "a")
    version = server.version
    server.end_watches()
    server.wait_for_watch()
    assert reflector.relists == 1, "no second list"
    assert f"resourceVersion={version}" in server.requests[-1][1]


def test_bookmarks_move_the_place_to_go_on_from(start: Start, server: TinyApi) -> None:
    _, seen = start()
    server.tell("BOOKMARK", {"metadata": {"resourceVersion": "777"}})
    server.put(f"{PATH}/a", config_map("a"))
    seen.next()
    server.tell("BOOKMARK", {"metadata": {"resourceVersion": "999"}})
    server.version = 999
    server.end_watches()
    server.wait_for_watch()
    assert "resourceVersion=999" in server.requests[-1][1]
    assert seen.nothing(), "a bookmark is no change"


@pytest.mark.parametrize("how", ["at the start", "in the stream"])
def test_a_gap_is_bridged_by_a_list_that_reports_what_vanished(
    start: Start, server: TinyApi, how: str
) -> None:
    for name in ("a", "b", "c", "d"):
        server.put(f"{PATH}/{name}", config_map(name))
    reflector, seen = start()
    assert [seen.next()[0] for _ in range(4)] == ["ADDED"] * 4
    # While nobody watches: a goes, b is replaced by another b, c changes, d stays, e comes.
    with server.lock:
        watches, server.watches = server.watches, []
        server.remove(f"{PATH}/a")
        server.remove(f"{PATH}/b")
        server.put(f"{PATH}/b", config_map("b"))
        server.put(f"{PATH}/c", config_map("c", "2"))
        server.put(f"{PATH}/e", config_map("e"))
        server.compacted = server.version
        server.watches = watches
    if how == "in the stream":
        server.tell("ERROR", status(410, "Expired"))
    else:
        server.end_watches()
    found = {seen.next() for _ in range(5)}
    assert found == {("DELETED", "a"), ("DELETED", "b"), ("ADDED", "b"), ("MODIFIED", "c"), ("ADDED", "e")}
    assert reflector.relists == 2
    assert sorted(item["metadata"]["name"] for item in reflector.objects()) == ["b", "c", "d", "e"]


def lists(server: TinyApi) -> list[dict[str, list[str]]]:
    """What was asked of each list so far; not of the one object that tells how far the server has come."""
    with server.lock:
        queries = [parse_qs(path.partition("?")[2]) for method, path, _ in server.requests if method == "GET"]
    return [query for query in queries if "watch" not in query and query.get("limit") != ["1"]]


def forget_versions(server: TinyApi) -> None:
    """As after a restart of the server: watches from an earlier version have to list again."""
    with server.lock:
        server.version += 1
        server.compacted = server.version
    server.end_watches()
    server.wait_for_watch()


def test_after_a_restart_of_the_server_agents_ask_for_what_it_has_in_memory(
    start: Start, server: TinyApi
) -> None:
    """Thousands do at once, and each list of its node's pods would read all pods there are."""
    start(field_selector="spec.nodeName=n1")
    reached = server.version
    forget_versions(server)
    first, second = lists(server)
    assert first["limit"]
    assert "resourceVersion" not in first
    assert second == {
        "fieldSelector": ["spec.nodeName=n1"],
        "resourceVersion": [str(reached)],
        "resourceVersionMatch": ["NotOlderThan"],
    }


def test_a_memory_that_is_behind_is_not_asked_twice(start: Start, server: TinyApi) -> None:
    start(field_selector="spec.nodeName=n1")
    server.skip, server.script = 1, [(504, status(504, "Timeout", "Too large resource version"), {})]
    forget_versions(server)
    assert ["limit" in query for query in lists(server)] == [True, False, True]


def test_whoever_reads_all_of_a_kind_reads_it_page_by_page(start: Start, server: TinyApi) -> None:
    start()
    forget_versions(server)
    assert ["limit" in query and "resourceVersion" not in query for query in lists(server)] == [True, True]


def test_what_is_doubted_is_not_listed_from_memory(start: Start, server: TinyApi) -> None:
    """That may be as far behind as the watch was."""
    reflector, seen = start(field_selector="spec.nodeName=n1")
    server.put(f"{PATH}/a", config_map("a"))
    assert seen.next() == ("ADDED", "a")
    reflector.list_again()
    server.wait_for_watch(count=2)
    assert ["limit" in query for query in lists(server)] == [True, True]


def test_watches_that_began_at_once_do_not_end_at_once(start: Start, server: TinyApi) -> None:
    for _ in range(8):
        start()
    with server.lock:
        asked = [parse_qs(path.partition("?")[2]) for _, path, _ in server.requests]
    ends = [int(query["timeoutSeconds"][0]) for query in asked if "watch" in query]
    assert len(set(ends)) > 1
    assert min(ends) >= 300


def test_garbage_in_the_stream_does_no_harm(start: Start, server: TinyApi) -> None:
    _, seen = start()
    server.tell_raw(b"{]\n")
    server.wait_for_watch()
    server.end_watches()
    server.wait_for_watch()
    server.put(f"{PATH}/a", config_map("a"))
    assert seen.next() == ("ADDED", "a")


def test_events_may_arrive_in_pieces_and_in_bunches(start: Start, server: TinyApi) -> None:
    _, seen = start()
    lines = b"".join(
        b'{"type":"ADDED","object":{"metadata":{"name":"%s","namespace":"n","uid":"u","resourceVersion":"9"}}}\n'
        % name
        for name in (b"a", b"b")
    )
    server.tell_raw(lines[:30])
    server.tell_raw(lines[30:150])
    server.tell_raw(lines[150:])
    assert [seen.next(), seen.next()] == [("ADDED", "a"), ("ADDED", "b")]


def test_a_server_that_is_away_for_a_while(start: Start, server: TinyApi) -> None:
    reflector, seen = start()
    server.put(f"{PATH}/a", config_map("a"))
    assert seen.next() == ("ADDED", "a")
    server.compacted = server.version + 10  # the next watch is refused, and so are three lists
    server.script += [(503, status(503, "ServiceUnavailable"), {})] * 3
    server.end_watches()
    server.compacted = server.version
    server.wait_for_watch()
    server.put(f"{PATH}/b", config_map("b"))
    assert seen.next() == ("ADDED", "b")
    assert reflector.synced.is_set()


def test_silence_is_asked_about(start: Start, server: TinyApi) -> None:
    reflector, seen = start(idle_timeout_s=1.0)
    server.wait_for_watch(count=2)  # the first one is taken for dead
    server.put(f"{PATH}/a", config_map("a"))
    assert seen.next() == ("ADDED", "a")
    assert reflector.relists == 1


def test_silence_again_is_not_believed(start: Start, server: TinyApi) -> None:
    """A server that was set back to an older version has nothing to say about what comes after a later."""
    server.version = 5000
    reflector, seen = start(idle_timeout_s=0.2)
    with server.lock:
        server.version = 200
        server.objects[f"{PATH}/a"] = config_map("a", uid="a", resourceVersion="201")
    assert seen.next() == ("ADDED", "a")
    assert reflector.relists > 1


class Counting(Backoff):
    """Never waits; ``failures`` counts."""

    def next_s(self) -> float:
        super().next_s()
        return 0.0


def test_lists_that_are_too_old_when_they_come_are_not_made_one_after_the_other(
    api: ApiConnection, server: TinyApi
) -> None:
    server.compacted = server.version + 1000
    counting, enough = Counting(), threading.Event()
    lists: list[int] = []

    def transform(document: Json) -> Json:
        lists.append(counting.failures)
        if len(lists) == 4:
            server.compacted = 0
            enough.set()
        return document

    server.put(f"{PATH}/a", config_map("a"))
    reflector = Reflector(api, CONFIG_MAPS, namespace="n", transform=transform, backoff=counting).start()
    assert enough.wait(30)
    server.wait_for_watch()
    assert lists == [0, 1, 2, 3], "a longer pause before each"
    reflector.stop()


@pytest.mark.parametrize(
    "text", [b"{]\n", b'{"type":"ADDED"}\n', b'{"type":"NEWS","object":{"metadata":{}}}\n']
)
def test_an_event_that_can_never_be_read_is_gone_around(start: Start, server: TinyApi, text: bytes) -> None:
    """The server tells it again to everybody who goes on from the version before it."""
    reflector, seen = start()
    with server.lock:
        server.objects[f"{PATH}/a"] = config_map("a", uid="a", resourceVersion="150")
        server.version = 150
        server.tell_raw(text)
    assert seen.next() == ("ADDED", "a")
    assert reflector.relists > 1


def test_an_object_that_cannot_be_made_smaller_is_kept_whole(start: Start, server: TinyApi) -> None:
    def small(document: Json) -> Json:
        if document["data"]["v"] == "poison":
            raise ValueError("unheard of")
        return {"metadata": document["metadata"], "data": {"v": "small"}}

    server.put(f"{PATH}/a", config_map("a", "poison"))
    server.put(f"{PATH}/b", config_map("b"))
    reflector, seen = start(transform=small)
    assert {seen.next(), seen.next()} == {("ADDED", "a"), ("ADDED", "b")}
    server.put(f"{PATH}/c", config_map("c", "poison"))
    assert seen.next() == ("ADDED", "c")
    kept = {item["metadata"]["name"]: item["data"]["v"] for item in reflector.objects()}
    assert kept == {"a": "poison", "b": "small", "c": "poison"}
    assert (reflector.transform_failures, reflector.relists) == (2, 1)


def test_who_knows_better_has_all_listed_again(start: Start, server: TinyApi) -> None:
    reflector, seen = start()
    server.put(f"{PATH}/a", config_map("a"))
    assert seen.next() == ("ADDED", "a")
    with server.lock:  # what this watch never hears of
        server.version = 150
        server.objects[f"{PATH}/b"] = config_map("b", uid="b", resourceVersion="150")
    assert reflector.reached() == "101"
    reflector.list_again()
    assert seen.next() == ("ADDED", "b")
    server.wait_for_watch(count=2)
    assert (reflector.relists, reflector.reached()) == (2, "150")


def test_a_watch_that_is_about_to_begin_is_doubted_like_one_that_has(
    api: ApiConnection, server: TinyApi
) -> None:
    seen = Seen()
    server.begins.clear()
    reflector = Reflector(api, CONFIG_MAPS, seen.changes.put, namespace="n").start()
    try:
        server.wait_for_watch()
        with server.lock:
            server.version = 150
            server.objects[f"{PATH}/b"] = config_map("b", uid="b", resourceVersion="150")
        reflector.list_again()
        server.begins.set()
        assert seen.next() == ("ADDED", "b")
    finally:
        reflector.stop()


def test_a_callback_that_fails_loses_nothing_but_its_own_change(api: ApiConnection, server: TinyApi) -> None:
    seen = Seen()

    def callback(change: Change) -> None:
        if change.object["metadata"]["name"] == "bad":
            raise ValueError("no")
        seen.changes.put(change)

    reflector = Reflector(api, CONFIG_MAPS, callback, namespace="n").start()
    assert reflector.wait_synced(30)
    server.wait_for_watch()
    server.put(f"{PATH}/bad", config_map("bad"))
    server.put(f"{PATH}/good", config_map("good"))
    assert seen.next() == ("ADDED", "good")
    assert reflector.callback_failures == 1
    assert reflector.get("bad", "n") is not None
    reflector.stop()


def test_stop_wakes_a_waiting_watch_at_once(start: Start) -> None:
    others = set(threading.enumerate())
    reflector, _ = start()
    assert any(thread.name.startswith("watch-") for thread in set(threading.enumerate()) - others)
    reflector.stop(timeout_s=2)
    assert not any(thread.name.startswith("watch-") for thread in set(threading.enumerate()) - others)


class Paging:
    """Lists one page, and the next one only when it is told to."""

    def __init__(self) -> None:
        self.listed, self.go_on = threading.Event(), threading.Event()

    def list(self, *_: Any, transform: Callable[[Json], Json], **__: Any) -> ObjectList:
        items = [transform({"metadata": {"name": "a", "resourceVersion": "7"}})]
        self.listed.set()
        self.go_on.wait(30)
        return ObjectList(items, "7")

    def stream(self, *_: Any, **__: Any) -> Any:
        raise Unavailable("no watch here")


def test_each_page_of_a_list_is_a_word_from_the_server() -> None:
    pages = Paging()
    reflector = Reflector(cast("ApiConnection", pages), CONFIG_MAPS)
    assert reflector.silent_s() == math.inf
    reflector.start()
    assert pages.listed.wait(30)
    assert reflector.silent_s() < math.inf
    assert not reflector.synced.is_set()
    pages.go_on.set()
    assert reflector.wait_synced(30)
    reflector.stop()


class Answering:
    """No list, for this reason."""

    def __init__(self, error: KubeError) -> None:
        self.error = error
        self.asked = threading.Event()

    def list(self, *_: Any, **__: Any) -> ObjectList:
        self.asked.set()
        raise self.error


@pytest.mark.parametrize(
    ("error", "heard"), [(Forbidden("no", status=403), True), (Unavailable("nobody there"), False)]
)
def test_a_refusal_is_an_answer_and_no_answer_is_none(
    error: KubeError, heard: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    api = Answering(error)
    reflector = Reflector(cast("ApiConnection", api), CONFIG_MAPS)
    now += 500.0
    assert reflector.unanswered_s() == 500.0, "it was to ask at once"
    assert reflector.turn() > 0.0, "not at once"
    assert api.asked.is_set()
    assert reflector.unanswered_s() == (0.0 if heard else 500.0)
    assert reflector.silent_s() == math.inf


def test_a_kind_that_the_cluster_may_lack_comes_and_goes(api: ApiConnection, server: TinyApi) -> None:
    absent, seen = threading.Event(), Seen()
    absent.set()
    gone = status(404, "NotFound", "the server could not find the requested resource")
    server.refuses = lambda _method, path, _body: (404, gone) if absent.is_set() and PATH in path else None
    server.put(f"{PATH}/a", config_map("a"))
    reflector = Reflector(api, CONFIG_MAPS, seen.changes.put, namespace="n", optional=True).start()
    try:
        assert reflector.wait_synced(10)
        assert (reflector.objects(), reflector.failure()) == ([], None)
        assert seen.nothing()
        absent.clear()
        assert seen.next() == ("ADDED", "a")
        server.wait_for_watch()
        absent.set()
        reflector.list_again()
        assert seen.next() == ("DELETED", "a")
        assert reflector.objects() == []
    finally:
        reflector.stop()
