"""Rules between pods as specs write them: which are read, and what they say about the pod itself."""

from typing import Any

import pytest
from vc_egpu.core.model.neighbours import NO_NEIGHBOURS, Neighbours, Spread
from vc_egpu.volcano.podspec import neighbours
from vc_egpu.volcano.podspec.neighbours import HOSTNAME, MOST_RULES, read
from vc_egpu.volcano.podspec.node_wishes import excess, without_wishes
from vc_egpu.volcano.podspec.selectors import NAME_LABEL

ZONE = "topology.kubernetes.io/zone"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
WEB = {"app": "web", "pod-template-hash": "abc"}
OWN = {"matchLabels": {"app": "web"}}


def avoiding(*terms: dict[str, Any]) -> dict[str, Any]:
    written = [{"topologyKey": HOSTNAME, "labelSelector": OWN, **term} for term in terms]
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": written}}}


def needing(*terms: dict[str, Any]) -> dict[str, Any]:
    written = [{"topologyKey": HOSTNAME, "labelSelector": OWN, **term} for term in terms]
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": written}}}


def spread(**more: Any) -> dict[str, Any]:
    rule = {"topologyKey": HOSTNAME, "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 1, "labelSelector": OWN}
    return {"topologySpreadConstraints": [{**rule, **more}]}


def said(spec: dict[str, Any], labels: dict[str, str] | None = None) -> Neighbours:
    return read(spec, WEB if labels is None else labels, "default")[0]


def test_a_rule_that_selects_the_pod_itself() -> None:
    (key,) = said(avoiding({})).avoids
    assert said(avoiding({})) == Neighbours((key,), (), (key,))
    assert said(avoiding({}), {"app": "db"}) == Neighbours((key,), (), ())
    assert said(spread(maxSkew=2)) == Neighbours((), (Spread(f"~{key}", 2),), (f"~{key}",))
    assert said(spread(minDomains=2)).spreads == (Spread(f"~{key}", 1, capped=True, min_domains=2),)
    assert said(needing({})) == Neighbours((), (), (f"&{key}",), (f"&{key}",), needs_itself=True)
    assert said(needing({}), {"app": "db"}) == Neighbours((), (), (), (f"&{key}",))


def test_a_pod_that_no_scheduler_sees_pinned_has_no_cap_of_its_own() -> None:
    found = read(spread(minDomains=2), WEB, "default", pinned=False)[0]
    assert found.spreads == (Spread(found.selected_by[0], 1, min_domains=2),)


def test_other_labels_of_nodes_are_in_the_key() -> None:
    (key,), (by_zone,) = said(avoiding({})).avoids, said(avoiding({"topologyKey": ZONE})).avoids
    assert by_zone == f"{key}@{ZONE}"
    assert said(spread(topologyKey=ZONE)).spreads == (Spread(f"~{by_zone}", 1),)


def test_who_is_near_counts_only_if_it_fulfils_all_terms() -> None:
    other = {"labelSelector": {"matchLabels": {"tier": "front"}}, "topologyKey": ZONE}
    rules = dict(read(needing({}, other), WEB, "default")[1])
    assert len(rules) == 2, "one for each label of nodes"
    for selection in rules.values():
        assert not selection.matches(WEB, "default", {})
        assert selection.matches({**WEB, "tier": "front"}, "default", {})
        assert not selection.matches({**WEB, "tier": "front"}, "other", {})


@pytest.mark.parametrize(
    ("term", "namespace", "its_labels", "selected"),
    [
        ({}, "default", {}, True),
        ({}, "other", {}, False),
        ({"namespaces": ["other"]}, "default", {}, False),
        ({"namespaces": ["other"]}, "other", {}, True),
        ({"namespaceSelector": {}}, "other", {}, True),
        ({"namespaceSelector": {"matchLabels": {"team": "a"}}}, "other", {"team": "a"}, True),
        ({"namespaceSelector": {"matchLabels": {"team": "a"}}}, "default", {"team": "b"}, False),
        (
            {"namespaceSelector": {"matchLabels": {"team": "a"}}, "namespaces": ["b"]},
            "b",
            {"team": "b"},
            True,
        ),
        ({"namespaceSelector": {"matchLabels": {NAME_LABEL: "other"}}}, "other", {}, True),
    ],
)
def test_a_term_names_the_namespaces_of_the_pods(
    term: dict[str, Any], namespace: str, its_labels: dict[str, str], selected: bool
) -> None:
    ((_, selection),) = read(avoiding(term), WEB, "default")[1]
    assert selection.matches(WEB, namespace, its_labels) is selected


def test_what_is_only_preferred_has_a_weight() -> None:
    term = {"topologyKey": ZONE, "labelSelector": OWN}
    wish = {PREFERRED: [{"weight": 7, "podAffinityTerm": term}]}
    found = said({"affinity": {"podAffinity": wish, "podAntiAffinity": wish}})
    (first, second) = found.likes
    assert first[0] == second[0] and {first[1], second[1]} == {7, -7}
    assert found.marks
    assert not found.limits
    (rule,) = said(spread(whenUnsatisfiable="ScheduleAnyway")).evens
    assert rule in said(spread()).selected_by


def test_a_spread_of_all_pods_counts_none() -> None:
    """kube-scheduler has it so: a selector that selects everything counts no pod."""
    assert said(spread(labelSelector={})).spreads == (Spread("~", 1, itself=False),)
    assert said(spread(labelSelector=None)).spreads == (Spread("~", 1, itself=False),)


def test_policies_of_a_spread() -> None:
    found = said(spread(nodeAffinityPolicy="Ignore", nodeTaintsPolicy="Honor", minDomains=3)).spreads[0]
    assert (found.by_affinity, found.by_taints, found.capped) == (False, True, False)


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
        avoiding({"labelSelector": None}),
        {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}},
        {"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}}},
    ],
)
def test_what_selects_nothing_says_nothing(spec: dict[str, Any]) -> None:
    assert read(spec, WEB, "default") == (NO_NEIGHBOURS, ())


MANY = [{"key": "k", "operator": "In", "values": [str(n) for n in range(neighbours.MOST_VALUES + 1)]}]


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (avoiding(*[{}] * (MOST_RULES + 1)), "17 rules between pods"),
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
