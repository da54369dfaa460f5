"""Our taint on nodes: written one by one, next to the taints of others, and taken off before removal."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from unit.admission.build import TABLE, Json, node
from unit.kube.tiny_api import TinyApi, status, tiny_api
from vc_egpu.admission.decision import Decisions, without_admissions
from vc_egpu.admission.drain import drain
from vc_egpu.admission.garbage_collector import Collector
from vc_egpu.admission.settings import parse
from vc_egpu.admission.taints import AGAIN_S, Taints, write
from vc_egpu.core.books.fit import why_not
from vc_egpu.core.model.cluster import Move, NodeName, PodShape, Toleration
from vc_egpu.core.model.plan import Plan
from vc_egpu.core.model.policy import Policy
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.wire.errors import KubeError
from vc_egpu.volcano.codec import cluster_codec, gang_notes, trim
from vc_egpu.volcano.words import names

NODES = "/api/v1/nodes"
OTHER: Json = {"key": "gpu", "effect": "NoSchedule"}
OURS: Json = {"key": names.EMPTIED, "value": "1000", "effect": "NoSchedule"}
N1 = NodeName("n1")


@pytest.fixture
def server() -> Iterator[TinyApi]:
    with tiny_api() as found:
        yield found


@pytest.fixture
def api(server: TinyApi, tmp_path: Path) -> Iterator[ApiConnection]:
    found = ApiConnection.connect(server.kubeconfig(tmp_path))
    yield found
    found.close()


def put(server: TinyApi, name: str, *taints: Json) -> None:
    server.put(f"{NODES}/{name}", node(name, spec={"taints": list(taints)}))


def taints(server: TinyApi, name: str = "n1") -> list[Json]:
    found: list[Json] = server.objects[f"{NODES}/{name}"]["spec"]["taints"]
    return found


def until(done: Callable[[], bool]) -> None:
    while not done():
        pass


class Counted:
    def __init__(self) -> None:
        self.opened: list[bool] = []

    def __call__(self, *, opened: bool) -> None:
        self.opened.append(opened)


def test_taints_of_others_stay(server: TinyApi, api: ApiConnection) -> None:
    put(server, "n1", OTHER)
    counted = Counted()
    ours = Taints(api, counted)
    ours.carry_out(Plan(1, empties=(N1,)), 1000.7, 0.0)
    until(ours.rests)
    assert taints(server) == [OTHER, OURS]
    ours.carry_out(Plan(1, empties=(N1,)), 2000.0, 1.0)  # the node was not heard of yet
    until(ours.rests)
    assert taints(server) == [OTHER, OURS], "it stands since it was set first"
    ours.carry_out(Plan(1, opens=(N1,)), 3000.0, 2.0)
    until(ours.rests)
    assert taints(server) == [OTHER]
    assert counted.opened == [False, True]
    ours.stop()


def test_a_taint_that_comes_at_the_same_time_is_kept(server: TinyApi, api: ApiConnection) -> None:
    put(server, "n1")
    late = iter([True, False])

    def meanwhile(method: str, path: str, _: object) -> None:
        if method == "PATCH" and path.startswith(f"{NODES}/n1") and next(late):
            put(server, "n1", OTHER)

    server.refuses = meanwhile
    assert write(api, "n1", 1000.0)
    assert taints(server) == [OTHER, OURS]


def test_what_is_refused_is_tried_again_after_a_while(server: TinyApi, api: ApiConnection) -> None:
    put(server, "n1", OURS)
    refused = 403, status(403, "Forbidden", "no right")
    server.refuses = lambda method, _path, _body: refused if method == "PATCH" else None
    ours, plan = Taints(api, Counted()), Plan(1, opens=(N1, NodeName("gone")))
    ours.carry_out(plan, 1000.0, 0.0)
    until(ours.rests)
    assert ours.stuck(1.0) == {"n1"}, "a node that is gone needs nothing"
    server.refuses = None
    ours.carry_out(plan, 1000.0, AGAIN_S - 1)
    until(ours.rests)
    assert taints(server) == [OURS]
    ours.carry_out(plan, 1000.0, AGAIN_S + 2)
    until(ours.rests)
    assert taints(server) == []
    assert not ours.stuck(AGAIN_S + 3)
    ours.stop()


def test_decisions_know_what_cannot_be_opened() -> None:
    decisions = Decisions(Policy(), Collector())
    decisions.cannot_open(frozenset({N1}))
    assert decisions.policy.moving.stuck == {"n1"}


def test_before_removal_our_taints_go(
    server: TinyApi, api: ApiConnection, caplog: pytest.LogCaptureFixture
) -> None:
    put(server, "n1", OTHER, OURS)
    put(server, "n2", OTHER)
    put(server, "n3", OURS)
    nodes = [server.objects[f"{NODES}/{name}"] for name in ("n1", "n2", "n3")]

    def listed(items: list[Json]) -> tuple[int, Json, dict[str, str]]:
        return 200, {"metadata": {"resourceVersion": "1"}, "items": items}, {}

    def no_right(method: str, path: str, _: object) -> tuple[int, Json] | None:
        refused = method == "PATCH" and path.startswith(f"{NODES}/n3")
        return (403, status(403, "Forbidden", "no right")) if refused else None

    server.script += [listed([]), listed(nodes)]
    server.refuses = no_right
    assert drain(api) == 1
    assert taints(server) == [OTHER]
    assert taints(server, "n2") == [OTHER]
    assert "node n3" in caplog.text
    server.refuses = None
    server.script += [listed([]), listed(nodes)]
    assert drain(api) == 0
    assert taints(server, "n3") == []


@pytest.mark.parametrize(
    ("value", "since"),
    [("1000", 1000.0), ("", 0.0), ("soon", 0.0), ("9" * 40, 0.0), ("-5", 0.0), (None, 0.0)],
)
def test_a_node_with_our_taint_takes_nothing_new(value: str | None, since: float) -> None:
    taint = {key: text for key, text in {**OURS, "value": value}.items() if text is not None}
    document = trim.node(node(spec={"taints": [OTHER, taint]}))
    read = cluster_codec.node(document, TABLE)
    assert read.emptied == since
    assert [one.key for one in read.taints] == ["gpu"]
    assert why_not(read, PodShape(tolerations=(Toleration("", "Exists"),))) == "being emptied"


def test_an_autoscalers_word_is_read() -> None:
    document = node()
    document["metadata"]["annotations"][names.STAYS] = "true"
    assert cluster_codec.node(trim.node(document), TABLE).stays
    assert not cluster_codec.node(trim.node(node()), TABLE).stays


def test_a_move_remembers_the_node() -> None:
    move = Move(10.0, empties="n1")
    assert gang_notes.decode_move(gang_notes.encode_move(move, "g", {}), "g", {}) == move


def test_no_node_is_emptied_while_the_operator_has_stopped_admitting() -> None:
    stopped = without_admissions(Plan(1, empties=(N1,), opens=(NodeName("n2"),)))
    assert (stopped.empties, stopped.opens) == ((), ("n2",))


def test_the_flag() -> None:
    assert parse(["--defrag-empty-nodes"]).policy.moving.for_empty
    assert not parse(["--defrag=always"]).policy.moving.for_empty


def test_conflicts_without_end_are_told(server: TinyApi, api: ApiConnection) -> None:
    put(server, "n1")
    conflict = 409, status(409, "Conflict", "another version")
    server.refuses = lambda method, _path, _body: conflict if method == "PATCH" else None
    with pytest.raises(KubeError):
        write(api, "n1", 1000.0)
