"""Needs that no node meets today: the door warns, and refuses nothing, since nodes come."""

import json
from dataclasses import replace

import pytest
from unit.webhook.world import Json, container, context, create, job, pod, task
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import NodeCard, NodeCards
from vc_egpu.webhook.protocol.offers import Offers, cards_of, facts_of, offers_of
from vc_egpu.webhook.reviews.jobs.review import review_job
from vc_egpu.webhook.reviews.pods import review_pod
from vc_egpu.webhook.serving.caches import slim_node

H20, V100 = "h20", "v100-32g"


def node(
    cuda: str, model: str = H20, mode: str = "shared", isolation: str = "library", **labels: str
) -> Json:
    cards = (NodeCard(uuid="GPU-1", index=0, model=model, memory_mib=98304, isolation=isolation),)
    told = NodeCards.model_validate({"mode": mode, "cuda_version": cuda, "cards": cards})
    return {"name": "n", "annotations": {names.NODE_CARDS: told.encode()}, "labels": labels}


def offers(*nodes: Json) -> Offers:
    found = Offers()
    for number, each in enumerate(nodes):
        told = cards_of(each["annotations"])
        found.put(f"n{number}", offers_of(told), facts_of(told, each["labels"]))
    return found


def told(obj: Json, known: Offers) -> str:
    here = replace(context(unnamed_model_unlimited=True), offers=known)
    decision = (review_job if obj.get("kind") == "Job" else review_pod)(create(obj), here)
    assert decision.allowed, decision.message
    return "\n".join(text for text in decision.warnings if "which no node" in text)


def of(needs: str, **variables: str) -> Json:
    main = container(vgpu_h20=1)
    main["env"] = [{"name": name, "value": value} for name, value in variables.items()]
    return pod(main, annotations={names.NEEDS: needs} if needs else None)


def test_it_names_what_nodes_have_instead() -> None:
    said = told(of("cuda>=13.0"), offers(node("12.2"), node("12.2"), node("12.8")))
    assert said == (
        f'metadata.annotations["{names.NEEDS}"]: it will wait, since the program needs cuda>=13.0, which no '
        "node with its cards has: 3 nodes have cuda 12.2, 12.8, cuda>=13.0 is needed"
    )


@pytest.mark.parametrize(
    ("obj", "nodes"),
    [
        (of("cuda>=12.4"), [node("12.2"), node("12.8")]),
        (of("cuda>=13.0"), []),
        (of("cuda>=13.0"), [node("12.2", V100)]),
        (of(""), [node("12.2")]),
        (of("", CUDA_VERSION="13.0"), [node("")]),
        (pod(container(gpu_h20=1), annotations={names.NEEDS: "cuda>=13.0"}), [node("12.2")]),
        (of("network==rdma"), [node("12.2", **{names.NETWORK_LABEL: "rdma"})]),
    ],
    ids=[
        "one fits",
        "no node",
        "no node of the model",
        "no needs",
        "filled in, and nodes do not tell",
        "native",
        "by label",
    ],
)
def test_it_is_silent_where_a_node_may_do(obj: Json, nodes: list[Json]) -> None:
    assert told(obj, offers(*nodes)) == ""


def test_what_was_filled_in_is_told_alike() -> None:
    assert "needs NVIDIA_REQUIRE_CUDA, which" in told(
        of("", NVIDIA_REQUIRE_CUDA="cuda>=13.0"), offers(node("12.8"))
    )


def test_a_job_is_told_by_its_task() -> None:
    found = job(task("w", 1, annotations={names.NEEDS: "cuda>=13.0"}))
    assert told(found, offers(node("12.2"))).startswith('spec.tasks["w"]')


@pytest.mark.parametrize(("cuda", "warned"), [("12.2", True), ("12.8", False)])
def test_one_alternative_that_fits_is_enough(cuda: str, warned: bool) -> None:
    ways = [{"name": H20, "needs": "cuda>=13.0"}, {"name": V100, "needs": "cuda>=12.4"}]
    found = job(task("w", 1, container(vgpu=1)))
    found["metadata"]["annotations"] = {names.ALTERNATIVES: json.dumps(ways)}
    said = told(found, offers(node("12.2"), node(cuda, V100)))
    assert ("needs cuda>=13.0" in said, "needs cuda>=12.4" in said) == (warned, warned)


def test_nodes_that_change_and_go_are_counted_as_they_are() -> None:
    known = offers(node("12.2"))
    assert told(of("cuda>=13.0"), known)
    newer = node("13.0")
    renewed = cards_of(newer["annotations"])
    known.put("n0", offers_of(renewed), facts_of(renewed, {}))
    assert not told(of("cuda>=13.0"), known)
    known.put("n0", {})
    assert known.crowd([H20]) == frozenset()
    known.put("n0", {})
    assert known.crowd([H20]) == frozenset()


def test_the_copy_of_a_node_keeps_what_its_agent_tells() -> None:
    kept = slim_node({"metadata": node("12.4")})
    assert ("cuda", ("12.4",)) in kept["facts"]
    assert slim_node({"metadata": {"name": "n", "annotations": {names.NODE_CARDS: "{"}}})["facts"] == ()


def test_isolation_that_no_node_has_is_told_at_the_door() -> None:
    asked = pod(container(vgpu_h20=1), annotations={names.ISOLATION: "driver"})
    assert told(asked, offers(node("12.2"), node("12.2", isolation="none"))) == (
        f'metadata.annotations["{names.ISOLATION}"]: it will wait, since the program needs '
        f"{names.ISOLATION}: driver, which no node with its cards has: 2 nodes have isolation library, none, "
        "isolation==driver is needed"
    )
    assert told(asked, offers(node("12.2"), node("12.2", isolation="driver"))) == ""
    wood = pod(container(vgpu_h20=1), annotations={names.ISOLATION: "wood"})
    decision = review_pod(create(wood), context(unnamed_model_unlimited=True))
    assert not decision.allowed
    assert "it must be library, driver, hardware, vendor-file, none, mps or any" in decision.message
