"""Rows in pieces say what the commands say of the whole, after any change."""

import random
from typing import Any

import orjson
import pytest
from unit.cli import documents as docs
from unit.page import synthetic
from unit.page.cluster_api import cluster_api
from vc_egpu.cli.views import cards, queues, waiting
from vc_egpu.jobsapi.what_if.view import Held
from vc_egpu.page.cluster import light
from vc_egpu.page.cluster.pieces import Pieces
from vc_egpu.volcano.codec.suspension import NodeSuspension, PodSuspension, SuspendOrder
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.model_table import ModelTable

Json = dict[str, Any]
SHARE = ("h20", 24576, 25, "low")


def pieces() -> Pieces:
    return Pieces(ModelTable())


def metadata_of(document: Json) -> Json:
    return {"metadata": dict(document["metadata"])}


def figures(found: Pieces) -> dict[tuple[str, int], tuple[Any, ...]]:
    return {
        (name, card.index): (card.allocated_mib, card.cores_high_percent, card.cores_low_percent, card.unseen)
        for name, piece in found.changed_nodes()
        if piece is not None
        for card in piece.cards
    }


def test_they_are_what_the_commands_say_of_all_objects() -> None:
    with cluster_api() as api:
        synthetic.fill(api, nodes=30, seed=3)
        stored = {kind: [one.whole for one in some.values()] for kind, some in api.kinds.items()}
    objects = {kind: [orjson.loads(data) for data in some] for kind, some in stored.items()}
    found = pieces()
    order = [(kind, one) for kind in objects for one in objects[kind]]
    random.Random(5).shuffle(order)  # in whatever order they come
    for kind, document in order:
        match kind:
            case "nodes":
                found.put_node(light.node(document))
            case "pods":
                found.put_pod(light.pod(metadata_of(document)))
            case "podgroups":
                found.put_group(light.group(document))
            case "queues":
                found.put_queue(light.queue(document))
    rows = figures(found)
    for row in cards.report(objects["nodes"], objects["pods"]).cards:
        wanted = (row.used_mib, row.cores_high_percent, row.cores_low_percent, row.unseen)
        assert rows[row.node, row.index] == wanted
    found.changed_gangs()
    whole = queues.report(objects["queues"], objects["podgroups"], objects["pods"])
    assert found.queues(partial=False).queues == whole.queues
    said = waiting.report(objects["podgroups"], objects["pods"], place="")
    assert found.waiting() == list(said.waiting)


def test_what_goes_is_taken_off_all_sums() -> None:
    found = pieces()
    found.put_node(light.node(synthetic.node_of("n1", (docs.card("GPU-1"),))))
    found.put_queue(light.queue(docs.queue("research", h20=4)))
    pod = light.pod(synthetic.pod("train-0", ("ml", "research"), ("n1", "GPU-1"), SHARE))
    found.put_pod(pod)
    found.changed_gangs()
    assert figures(found)["n1", 0][0] == 24576
    assert found.queues(partial=False).queues[0].amounts[0].used == 1
    found.drop_pod(pod["metadata"]["uid"])
    found.changed_gangs()
    assert figures(found)["n1", 0][0] == 0
    assert found.queues(partial=False).queues[0].amounts[0].used == 0
    found.drop_node("n1")
    assert list(found.changed_nodes()) == [("n1", None)]


def test_a_heartbeat_makes_no_row_again() -> None:
    found = pieces()
    node = synthetic.node_of("n1", (docs.card("GPU-1"),))
    found.put_node(light.node(node))
    assert len(list(found.changed_nodes())) == 1
    node["metadata"]["resourceVersion"] = "2"
    node["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-01-01T00:00:00Z"
    found.put_node(light.node(node))
    assert list(found.changed_nodes()) == []


def test_a_share_of_a_pod_that_has_left_its_card_counts_as_suspended() -> None:
    order = SuspendOrder(pod_uid="uid-ml-train-0", plan_id="1-7")
    answer = NodeSuspension(pods={"uid-ml-train-0": PodSuspension(state="suspended", plan_id="1-7")})  # type: ignore[arg-type]
    pod = synthetic.pod("train-0", ("ml", "research"), ("n1", "GPU-1"), SHARE)
    pod["metadata"]["annotations"][names.SUSPEND] = order.encode()
    node = synthetic.node_of(
        "n1", (docs.card("GPU-1"),), annotations={names.NODE_SUSPENSION: answer.encode()}
    )
    found = pieces()
    found.put_node(light.node(node))
    found.put_pod(light.pod(metadata_of(pod)))
    ((_, piece),) = found.changed_nodes()
    assert piece is not None
    assert (piece.cards[0].allocated_mib, piece.cards[0].suspended_mib) == (0, 24576)


def test_pods_of_others_are_a_number() -> None:
    found = pieces()
    found.put_node(light.node(synthetic.node_of("n1", (docs.card("GPU-1", held=("uid-ml-train-0", "x")),))))
    found.put_pod(light.pod(synthetic.pod("train-0", ("ml", "research"), ("n1", "GPU-1"), SHARE)))
    assert figures(found)["n1", 0][3] == 1


@pytest.mark.parametrize("text", ["train-0", "ml/", "research"])
def test_cards_are_found_by_who_is_on_them(text: str) -> None:
    found = pieces()
    found.put_node(light.node(synthetic.node_of("n1", (docs.card("GPU-1"), docs.card("GPU-2", 1)))))
    found.put_pod(light.pod(synthetic.pod("train-0", ("ml", "research"), ("n1", "GPU-2"), SHARE)))
    assert found.find(text) == ([("n1", 1)], 1)
    assert found.find("elsewhere") == ([], 0)


def test_a_pod_keeps_no_long_text_of_its_user() -> None:
    pod = synthetic.pod("train-0", ("ml", "research"), ("n1", "GPU-1"), SHARE)
    pod["metadata"]["annotations"]["note"] = "x" * 200_000
    pod["metadata"]["labels"] |= {f"label-{number}": "y" for number in range(100)}
    kept = light.pod(pod)["metadata"]
    assert len(str(kept)) < 1500


@pytest.mark.parametrize("annotation", ["{", "[]", '{"version":9}', "\x00", "{" * 5000])
@pytest.mark.parametrize("name", [names.CARDS, names.REQUEST, names.SUSPEND, names.GROUP_NAME])
def test_garbage_in_an_annotation_is_a_pod_without_cards_or_group(name: str, annotation: str) -> None:
    pod = synthetic.pod("train-0", ("ml", "research"), ("n1", "GPU-1"), SHARE)
    pod["metadata"]["annotations"][name] = annotation
    found = pieces()
    found.put_node(light.node(synthetic.node_of("n1", (docs.card("GPU-1"),))))
    found.put_pod(light.pod(pod))
    assert figures(found)["n1", 0][0] in {0, 24576}
    found.changed_gangs()


def test_what_others_hold_is_added_where_it_is_known() -> None:
    found = pieces()
    held = ("uid-ml-train-0", "uid-web-chat-0")
    found.put_node(
        light.node(synthetic.node_of("n1", (docs.card("GPU-1", held=held), docs.card("GPU-2", 1))))
    )
    found.put_pod(
        light.pod(metadata_of(synthetic.pod("train-0", ("ml", "research"), ("n1", "GPU-1"), SHARE)))
    )

    def first() -> tuple[int, int, int, bool]:
        ((_, piece),) = found.changed_nodes()
        assert piece is not None
        card = piece.cards[0]
        return card.allocated_mib, card.cores_high_percent, card.unseen, card.least

    mine, cores, unseen, least = first()
    assert (mine, unseen, least) == (24576, 1, True)
    others = {"n1": {0: Held(pods=2, memory_mib=1000, cores_high_percent=7), 1: Held()}}
    found.put_others(others)
    assert first() == (25576, cores + 7, 2, False)
    found.put_others(dict(others))
    assert list(found.changed_nodes()) == [], "the same again is no news"
    found.put_others({})
    assert first() == (24576, cores, 1, True), "what is not known any more is not shown any more"
