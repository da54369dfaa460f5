"""Which way a pod goes: ours only where the decision sees all that a scheduler would see."""

from typing import Any

import pytest
from vc_egpu.volcano.podspec.way import Way, is_direct, waits_for_us, way_of
from vc_egpu.volcano.words import names

PLAIN: dict[str, Any] = {
    "containers": [{"name": "main", "image": "train"}],
    "initContainers": [{"name": "fetch", "image": "fetch"}],
    "restartPolicy": "Never",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "serviceAccountName": "default",
    "automountServiceAccountToken": True,
    "securityContext": {"runAsNonRoot": True},
    "schedulerName": "default-scheduler",
    "nodeSelector": {"zone": "a"},
    "tolerations": [{"operator": "Exists"}],
    "priority": -10,
    "priorityClassName": "egpu-low",
    "preemptionPolicy": "Never",
    "enableServiceLinks": False,
    "runtimeClassName": "nvidia",
    "overhead": {"cpu": "100m"},
    "hostNetwork": True,
    "nodeName": "",
    "resourceClaims": [],
}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
TERM: dict[str, Any] = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}
NEWER = {"matchExpressions": [{"key": "app", "operator": "Near"}]}
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def volumes(*found: dict[str, Any]) -> dict[str, Any]:
    return {"volumes": [{"name": f"v{number}", **one} for number, one in enumerate(found)]}


@pytest.mark.parametrize(
    "more",
    [
        {},
        volumes({"emptyDir": {}}, {"configMap": {"name": "c"}}, {"secret": {"secretName": "s"}}),
        volumes({"projected": {"sources": []}}, {"downwardAPI": {}}, {"hostPath": {"path": "/data"}}),
        volumes({"nfs": {"server": "s", "path": "/"}}, {"csi": {"driver": "secrets"}}),
        {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": []}]}}}},
        {"affinity": {"podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": {}}]}}},
        {"affinity": {"podAffinity": {REQUIRED: []}}},
        {"affinity": None, "volumes": None, "topologySpreadConstraints": None},
        {"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]},
        {"affinity": {"podAntiAffinity": {REQUIRED: [{**TERM, "namespaceSelector": {}}]}}},
        {"affinity": {"podAffinity": {REQUIRED: [{**TERM, "matchLabelKeys": ["a"], "namespaces": ["b"]}]}}},
        {"topologySpreadConstraints": [{**TERM, "maxSkew": 1, "minDomains": 2, "nodeTaintsPolicy": "Honor"}]},
        {"schedulingGates": [{"name": "example.com/wait"}]},
        {"os": {"name": "linux"}},
    ],
)
def test_what_the_decision_sees_whole_goes_the_direct_way(more: dict[str, Any]) -> None:
    assert way_of({**PLAIN, **more}).way is Way.DIRECT
    assert way_of({**PLAIN, **more}).because == ""


@pytest.mark.parametrize(
    ("more", "because"),
    [
        (volumes({"persistentVolumeClaim": {"claimName": "data"}}), "volume 'v0' (persistentVolumeClaim)"),
        (volumes({"emptyDir": {}}, {"ephemeral": {}}), "volume 'v1' (ephemeral)"),
        (volumes({"awsElasticBlockStore": {}}), "awsElasticBlockStore"),
        (volumes({"somethingNew": {}}), "somethingNew"),
        ({"affinity": {"podAntiAffinity": {REQUIRED: [{}]}}}, "spec.affinity.podAntiAffinity"),
        ({"affinity": {"podAffinity": {REQUIRED: [{}]}}}, "spec.affinity.podAffinity"),
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]}, "topologySpread"),
        ({"topologySpreadConstraints": [{**TERM, "wordOfTomorrow": 1}]}, "Constraints.wordOfTomorrow"),
        ({"affinity": {"podAffinity": {REQUIRED: [{**TERM, "labelSelector": NEWER}]}}}, "operator 'Near'"),
        ({"topologySpreadConstraints": [{}]}, "topologySpread"),
        ({"resourceClaims": [{"name": "nic"}]}, "spec.resourceClaims"),
        ({"fieldOfTomorrow": {"hard": True}}, "spec.fieldOfTomorrow"),
    ],
)
def test_all_else_goes_by_a_scheduler_and_says_why(more: dict[str, Any], because: str) -> None:
    choice = way_of({**PLAIN, **more})
    assert choice.way is Way.SCHEDULER
    assert because in choice.because


def test_the_operator_may_want_a_scheduler_for_all() -> None:
    choice = way_of(PLAIN, by_scheduler=True)
    assert (choice.way, choice.because) == (Way.SCHEDULER, "the operator's setting is binder: scheduler")


@pytest.mark.parametrize(
    ("spec", "waits"),
    [
        ({"schedulerName": names.SCHEDULER_DIRECT}, True),
        ({"schedulerName": names.SCHEDULER_DIRECT, "nodeName": "n1"}, False),
        ({"schedulerName": "default-scheduler", "schedulingGates": [{"name": names.GATE}]}, True),
        ({"schedulingGates": [{"name": "example.com/wait"}]}, False),
        ({"schedulerName": "default-scheduler"}, False),
        ({}, False),
    ],
)
def test_a_pod_waits_for_us_behind_our_gate_or_under_our_name(spec: dict[str, Any], waits: bool) -> None:
    assert waits_for_us(spec) is waits
    assert is_direct(spec) is (spec.get("schedulerName") == names.SCHEDULER_DIRECT)
