"""Limits that no node enforces, and memory that spills nowhere: the door says so, and refuses nothing."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from unit.webhook.world import Json, container, context, create, job, pod, task
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import NodeCard, NodeCards
from vc_egpu.webhook.protocol.context import Context
from vc_egpu.webhook.protocol.offers import Offer, Offers, cards_of, offers_of
from vc_egpu.webhook.reviews.jobs.review import review_job
from vc_egpu.webhook.reviews.pods import review_pod

PLAIN, STRETCHED, BARE = Offer(enforced=True), Offer(stretched=True, enforced=True), Offer()
SPILLS = {names.OVERSUBSCRIBE: "true"}
SHARE = container(vgpu_h20=1, vgpu_memory=1000)


def offers(*nodes: dict[str, Offer]) -> Offers:
    found = Offers()
    for number, offered in enumerate(nodes):
        found.put(f"n{number}", offered)
    return found


def told(obj: Json, *nodes: dict[str, Offer]) -> list[str]:
    known = context(unnamed_model_unlimited=True)
    decision = review_pod(create(obj), replace(known, offers=offers(*nodes)))
    assert decision.allowed, decision.message
    return list(decision.warnings)


@pytest.mark.parametrize(
    ("obj", "nodes", "words"),
    [
        (SHARE, [BARE, BARE], ["spec: volcano.sh/vgpu-memory: counted, and nothing keeps programs to it"]),
        (
            container(vgpu_h20=1, vgpu_memory=1000, vgpu_cores=10),
            [BARE],
            ["volcano.sh/vgpu-memory and volcano.sh/vgpu-cores: counted"],
        ),
        (SHARE, [BARE, PLAIN], []),
        (SHARE, [], []),
        (container(vgpu_h20=1), [BARE], []),
        (container(gpu_h20=1), [BARE], []),
    ],
    ids=["memory", "cores too", "one node has it", "no node is known", "a whole card", "a native card"],
)
def test_limits_that_no_node_enforces(obj: Json, nodes: list[Offer], words: list[str]) -> None:
    said = told(pod(obj), *({"h20": offer} for offer in nodes))
    assert [word in text for word, text in zip(words, said, strict=True)] == [True] * len(words)


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ([PLAIN, PLAIN], "has no effect, memoryRatio is above 1 on no node with h20"),
        ([PLAIN, STRETCHED], ""),
        ([Offer(stretched=True)], "changes the plan, and nothing spills"),
        ([], ""),
    ],
    ids=["nowhere", "somewhere", "without the library", "no node is known"],
)
def test_memory_that_spills_nowhere(nodes: list[Offer], words: str) -> None:
    said = told(pod(SHARE, annotations=SPILLS), *({"h20": offer} for offer in nodes))
    assert [text for text in said if names.OVERSUBSCRIBE in text and words in text] == said[-1:]
    assert bool(said) == bool(words)


def test_a_policy_of_cores_needs_the_library() -> None:
    obj = pod(SHARE, annotations={names.CORE_POLICY: "soft"})
    assert any(names.CORE_POLICY in text for text in told(obj, {"h20": BARE}))
    assert not told(obj, {"h20": PLAIN})


def test_each_task_of_a_job_is_told_of() -> None:
    tasks = (task("a", 1, SHARE, annotations=SPILLS), task("b", 1))
    known = replace(context(), offers=offers({"h20": PLAIN}))
    decision = review_job(create(job(*tasks)), known)
    (warning,) = decision.warnings
    assert decision.allowed
    assert 'tasks["a"]' in warning


def test_models_that_another_node_has_are_not_told_of() -> None:
    found = offers({"h20": BARE}, {"t4": PLAIN}, {"t4": BARE})
    assert found.never_enforced({"h20", "t4", "unheard-of"}) == ["h20"]
    assert found.never_stretched({"h20", "t4"}) == ["h20", "t4"]


def test_a_node_that_changes_or_goes_counts_no_more() -> None:
    found = offers({"h20": PLAIN}, {"h20": BARE})
    found.put("n0", {"h20": BARE})
    assert found.never_enforced(["h20"]) == ["h20"]
    found.put("n1", {"h20": STRETCHED})
    found.put("n0", {})
    assert found.never_enforced(["h20"]) == found.never_stretched(["h20"]) == []
    found.put("n1", {})
    found.put("n9", {})
    assert found.never_enforced(["h20"]) == [], "of a model that no node has nothing is said"


def annotation(cards: Iterable[NodeCard] = (), **more: object) -> Json:
    return {names.NODE_CARDS: NodeCards.model_validate({"cards": tuple(cards), **more}).encode()}


def card(**more: object) -> NodeCard:
    return NodeCard.model_validate({"uuid": "GPU-1", "index": 0, "model": "h20", "memory_mib": 98304, **more})


@pytest.mark.parametrize(
    ("annotations", "found"),
    [
        (annotation([card()], memory_ratio=1.5), {"h20": STRETCHED}),
        (annotation([card(isolation="none")]), {"h20": BARE}),
        (annotation([card(isolation="driver")]), {"h20": PLAIN}),
        (annotation([card(offered=False)]), {}),
        (annotation([card()], mode="native"), {}),
        (annotation(), {}),
        ({}, {}),
        ({names.NODE_CARDS: "{"}, {}),
        ({names.NODE_CARDS: None}, {}),
    ],
    ids=[
        "stretched",
        "bare",
        "by the driver",
        "not offered",
        "native",
        "no cards",
        "no agent",
        "no JSON",
        "nothing",
    ],
)
def test_what_a_node_says(annotations: Json, found: dict[str, Offer]) -> None:
    assert offers_of(cards_of(annotations)) == found


def test_nothing_is_known_before_nodes_are_listed() -> None:
    assert not review_pod(create(pod(SHARE, annotations=SPILLS)), Context(context().table)).warnings
