"""``/v1/what-if``: each caller sees its own, and of others numbers alone."""

import http.client
import json

import pytest
from unit.admission.rights_api import Ask, RightsApi
from unit.admission.test_templates import job
from vc_egpu.admission.serving.callers import QUESTIONS_AT_ONCE
from vc_egpu.admission.serving.foresight.what_if import WhatIf
from vc_egpu.admission.view import View
from vc_egpu.core.model.cluster import (
    Card,
    CardAsk,
    CardId,
    Gang,
    Node,
    NodeName,
    PodShape,
    Queue,
    QueueName,
    Resources,
    ShareClass,
)
from vc_egpu.kube.server import MOST_BODY_BYTES, Answer, GetServer, Request
from vc_egpu.kube.wire.limits import TokenBucket
from vc_egpu.sim.world import World

SECRETS = ("zebra", "quagga", "okapi", "heron", "walrus", "GPU-")
"""Words in all names of another tenant: namespace, gang, queue, task; and of the node and its cards."""
MAY_LIST, MAY_SUBMIT = ("list", "pods", "default"), ("create", "jobs", "default")
RIGHTS: dict[str, set[Ask]] = {
    "boss": {("list", "pods", ""), MAY_SUBMIT},
    "ada": {MAY_LIST, MAY_SUBMIT},
    "carl": {MAY_SUBMIT},
    "mallory": {MAY_LIST},
}


def view(*, fifo: bool = False) -> View:
    """Two cards that are full: a low gang of another tenant is on both."""
    world = World(models={"h20": 98304})
    cards = tuple(Card(CardId(f"GPU-{i}"), i, "h20", 98304) for i in range(2))
    world.put_node(Node(NodeName("walrus"), Resources(64000, 1 << 40, 0, 100), cards=cards))
    caps = {"volcano.sh/vgpu-h20": 8}
    for name in ("default", "zebra-queue"):
        world.put_queue(Queue(QueueName(name), capability=caps, fifo=fifo))
    shape = PodShape((CardAsk("main", "h20", 1, 98304, 100, whole=True),), Resources(1000), runtime_s=None)
    queue = QueueName("default" if fifo else "zebra-queue")
    for name, members in (("quagga", 2), ("heron", 1)):
        gang = Gang(f"okapi/{name}", name, queue, ShareClass.LOW, 0, members, 0.0)
        world.submit(gang, (("zebra-task", members, shape),))
        world.settle()
    return View(world.snapshot(), {}, {}, 1, admitting=True, policy=world.policy)


def asked(priority: str = "high", **more: object) -> bytes:
    written = job()
    for task in written["spec"]["tasks"]:
        task["template"]["metadata"]["annotations"] = {"egpu.volcano.sh/priority": priority}
    return json.dumps({"job": written, **more}).encode()


def large() -> bytes:
    """A Job that would take all memory of the leader, were each member an object."""
    written = job()
    written["spec"]["tasks"][0]["replicas"] = 1 << 31
    return json.dumps({"job": written}).encode()


def ask(
    body: bytes, token: str = "ada", *, seen: View | None = None, edge: WhatIf | None = None, client: str = ""
) -> Answer:
    """What a new edge answers where none is given: it has no memory of earlier questions."""
    edge = edge or WhatIf(RightsApi(RIGHTS), lambda: seen or view(), questions=TokenBucket(1e6, 1000))
    said = f"Bearer {token}" if token else ""
    return edge.answer(Request("/v1/what-if", client or "10.0.0.9", said, body=body))


def test_others_are_numbers_without_names() -> None:
    own, all_of_it = ask(asked()), ask(asked(), "boss")
    assert own.status == all_of_it.status == 200
    told, whole = json.loads(own.body), json.loads(all_of_it.body)
    assert told["outcome"] == whole["outcome"] == "makes room"
    assert told["places"] == [{"members": 2, "cardCount": 1}]
    assert whole["places"] == [{"members": 2, "cardCount": 1, "node": "walrus", "cards": ["GPU-0"]}]
    assert told["goingOfOthers"] == {"gangs": 1, "pods": 2}
    assert (told["going"], whole["going"][0]["gang"]) == ([], "okapi/quagga")


@pytest.mark.parametrize("priority", ["high", "low", ""])
@pytest.mark.parametrize("fifo", [True, False])
@pytest.mark.parametrize(
    "change",
    [
        {"drain": "walrus"},
        {"end": "okapi/quagga"},
        {"end": "okapi/nothing"},
        {"cap": {"queue": "zebra-queue", "resource": "volcano.sh/vgpu-h20", "to": 0}},
        {"cap": {"queue": "default", "resource": "volcano.sh/vgpu-h20", "to": 1}},
        {"cap": {"queue": "default", "resource": "volcano.sh/vgpu-h20", "to": 9}},
        {"addNodes": {"like": "walrus", "count": 2}},
        {"addNodes": {"like": "zzz", "count": 2}},
        None,
    ],
)
def test_no_byte_names_what_is_of_others(priority: str, fifo: bool, change: object) -> None:
    body = asked(priority, changes=[change] if change else [])
    answer = ask(body, seen=view(fifo=fifo))
    for word in SECRETS:
        assert word.encode() not in answer.body, answer.body


def test_a_gang_of_others_is_refused_alike_whether_it_is_there_or_not() -> None:
    there, missing = (ask(asked(changes=[{"end": f"okapi/{name}"}])) for name in ("quagga", "nothing"))
    assert there == missing
    assert there.status == 403


def test_the_right_to_make_the_job_is_the_right_to_ask() -> None:
    assert ask(asked(), "mallory").body == b"you may not create Jobs in that namespace\n"
    told = json.loads(ask(asked(), "carl").body)
    assert told["outcome"] == "makes room"
    assert told["goingOfOthers"] == {"gangs": 1, "pods": 2}


@pytest.mark.parametrize("change", [{"drain": "walrus"}, {"addNodes": {"like": "walrus", "count": 2}}])
def test_nodes_are_changed_by_operators_alone(change: object) -> None:
    body = asked(changes=[change])
    assert (ask(body).status, ask(body, "boss").status) == (403, 200)


def test_who_may_not_ask() -> None:
    assert ask(asked(), "mallory").status == 403
    assert ask(asked(), "unknown").status == 403
    assert ask(asked(), "").status == 403
    assert ask(asked(), "", client="127.0.0.1").status == 200
    assert ask(asked(), "unknown", client="127.0.0.1").status == 403, "a token is never taken for none"


def test_without_the_api_server_no_question_is_answered() -> None:
    api = RightsApi(RIGHTS)
    api.away = True
    assert ask(asked(), edge=WhatIf(api, view)).status == 503


def test_questions_are_rationed() -> None:
    edge = WhatIf(RightsApi(RIGHTS), view, questions=TokenBucket(0.001, 2))
    assert [ask(asked(), edge=edge).status for _ in range(3)] == [200, 200, 429]


def test_one_caller_leaves_questions_for_others() -> None:
    edge = WhatIf(RightsApi(RIGHTS), view, questions=TokenBucket(1e6, 1000))
    mine = [ask(asked(), edge=edge).status for _ in range(QUESTIONS_AT_ONCE + 1)]
    assert mine == [200] * QUESTIONS_AT_ONCE + [429]
    assert ask(asked(), "carl", edge=edge).status == 200


def test_an_answer_that_finds_no_time_says_so() -> None:
    edge = WhatIf(RightsApi(RIGHTS), view, rests=lambda _timeout_s: False)
    answer = ask(asked(), edge=edge)
    assert (answer.status, b"no time for an answer" in answer.body) == (503, True)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "no JSON"),
        (b"[]", "the question"),
        (b"{}", "job"),
        (asked(changes=[{"drain": "nowhere"}]), "nowhere"),
        (asked(changes=[{"dran": "n1"}]), "changes.0"),
        (asked(changes=[{"addNodes": {"like": "walrus", "count": 1000}}]), "count"),
        (asked(changes=[{"drain": "walrus"}] * 17), "changes"),
        (asked(colour="red"), "colour"),
        (large(), "more than 1024 members"),
        (b'{"job": {"spec": {"tasks": 7}}}', "no Volcano Job"),
        (b'{"job": {"spec": {"tasks": []}}}', "no pod of it"),
        (b'{"job": {"metadata": {"name": "a/b"}, "spec": {"tasks": []}}}', "metadata.name"),
    ],
)
def test_what_is_no_question_is_refused_by_name(body: bytes, said: str) -> None:
    answer = ask(body, "boss")
    assert answer.status == 400
    assert said in answer.body.decode()


def test_only_posts_of_known_size_are_read() -> None:
    server = GetServer(
        ("127.0.0.1", 0), lambda _: Answer(200, b"got"), posts={"/here": lambda r: Answer(200, r.body)}
    ).start()
    try:
        for path, headers, body, status in (
            ("/here", {}, b"abc", 200),
            ("/elsewhere", {}, b"abc", 405),
            ("/here", {"Content-Length": str(MOST_BODY_BYTES + 1)}, b"", 413),
            ("/here", {"Content-Length": "-1"}, b"", 411),
            ("/here", {"Content-Length": "9" * 5000}, b"", 411),
        ):
            link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
            link.request("POST", path, body, headers)
            answer = link.getresponse()
            assert (answer.status, path, headers) == (status, path, headers)
            assert status != 200 or answer.read() == b"abc"
            link.close()
    finally:
        server.stop()
