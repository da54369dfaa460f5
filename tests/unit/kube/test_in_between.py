"""What stands between us and the API server may know neither lists nor watches: nothing is lost by it."""

import json
from collections.abc import Callable

import pytest
from unit.kube.live import PATH, Start, config_map
from unit.kube.tiny_api import TinyApi, status
from vc_egpu.kube import ApiConnection, Json
from vc_egpu.kube.resources import CONFIG_MAPS
from vc_egpu.kube.wire.errors import Unavailable


@pytest.mark.parametrize("answer", [{}, {"message": "ok"}, status(503, "ServiceUnavailable")])
def test_an_answer_that_is_no_list_deletes_nothing(start: Start, server: TinyApi, answer: Json) -> None:
    """A gateway that says in JSON, and with the HTTP status of a success, that it has nobody to ask."""
    reflector, seen = start()
    server.put(f"{PATH}/a", config_map("a"))
    assert seen.next() == ("ADDED", "a")
    with server.lock:
        server.script += [(200, answer, {})] * 2
        reflector.list_again()
    server.put(f"{PATH}/b", config_map("b"))
    assert seen.next() == ("ADDED", "b")
    assert reflector.get("a", "n") is not None


MERGE: Json = {"data": {"v": "2"}}


@pytest.mark.parametrize("answer", [{}, {"message": "ok"}, status(200, "Ok"), {"metadata": "x"}])
@pytest.mark.parametrize(
    "ask",
    [
        lambda api: api.get(CONFIG_MAPS, "a", "n"),
        lambda api: api.create(CONFIG_MAPS, config_map("b")),
        lambda api: api.update(CONFIG_MAPS, config_map("a")),
        lambda api: api.patch(CONFIG_MAPS, "a", MERGE, "n"),
        lambda api: api.patch_status(CONFIG_MAPS, "a", MERGE, "n"),
    ],
    ids=["get", "create", "update", "patch", "patch_status"],
)
def test_an_answer_that_is_no_such_object_is_none(
    api: ApiConnection, server: TinyApi, ask: Callable[[ApiConnection], Json], answer: Json
) -> None:
    server.put(f"{PATH}/a", config_map("a"))
    server.script.append((200, answer, {}))
    with pytest.raises(Unavailable, match="the answer is no ConfigMap"):
        ask(api)
    assert ask(api)["metadata"]["name"] in {"a", "b"}, "the next one is heard"


@pytest.mark.parametrize("word", [b"", json.dumps({"type": "ERROR", "object": status(500, "X")}).encode()])
def test_watches_that_tell_nothing_are_not_gone_on_with_for_ever(
    start: Start, server: TinyApi, word: bytes
) -> None:
    """As where an event cannot be told, or where a proxy knows no watches: lists tell what there is."""
    _, seen = start()
    with server.lock:
        server.brief = word + b"\n" if word else b""
        server.end_watches()
        server.put(f"{PATH}/a", config_map("a"))
    assert seen.next() == ("ADDED", "a")
    server.put(f"{PATH}/b", config_map("b"))
    assert seen.next() == ("ADDED", "b"), "and again"
