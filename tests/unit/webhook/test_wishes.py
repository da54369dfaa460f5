"""Pods that say more of the node that they want than anybody can weigh."""

import pytest
from unit.admission import build
from unit.webhook.job_reviews import refusal as job_refusal
from unit.webhook.pod_reviews import complete, refusal
from unit.webhook.world import Json, container, job, pod, task
from vc_egpu.admission.inqueue import enqueue
from vc_egpu.admission.state.gangs import NO_TEMPLATE
from vc_egpu.volcano.codec import pod_codec
from vc_egpu.volcano.podspec.node_wishes import (
    CARD_LISTS,
    MOST_NAMED,
    MOST_PORTS,
    MOST_REQUIREMENTS,
    MOST_RESOURCES,
    MOST_TOLERATIONS,
    MOST_VALUES,
    excess,
)
from vc_egpu.volcano.words import names


def affinity(*terms: list[Json]) -> Json:
    selector = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}}


def is_in(values: int) -> Json:
    return {"key": "zone", "operator": "In", "values": [f"v{number}" for number in range(values)]}


def asking(resources: int) -> Json:
    made = container(vgpu_h20=1)
    made["resources"]["requests"] = {f"a.example/{number}": "1" for number in range(resources - 1)}
    return {"containers": [made]}


def exposing(count: int, **more: int) -> Json:
    ports = [{"containerPort": number + 1} | more for number in range(count)]
    return {"containers": [{**container(vgpu_h20=1), "ports": ports}]}


WISHES: dict[str, tuple[Json, Json, str]] = {
    "resources": (
        asking(MOST_RESOURCES),
        asking(MOST_RESOURCES + 1),
        f"{MOST_RESOURCES + 1} different resources, the limit is {MOST_RESOURCES}",
    ),
    "terms": (
        affinity(*[[is_in(1)]] * MOST_REQUIREMENTS),
        affinity(*[[is_in(1)]] * MOST_REQUIREMENTS, [is_in(1)]),
        f"{MOST_REQUIREMENTS + 1} requirements of node selector and node affinity",
    ),
    "requirements of a term": (
        affinity([is_in(1)] * MOST_REQUIREMENTS),
        affinity([is_in(1)] * MOST_REQUIREMENTS, [is_in(1)]),
        f"{MOST_REQUIREMENTS + 1} requirements",
    ),
    "a selector beside them": (
        affinity([is_in(1)] * (MOST_REQUIREMENTS - 1)) | {"nodeSelector": {"a": "b"}},
        affinity([is_in(1)] * MOST_REQUIREMENTS) | {"nodeSelector": {"a": "b"}},
        f"{MOST_REQUIREMENTS + 1} requirements",
    ),
    "values": (
        affinity([is_in(MOST_VALUES)]),
        affinity([is_in(MOST_VALUES)], [is_in(1)]),
        f"{MOST_VALUES + 1} values in node affinity, the limit is {MOST_VALUES}",
    ),
    "host ports": (
        exposing(MOST_PORTS, hostPort=7),
        exposing(MOST_PORTS + 1, hostPort=7),
        f"{MOST_PORTS + 1} host ports, the limit is {MOST_PORTS}",
    ),
    "ports in the host's network": (
        exposing(MOST_PORTS) | {"hostNetwork": True},
        exposing(MOST_PORTS + 1) | {"hostNetwork": True},
        f"{MOST_PORTS + 1} host ports",
    ),
    "tolerations": (
        {"tolerations": [{"operator": "Exists"}] * MOST_TOLERATIONS},
        {"tolerations": [{"operator": "Exists"}] * (MOST_TOLERATIONS + 1)},
        f"{MOST_TOLERATIONS + 1} tolerations, the limit is {MOST_TOLERATIONS}",
    ),
}


@pytest.mark.parametrize("story", WISHES)
def test_who_wants_more_than_anybody_can_weigh_is_refused(story: str) -> None:
    """One of 15,000 resources, or of 10,000 terms, kept all decisions waiting for seconds, or a minute."""
    enough, too_much, words = WISHES[story]
    assert complete(pod(**enough))
    assert f"spec: {words}" in refusal(pod(**too_much))
    asked = task("w", 1)
    asked["template"]["spec"] |= too_much
    assert words in job_refusal(job(asked))


@pytest.mark.parametrize("story", WISHES)
def test_one_that_came_all_the_same_is_no_member_until_it_has_less(story: str) -> None:
    """Past a door that is older, say. What was let go keeps what it has: the pin stands in each term."""
    enough, too_much, words = WISHES[story]
    member = pod_codec.pod(build.pod(spec=enough), build.TABLE)
    assert member.problem == ""
    gated = pod_codec.pod(build.pod(spec=too_much), build.TABLE)
    assert words in gated.problem
    shape = gated.pod.shape
    assert not (shape.affinity_terms or shape.tolerations or shape.node_selector)
    for before in (None, gated):
        document = build.pod(spec=too_much | {"schedulingGates": []})
        assert pod_codec.pod(document, build.TABLE, before=before).problem == ""


def cards(count: int) -> str:
    return ", ".join(f"GPU-{number}" for number in range(count)) + ","


@pytest.mark.parametrize("name", CARD_LISTS)
def test_a_list_of_cards_has_an_end_in_whatever_spelling_and_whenever_it_is_written(name: str) -> None:
    """Some thousand cards, which who may patch pods writes onto one that waits, cost seconds each time."""
    words = f"{MOST_NAMED + 1} entries, the limit is {MOST_NAMED}"
    assert complete(pod(annotations={name: cards(MOST_NAMED)}))
    assert words in refusal(pod(annotations={name: cards(MOST_NAMED + 1)}))
    assert pod_codec.pod(build.pod(annotations={name: cards(MOST_NAMED)}), build.TABLE).problem == ""
    member = pod_codec.pod(build.pod(annotations={name: cards(MOST_NAMED + 1)}), build.TABLE)
    assert member.problem == f"annotation {name}: {words}"
    assert not (member.pod.shape.use_cards or member.pod.shape.avoid_cards)
    assert member.pod.gang == "default/g"


def test_nothing_is_planned_for_a_template_that_wants_too_much() -> None:
    asked = job(task("w", 2), queue="team")
    asked["metadata"] |= {"resourceVersion": "1"}
    asked["spec"]["tasks"][0]["template"]["metadata"] = {"labels": {names.MANAGED_LABEL: "true"}}
    assert enqueue.template(asked, build.TABLE) != NO_TEMPLATE
    template = asked["spec"]["tasks"][0]["template"]
    template["metadata"]["annotations"] = {names.USE_CARDS: cards(MOST_NAMED + 1)}
    assert enqueue.template(asked, build.TABLE) == NO_TEMPLATE
    del template["metadata"]["annotations"]
    template["spec"] |= WISHES["terms"][1]
    assert enqueue.template(asked, build.TABLE) == NO_TEMPLATE


@pytest.mark.parametrize(
    "odd",
    [
        {"affinity": {"nodeAffinity": "words"}},
        affinity([1]),  # type: ignore[list-item]
        {"containers": [None, {"resources": {"limits": [1]}}], "tolerations": {"a": 1}, "nodeSelector": "x"},
        {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [1]}}},
        {"containers": [{"ports": "words"}, {"ports": [None, 7]}]},
        exposing(MOST_PORTS + 1),
    ],
)
def test_what_a_template_may_hold_is_counted_as_it_comes(odd: Json) -> None:
    assert excess(odd) == ""
