"""A pod that asks for MPS: at the door, and where it may go."""

from typing import Any

import pytest
from unit.webhook.world import container, context, create, job, pod, task
from vc_egpu.core.books import fit
from vc_egpu.core.environments.needs import is_met
from vc_egpu.core.model.cluster import PodShape, Toleration
from vc_egpu.volcano.codec import cluster_codec
from vc_egpu.volcano.needs.nodes import environment
from vc_egpu.volcano.needs.pods import needs_in, read
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import NodeCard, NodeCards
from vc_egpu.webhook.reviews.jobs.review import review_job
from vc_egpu.webhook.reviews.pods import review_pod

ASK = {names.ISOLATION: "mps"}
HERE = context(unnamed_model_unlimited=True)
TABLE = HERE.settings.environments


def inventory(compute: str, namespace: str = "") -> NodeCards:
    one = NodeCard(uuid="GPU-1", index=0, model="h20", memory_mib=98304)
    return NodeCards(cards=(one,), compute=compute, mps_namespace=namespace)


def node(compute: str, namespace: str = "") -> Any:
    annotations = {names.NODE_CARDS: inventory(compute, namespace).encode()}
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    document = {"metadata": {"name": "n", "annotations": annotations}, "status": status}
    return cluster_codec.node(document, HERE.table)


def shape(namespace: str, *, asks: bool) -> PodShape:
    """As the codec makes it of a pod there, which a test of the codec compares."""
    return PodShape(tolerations=(Toleration(names.MPS, "Equal", namespace),) if asks else ())


@pytest.mark.parametrize(
    ("compute", "whose", "namespace", "asks", "goes"),
    [
        ("mps", "a", "a", True, True),
        ("mps", "a", "b", True, False),
        ("mps", "a", "a", False, False),
        ("library", "", "a", False, True),
        ("timeslice", "", "a", False, True),
    ],
)
def test_only_those_of_the_namespace_who_ask_for_it_go_there(
    compute: str, whose: str, namespace: str, asks: bool, goes: bool
) -> None:
    assert fit.accepts(node(compute, whose), shape(namespace, asks=asks)) is goes


def test_a_pod_that_asks_for_it_goes_nowhere_else() -> None:
    needs = needs_in(read(ASK, {"containers": []}, TABLE).needs)
    assert is_met(needs, environment(inventory("mps", "a"), {}))
    for word in ("library", "timeslice"):
        assert not is_met(needs, environment(inventory(word), {}))


def test_its_size_does_not_change_while_it_runs() -> None:
    (one,) = node("mps", "a").cards
    assert one.isolation == "mps"
    (other,) = node("timeslice").cards
    assert other.isolation == "library"


@pytest.mark.parametrize(
    ("amounts", "annotations", "said"),
    [
        ({"vgpu_h20": 1}, {names.PRIORITY: "low"}, "and class low: nobody holds launches"),
        ({"vgpu_h20": 1}, {names.OVERSUBSCRIBE: "true"}, "no memory moves to the host there"),
        ({"vgpu_h20": 2}, {}, "asks for 2 cards. Each card has its own server"),
        ({"gpu_h20": 1}, {}, "asks for whole cards, which nobody shares"),
        ({"vgpu_h20": 1}, {names.SLICE: "1g.10gb"}, "leave one of the two out"),
    ],
)
def test_what_cannot_be_under_mps_is_refused_by_name(
    amounts: dict[str, Any], annotations: dict[str, str], said: str
) -> None:
    asked = {**ASK, **annotations}
    decision = review_pod(create(pod(container(**amounts), annotations=asked)), HERE)
    assert not decision.allowed
    assert said in decision.message
    decision = review_job(create(job(task("w", 1, container(**amounts), annotations=asked))), HERE)
    assert not decision.allowed
    assert said in decision.message


def test_the_class_of_the_job_counts_for_its_templates() -> None:
    one = job(task("w", 1, container(vgpu_h20=1), annotations=ASK), annotations={names.PRIORITY: "low"})
    decision = review_job(create(one), HERE)
    assert not decision.allowed
    assert "and class low" in decision.message


def test_others_are_let_in() -> None:
    decision = review_pod(create(pod(container(vgpu_h20=1), annotations=ASK)), HERE)
    assert decision.allowed, decision.message
