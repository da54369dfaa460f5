"""The past: fixed questions to Prometheus, for what the user may see."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from unit.page.cluster_api import ClusterApi
from unit.page.conftest import Until
from unit.page.serving import local_site, signed_in
from vc_egpu.page.cluster.scope import Scope
from vc_egpu.page.serving.history import questions

ALL = Scope(dict.fromkeys(("nodes", "queues", "groups", "pods", "events"), (None,)), ())
SOME = Scope({"nodes": (), "queues": (), "groups": ("ml",), "pods": ("ml",), "events": ("ml",)}, ())
CARD = {"of": "card", "node": "n1", "index": "0"}
POD = {"of": "pod", "namespace": "ml", "pod": "train-0"}


def test_the_questions_name_what_is_asked_for() -> None:
    status, found = questions(ALL, CARD)
    assert status == 200
    assert found["sharers"] == 'max(egpu_card_sharers{node="n1",index="0"})'
    assert set(questions(ALL, {"of": "queue", "queue": "research"})[1]) == {"used", "waiting"}


@pytest.mark.parametrize(
    "query",
    [
        CARD,
        {"of": "queue", "queue": "research"},
        POD | {"namespace": "web"},
    ],
)
def test_what_the_user_may_not_list_has_no_past(query: dict[str, str]) -> None:
    assert questions(ALL, query)[0] == 200
    assert questions(SOME, query)[0] == 403


def test_the_own_pods_have_one() -> None:
    assert questions(SOME, POD)[0] == 200


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"of": "all"},
        CARD | {"hours": "9999"},
        CARD | {"node": 'n1"} or vector(1) or {a="'},
        CARD | {"index": "0} or up{"},
        POD | {"pod": "a\\nb"},
        {"of": "queue", "queue": ""},
    ],
)
def test_no_text_becomes_more_than_a_value(query: dict[str, str]) -> None:
    assert questions(ALL, query)[0] == 400


@contextmanager
def prometheus(answer: Any) -> Iterator[tuple[str, list[dict[str, list[str]]]]]:
    asked: list[dict[str, list[str]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(parse_qs(urlsplit(self.path).query))
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_the_page_passes_on_what_prometheus_says(api: ClusterApi, tmp_path: Path, until: Until) -> None:
    result = [{"metric": {"resource": "x"}, "values": [[1, "0.5"], [2, "NaN"], [3, "+Inf"]]}]
    with (
        prometheus({"data": {"result": result}}) as (url, asked),
        local_site(api, tmp_path, prometheus=url) as site,
    ):
        client = signed_in(site)
        until(lambda: client.json("/api/state")["scope"] is not None)
        found = client.json("/api/history?of=card&node=n1&index=0&hours=1")
        series = {"labels": {"resource": "x"}, "points": [[1.0, 0.5], [2.0, None], [3.0, None]]}
        assert found == {name: [series] for name in ("memory", "cores", "sharers")}
        assert {int(one["end"][0]) - int(one["start"][0]) for one in asked} == {3600}


@pytest.mark.parametrize(
    "answer", [{}, {"data": {"result": [{}]}}, [], {"data": {"result": [{"metric": 1}]}}]
)
def test_garbage_from_prometheus_is_a_sentence(
    api: ClusterApi, tmp_path: Path, until: Until, answer: Any
) -> None:
    with prometheus(answer) as (url, _), local_site(api, tmp_path, prometheus=url) as site:
        client = signed_in(site)
        until(lambda: client.json("/api/state")["scope"] is not None)
        assert client.get("/api/history?of=card&node=n1&index=0").status == 502
