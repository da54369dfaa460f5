"""What goes wrong around the admission controller: the API server and nodes go, others refuse or forge."""

import time
from typing import Any

import orjson
import pytest
from rigs.admission import Rig, StandInController
from rigs.gangs import Gang, admitted, pod, podgroup
from stack.kit import is_gated
from vc_egpu.kube.resources import NODES, POD_GROUPS, PODS
from vc_egpu.volcano.words import names

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]
OUTAGE_S = 30.0
"""Twice as long as a leader's lease, so that nobody leads meanwhile."""
Json = dict[str, Any]


def test_while_the_api_server_is_away_nothing_happens_and_then_all_goes_on(managed: Rig) -> None:
    running, waiting = Gang("steady", 8, memory_mib=60000), Gang("patient", 1, memory_mib=60000)
    managed.submit(running)
    before = {found["metadata"]["uid"] for found in managed.until_bound(running).values()}
    managed.submit(waiting)
    managed.until_reason(waiting, "WaitingForCards")
    server = managed.cluster.component("kube-apiserver")
    server.pause()
    time.sleep(OUTAGE_S)
    server.resume()
    managed.kit.until("the API server answers", NODES, lambda nodes: bool(nodes) or None)
    assert {found["metadata"]["uid"] for found in managed.pods_of(running)} == before
    managed.end(running)
    managed.until_bound(waiting, timeout_s=60)


def test_members_of_a_deleted_node_are_replaced_elsewhere(managed: Rig) -> None:
    gang = Gang("moving", 4, memory_mib=60000)
    with StandInController(managed, gang):
        managed.submit(gang)
        [node] = {found["spec"]["nodeName"] for found in managed.until_bound(gang).values()}
        saved = managed.api.get(NODES, node)
        managed.api.delete(NODES, node)

        def elsewhere(pods: dict[str, Json]) -> bool | None:
            there = [found["spec"].get("nodeName") for found in pods.values()]
            return len(there) == 4 and all(name and name != node for name in there)

        managed.kit.until(
            "all run on the other node",
            PODS,
            elsewhere,
            namespace="default",
            label_selector="gang=moving",
            timeout_s=120,
        )
        managed.check()
        for key in ("uid", "resourceVersion", "creationTimestamp"):
            saved["metadata"].pop(key, None)
        managed.api.create(NODES, saved)
        managed.end(gang)


def test_what_the_scheduler_does_not_bind_comes_back_after_thirty_seconds(managed: Rig) -> None:
    claims = {"resourceClaims": [{"name": "nic", "resourceClaimName": "no-such-claim"}]}
    gang = Gang("apart", 2, memory_mib=1000, extra=claims)
    with StandInController(managed, gang):
        managed.submit(gang)
        began = time.monotonic()

        def rolled_back(groups: dict[str, Json]) -> str | None:
            annotations = (groups.get("apart") or {}).get("metadata", {}).get("annotations") or {}
            return annotations.get(names.ROLLED_BACK)

        text = managed.kit.until(
            "it is rolled back", POD_GROUPS, rolled_back, timeout_s=90, namespace="default"
        )
        assert time.monotonic() - began > 25
        assert "not bound 30 s" in orjson.loads(text)["why"]
        managed.until_reason(gang, "WaitingForCards")
        assert all(map(is_gated, managed.pods_of(gang)))


def test_what_the_kubelet_refuses_comes_back_and_avoids_that_node(managed: Rig) -> None:
    gang = Gang("refused", 2, memory_mib=60000)
    with StandInController(managed, gang):
        managed.submit(gang)
        bound = managed.until_bound(gang)
        [node] = {found["spec"]["nodeName"] for found in bound.values()}
        first = {found["metadata"]["uid"] for found in bound.values()}
        refusal = {
            "status": {
                "phase": "Failed",
                "reason": "UnexpectedAdmissionError",
                "message": "Allocate failed",
                "containerStatuses": None,
            }
        }
        managed.api.patch_status(PODS, "refused-worker-0", refusal, "default")

        def elsewhere(pods: dict[str, Json]) -> bool | None:
            anew = [found for found in pods.values() if found["metadata"]["uid"] not in first]
            return len(anew) == 2 and all(found["spec"].get("nodeName", node) != node for found in anew)

        managed.kit.until(
            "the gang is elsewhere",
            PODS,
            elsewhere,
            namespace="default",
            label_selector="gang=refused",
            timeout_s=60,
        )
        managed.end(gang)


@pytest.mark.parametrize("by_scheduler", [False, True], ids=["direct", "by a scheduler"])
def test_a_pod_that_was_bound_without_a_plan_is_removed(managed: Rig, by_scheduler: bool) -> None:
    gang = Gang("sneaky", 1, memory_mib=1000, by_scheduler=by_scheduler)
    forged = pod(gang)
    forged["spec"].pop("schedulingGates", None)
    forged["spec"]["nodeName"] = "kwok-0"
    managed.api.create(PODS, forged)
    managed.kit.pods_until("it is removed", "default", lambda pods: not pods or None)


def test_a_malformed_request_is_named_on_the_pod_and_stops_nobody(managed: Rig) -> None:
    bad, good = Gang("bad", 1), Gang("good", 1, memory_mib=1000)
    broken = pod(bad)
    broken["metadata"]["annotations"][names.REQUEST] = '{"containers":{"main":{"model":"h20","cards":-1}}}'
    managed.api.create(POD_GROUPS, podgroup(bad))
    managed.api.create(PODS, broken)

    def named(pods: dict[str, Json]) -> str | None:
        found = admitted(pods.get("bad-worker-0") or {})
        return str(found["message"]) if found and "malformed" in found["message"] else None

    assert "containers.main.cards" in managed.kit.pods_until("it says what is wrong", "default", named)
    managed.submit(good)
    managed.until_bound(good)


def test_a_forged_or_foreign_plan_is_stripped_and_nothing_follows_it(managed: Rig) -> None:
    gang = Gang("forged", 2, memory_mib=1000, min_member=3)
    managed.submit(gang)
    managed.until_reason(gang, "WaitingForMembers")
    for text in ("{", '{"version":1,"id":"0-1","group":"someone-else","state":"ready"}'):
        managed.api.patch(POD_GROUPS, gang.name, {"metadata": {"annotations": {names.PLAN: text}}}, "default")
        managed.kit.until(
            "the plan is stripped",
            POD_GROUPS,
            lambda groups: names.PLAN not in (groups["forged"]["metadata"].get("annotations") or {}) or None,
            namespace="default",
        )
    assert all(map(is_gated, managed.pods_of(gang)))
