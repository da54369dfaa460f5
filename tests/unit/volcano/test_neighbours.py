"""Rules between pods as specs write them: which are read, and what they say about the pod itself."""

from typing import Any

import pytest
from vc_egpu.core.model.neighbours import NO_NEIGHBOURS, Neighbours, Spread
from vc_egpu.volcano.podspec import neighbours
from vc_egpu.volcano.podspec.neighbours import HOSTNAME, MOST_RULES, read
from vc_egpu.volcano.podspec.node_wishes import excess, without_wishes

WEB = {"app": "web", "pod-template-hash": "abc"}
OWN = {"matchLabels": {"app": "web"}}


def avoiding(*terms: dict[str, Any]) -> dict[str, Any]:
    written = [{"topologyKey": HOSTNAME, "labelSelector": OWN, **term} for term in terms]
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": written}}}


def spread(**more: Any) -> dict[str, Any]:
    rule = {"topologyKey": HOSTNAME, "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 1, "labelSelector": OWN}
    return {"topologySpreadConstraints": [{**rule, **more}]}


def said(spec: dict[str, Any], labels: dict[str, str] | None = None) -> Neighbours:
    return read(spec, WEB if labels is None else labels, "default")[0]


def test_a_rule_that_selects_the_pod_itself() -> None:
    (key,) = said(avoiding({})).avoids
    assert said(avoiding({})) == Neighbours((key,), (), (key,))
    assert said(avoiding({}), {"app": "db"}) == Neighbours((key,), (), ())
    assert said(spread(maxSkew=2)) == Neighbours((), (Spread(key, 2),), (key,))
    assert said(spread(minDomains=2)).spread == Spread(key, 1, capped=True)


@pytest.mark.parametrize(
    "same",
    [
        {"labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}},
        {"labelSelector": {"matchLabels": {"app": "web"}, "matchExpressions": []}},
        {"namespaces": ["default"]},
        {"namespaces": []},
        {"matchLabelKeys": ["no-such-label"]},
    ],
)
def test_selectors_that_say_the_same_have_one_key(same: dict[str, Any]) -> None:
    assert said(avoiding(same)) == said(avoiding({}))


@pytest.mark.parametrize(
    "other",
    [
        {"labelSelector": {"matchLabels": {"app": "db"}}},
        {"labelSelector": {}},
        {"matchLabelKeys": ["pod-template-hash"]},
        {"mismatchLabelKeys": ["pod-template-hash"]},
    ],
)
def test_other_selectors_have_another_key(other: dict[str, Any]) -> None:
    assert said(avoiding(other)).avoids != said(avoiding({})).avoids


def test_namespaces_have_keys_of_their_own() -> None:
    assert read(avoiding({}), WEB, "a")[0].avoids != read(avoiding({}), WEB, "b")[0].avoids


@pytest.mark.parametrize(
    "spec",
    [
        {},
        avoiding({"topologyKey": "topology.kubernetes.io/zone"}),
        avoiding({"namespaces": ["other"]}),
        avoiding({"namespaces": ["default", "other"]}),
        avoiding({"namespaceSelector": {}}),
        avoiding({"labelSelector": None}),
        spread(whenUnsatisfiable="ScheduleAnyway"),
        spread(topologyKey="topology.kubernetes.io/zone"),
        spread(labelSelector={"matchLabels": {"app": "db"}}),
        {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}},
        {"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}}},
    ],
)
def test_what_is_left_to_the_scheduler_says_nothing(spec: dict[str, Any]) -> None:
    assert read(spec, WEB, "default") == (NO_NEIGHBOURS, ())


MANY = [{"key": "k", "operator": "In", "values": [str(n) for n in range(neighbours.MOST_VALUES + 1)]}]


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (avoiding(*[{}] * (MOST_RULES + 1)), "17 rules by node"),
        (avoiding({"labelSelector": {"matchExpressions": MANY}}), "1025 values"),
        (spread(labelSelector={"matchLabels": {str(n): "" for n in range(257)}}), "257 requirements"),
        (avoiding({"matchLabelKeys": [str(n) for n in range(256)]}), "257 requirements"),
    ],
)
def test_too_many_are_refused_at_the_door_and_not_read(spec: dict[str, Any], text: str) -> None:
    assert text in excess(spec)
    assert said(spec) is NO_NEIGHBOURS
    assert "topologySpreadConstraints" not in without_wishes({"metadata": {}, "spec": spec})["spec"]


@pytest.mark.parametrize("odd", [7, "x", [7], {"podAntiAffinity": 7}, {"podAntiAffinity": {}}])
def test_values_of_another_kind_are_passed_over(odd: Any) -> None:
    assert read({"affinity": odd, "topologySpreadConstraints": odd}, WEB, "default")[0] is NO_NEIGHBOURS
    assert excess({"affinity": odd, "topologySpreadConstraints": odd}) == ""
