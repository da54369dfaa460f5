"""The admission controller on a real API server and the real kube-scheduler, with simulated nodes."""

import os
import signal
import threading
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from admission_rig import SYSTEM, Gang, Rig, StandIn, admitted, pod, rig
from stack.hostprocess import HostProcess
from vc_egpu.kube.resources import CONFIG_MAPS, DEPLOYMENTS, NODES, POD_GROUPS, PODS
from vc_egpu.volcano import names
from vc_egpu.volcano.annotations import Cards

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]
Json = dict[str, Any]


@pytest.fixture(scope="module")
def one_rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """Two nodes of four cards."""
    models = tmp_path_factory.mktemp("admission") / "models.yaml"
    with rig("admission", 2, 4, models=models) as found:
        yield found


@pytest.fixture
def world(one_rig: Rig) -> Iterator[Rig]:
    """A clean cluster with one queue and a controller; the invariants hold at the end."""
    one_rig.queue()
    one_rig.controller().start()
    yield one_rig
    one_rig.check()
    one_rig.stop_all()
    one_rig.clean()


def cards_of(found: Json) -> Cards:
    return Cards.decode(found["metadata"]["annotations"][names.CARDS])


def placed(pods: dict[str, Json]) -> dict[str, list[str]]:
    """Pod name to its cards."""
    return {
        name: [share.uuid for shares in cards_of(found).containers.values() for share in shares]
        for name, found in pods.items()
    }


def test_a_gang_is_admitted_whole_pinned_and_bound_where_planned(world: Rig) -> None:
    gang = Gang("whole", 4, memory_mib=60000, cores=60)
    world.submit(gang)
    bound = world.until_bound(gang)
    assert len({card for cards in placed(bound).values() for card in cards}) == 4
    for found in bound.values():
        cards = cards_of(found)
        assert found["spec"]["nodeName"] == cards.node
        assert cards.pod_uid == found["metadata"]["uid"]
        assert not found["spec"].get("schedulingGates")
    group = world.api.get(POD_GROUPS, gang.name, gang.namespace)
    plan = orjson.loads(group["metadata"]["annotations"][names.PLAN])
    assert plan["group"] == group["metadata"]["uid"]
    assert {cards_of(found).plan_id for found in bound.values()} == {plan["id"]}
    condition = admitted(group)
    assert condition is not None
    assert (condition["status"], condition["reason"]) == ("True", "Admitted")


def test_a_gang_that_fits_in_part_starts_not_at_all_and_says_why(world: Rig) -> None:
    gang = Gang("toobig", 9, memory_mib=60000)
    world.submit(gang)
    condition = world.until_reason(gang, "WaitingForCards")
    assert "8 of 9" in condition["message"]

    def all_say_so(pods: dict[str, Json]) -> bool | None:
        said = [admitted(found) for found in pods.values()]
        return len(said) == 9 and all(c is not None and c["message"] == condition["message"] for c in said)

    world.kit.pods_until("every pod carries the same sentence", "default", all_say_so)
    assert all(found["spec"]["schedulingGates"] for found in world.pods_of(gang))


def test_members_are_waited_for(world: Rig) -> None:
    gang = Gang("late", 3, memory_mib=1000, min_member=4)
    world.submit(gang)
    assert "3 of 4" in world.until_reason(gang, "WaitingForMembers")["message"]
    world.make_anew(gang, 3)
    assert len(world.until_bound(gang, 4)) == 4


def test_a_cap_holds_and_raising_it_lets_the_gang_in(world: Rig) -> None:
    shares = names.shared_resource("h20")
    world.queue("small", **{shares: 2})
    inside, beyond = Gang("inside", 2, memory_mib=1000, queue="small"), Gang("beyond", 1, queue="small")
    world.submit(inside)
    world.until_bound(inside)
    world.submit(beyond)
    assert "2" in world.until_reason(beyond, "WaitingForQuota")["message"]
    world.cluster.kubectl(
        "patch", "queues.scheduling.volcano.sh", "small", "--type=merge",
        "-p", orjson.dumps({"spec": {"capability": {shares: "3"}}}).decode(),
    )  # fmt: skip
    world.until_bound(beyond)


def test_high_takes_time_of_low_on_the_same_card_and_nobody_dies(world: Rig) -> None:
    training = Gang("training", 8, memory_mib=40000, cores=100, priority="low")
    serving = Gang("serving", 2, memory_mib=30000, cores=50, priority="high")
    world.submit(training)
    before = world.until_bound(training)
    world.submit(serving)
    shared = placed(world.until_bound(serving))
    assert {card for cards in shared.values() for card in cards} <= {
        card for cards in placed(before).values() for card in cards
    }
    after = {found["metadata"]["uid"] for found in world.pods_of(training)}
    assert after == {found["metadata"]["uid"] for found in before.values()}


def test_high_evicts_one_low_gang_as_a_whole_and_it_comes_back(world: Rig) -> None:
    first = Gang("first", 4, memory_mib=60000, cores=100, priority="low")
    second = Gang("second", 4, memory_mib=60000, cores=100, priority="low")
    serving = Gang("urgent", 4, memory_mib=60000, cores=50, priority="high")
    with StandIn(world, first, second):
        uids = {}
        for gang in (first, second):
            world.submit(gang)
            uids[gang.name] = {found["metadata"]["uid"] for found in world.until_bound(gang).values()}
        world.submit(serving)
        world.until_bound(serving)
        alive = {g.name: {found["metadata"]["uid"] for found in world.pods_of(g)} for g in (first, second)}
        kept = [name for name, before in uids.items() if alive[name] == before]
        evicted = next(gang for gang in (first, second) if gang.name not in kept)
        assert len(kept) == 1, "one gang and only that one goes"
        world.until_reason(evicted, "WaitingForCards")
        world.check()
        world.end(serving)
        world.until_bound(evicted)


def test_a_lever_without_effect_is_followed_by_a_plain_eviction(world: Rig) -> None:
    low = Gang("stubborn", 8, memory_mib=60000, cores=100, priority="low")
    serving = Gang("pressing", 1, memory_mib=60000, cores=50, priority="high")
    with StandIn(world, low, pulls_lever=False):
        world.submit(low)
        world.until_bound(low)
        world.submit(serving)
        world.until_bound(serving, timeout_s=40)


def test_a_bare_pod_is_no_victim(world: Rig) -> None:
    for index in range(2):
        for card in range(4):
            gang = Gang(f"bare-{index}-{card}", 1, memory_mib=60000, cores=100, priority="low")
            world.api.create(POD_GROUPS, _group_without_job(gang))
            world.api.create(PODS, pod(gang, None, 0))
            world.until_bound(gang)
    serving = Gang("polite", 1, memory_mib=60000, cores=50, priority="high")
    world.submit(serving)
    assert "would not make room" in world.until_reason(serving, "WaitingForCards")["message"]


def _group_without_job(gang: Gang) -> Json:
    return {
        "apiVersion": POD_GROUPS.api_version,
        "kind": "PodGroup",
        "metadata": {"name": gang.name, "namespace": gang.namespace},
        "spec": {"minMember": 1, "queue": gang.queue},
        "status": {"phase": "Inqueue"},
    }


def test_replicas_of_a_deployment_are_admitted_singly(world: Rig) -> None:
    gang = Gang("web", 10, memory_mib=60000)
    template = pod(gang, None, 0)
    for key in (names.TASK_SPEC, names.TASK_INDEX, names.GROUP_NAME):
        template["metadata"]["annotations"].pop(key)
    template["spec"].pop("restartPolicy")
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": 10,
            "selector": {"matchLabels": {"gang": "web"}},
            "template": {"metadata": template["metadata"], "spec": template["spec"]},
        },
    }
    for key in ("name", "namespace", "ownerReferences"):
        template["metadata"].pop(key)
    world.api.create(DEPLOYMENTS, deployment)
    owner = world.kit.pods_until(
        "replicas",
        "default",
        lambda pods: next(iter(pods.values()))["metadata"]["ownerReferences"] if pods else None,
    )[0]
    group = _group_without_job(gang)
    group["metadata"]["name"] = f"podgroup-{owner['uid']}"
    world.api.create(POD_GROUPS, group)
    world.until_bound(gang, 8)
    assert sum(1 for found in world.pods_of(gang) if found["spec"].get("schedulingGates")) == 2
    world.api.delete(DEPLOYMENTS, "web", "default", propagation="Foreground")
    world.kit.pods_until("the replicas are gone", "default", lambda pods: not pods or None)


def test_members_without_cards_wait_and_go_with_their_gang(world: Rig) -> None:
    wide = Gang("wide", 10, memory_mib=60000, without_cards=1)
    mixed = Gang("mixed", 3, memory_mib=60000, without_cards=2)
    world.submit(wide)
    world.until_reason(wide, "WaitingForCards")
    assert all(found["spec"].get("schedulingGates") for found in world.pods_of(wide))
    world.submit(mixed)
    bound = world.until_bound(mixed)
    assert sum(1 for found in bound.values() if names.CARDS in found["metadata"]["annotations"]) == 1


def test_pods_without_a_podgroup_say_so(world: Rig) -> None:
    gang = Gang("lonely", 1)
    world.api.create(PODS, pod(gang, None, 0))

    def says_so(pods: dict[str, Json]) -> bool | None:
        found = admitted(pods.get("lonely-worker-0") or {})
        return (found is not None and "no PodGroup" in found["message"]) or None

    world.kit.pods_until("it says so", "default", says_so)
    world.api.create(POD_GROUPS, _group_without_job(gang))
    world.until_bound(gang)


def test_while_the_api_server_is_away_nothing_happens_and_then_all_goes_on(world: Rig) -> None:
    running, waiting = Gang("steady", 8, memory_mib=60000), Gang("patient", 1, memory_mib=60000)
    world.submit(running)
    before = {found["metadata"]["uid"] for found in world.until_bound(running).values()}
    world.submit(waiting)
    world.until_reason(waiting, "WaitingForCards")
    server = world.cluster.component("kube-apiserver").pid
    assert server is not None
    os.kill(server, signal.SIGSTOP)
    try:
        threading.Event().wait(30)
    finally:
        os.kill(server, signal.SIGCONT)
    world.kit.until("the API server answers", NODES, lambda nodes: bool(nodes) or None)
    assert {found["metadata"]["uid"] for found in world.pods_of(running)} == before
    world.end(running)
    world.until_bound(waiting, timeout_s=60)


def test_members_of_a_deleted_node_are_replaced_elsewhere(world: Rig) -> None:
    gang = Gang("moving", 4, memory_mib=60000)
    with StandIn(world, gang):
        world.submit(gang)
        [node] = {found["spec"]["nodeName"] for found in world.until_bound(gang).values()}
        saved = world.api.get(NODES, node)
        world.api.delete(NODES, node)

        def elsewhere(pods: dict[str, Json]) -> bool | None:
            there = [found["spec"].get("nodeName") for found in pods.values()]
            return len(there) == 4 and all(name and name != node for name in there)

        world.kit.until(
            "all run on the other node",
            PODS,
            elsewhere,
            namespace="default",
            label_selector="gang=moving",
            timeout_s=120,
        )
        world.check()
        for key in ("uid", "resourceVersion", "creationTimestamp"):
            saved["metadata"].pop(key, None)
        world.api.create(NODES, saved)
        world.end(gang)


def test_what_the_scheduler_does_not_bind_comes_back_after_thirty_seconds(world: Rig) -> None:
    apart = {
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"labelSelector": {"matchLabels": {"gang": "apart"}}, "topologyKey": "kubernetes.io/os"}
                ]
            }
        }
    }
    gang = Gang("apart", 2, memory_mib=1000, extra=apart)
    with StandIn(world, gang):
        world.submit(gang)
        began = time.monotonic()

        def rolled_back(groups: dict[str, Json]) -> str | None:
            annotations = (groups.get("apart") or {}).get("metadata", {}).get("annotations") or {}
            return annotations.get(names.ROLLED_BACK)

        text = world.kit.until(
            "it is rolled back", POD_GROUPS, rolled_back, timeout_s=90, namespace="default"
        )
        assert time.monotonic() - began > 25
        assert "not bound 30 s" in orjson.loads(text)["why"]
        world.until_reason(gang, "WaitingForCards")
        assert all(found["spec"].get("schedulingGates") for found in world.pods_of(gang))


def test_what_the_kubelet_refuses_comes_back_and_avoids_that_node(world: Rig) -> None:
    gang = Gang("refused", 2, memory_mib=60000)
    with StandIn(world, gang):
        world.submit(gang)
        bound = world.until_bound(gang)
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
        world.api.patch_status(PODS, "refused-worker-0", refusal, "default")

        def elsewhere(pods: dict[str, Json]) -> bool | None:
            anew = [found for found in pods.values() if found["metadata"]["uid"] not in first]
            return len(anew) == 2 and all(found["spec"].get("nodeName", node) != node for found in anew)

        world.kit.until(
            "the gang is elsewhere",
            PODS,
            elsewhere,
            namespace="default",
            label_selector="gang=refused",
            timeout_s=60,
        )
        world.end(gang)


def test_a_pod_that_was_bound_without_a_plan_is_removed(world: Rig) -> None:
    gang = Gang("sneaky", 1, memory_mib=1000)
    forged = pod(gang, None, 0)
    forged["spec"].pop("schedulingGates")
    forged["spec"]["nodeName"] = "kwok-0"
    world.api.create(PODS, forged)
    world.kit.pods_until("it is removed", "default", lambda pods: not pods or None)


def test_a_malformed_request_is_named_on_the_pod_and_stops_nobody(world: Rig) -> None:
    bad, good = Gang("bad", 1), Gang("good", 1, memory_mib=1000)
    broken = pod(bad, None, 0)
    broken["metadata"]["annotations"][names.REQUEST] = '{"containers":{"main":{"model":"h20","cards":-1}}}'
    world.api.create(POD_GROUPS, _group_without_job(bad))
    world.api.create(PODS, broken)

    def named(pods: dict[str, Json]) -> str | None:
        found = admitted(pods.get("bad-worker-0") or {})
        return str(found["message"]) if found and "malformed" in found["message"] else None

    assert "containers.main.cards" in world.kit.pods_until("it says what is wrong", "default", named)
    world.submit(good)
    world.until_bound(good)


def test_a_forged_or_foreign_plan_is_stripped_and_nothing_follows_it(world: Rig) -> None:
    gang = Gang("forged", 2, memory_mib=1000, min_member=3)
    world.submit(gang)
    world.until_reason(gang, "WaitingForMembers")
    for text in ("{", '{"version":1,"id":"0-1","group":"someone-else","state":"ready"}'):
        world.api.patch(POD_GROUPS, gang.name, {"metadata": {"annotations": {names.PLAN: text}}}, "default")
        world.kit.until(
            "the plan is stripped",
            POD_GROUPS,
            lambda groups: names.PLAN not in (groups["forged"]["metadata"].get("annotations") or {}) or None,
            namespace="default",
        )
    assert all(found["spec"]["schedulingGates"] for found in world.pods_of(gang))


def test_the_switch_stops_what_is_new_and_nothing_else(world: Rig) -> None:
    running, late = Gang("running", 1, memory_mib=1000), Gang("stopped", 1, memory_mib=1000)
    world.submit(running)
    world.until_bound(running)
    switch = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": names.SWITCHES_CONFIG_MAP, "namespace": SYSTEM},
        "data": {"stopAdmitting": "true"},
    }
    world.api.create(CONFIG_MAPS, switch)
    world.submit(late)
    assert "stopped" in world.until_reason(late, "WaitingForGate")["message"]
    assert world.pods_of(running)[0]["spec"]["nodeName"]
    world.api.delete(CONFIG_MAPS, names.SWITCHES_CONFIG_MAP, SYSTEM)
    world.until_bound(late)


def test_metrics_and_the_view_tell_who_is_where(world: Rig) -> None:
    world.processes["admission"].stop()
    process = _with_port(world, 19446)
    gang = Gang("seen", 2, memory_mib=30000, cores=30)
    world.submit(gang)
    world.until_bound(gang)
    metrics = _get(19446, "/metrics").decode()
    assert 'egpu_queue_used{queue="team",resource="volcano.sh/vgpu-h20"} 2.0' in metrics
    assert "egpu_share_memory_mib{" in metrics
    view = orjson.loads(_get(19446, "/v1/snapshot"))
    on_cards = [share["pod"] for card in view["cards"] for share in card["shares"]]
    assert sorted(on_cards) == ["seen-worker-0", "seen-worker-1"]
    assert _get(19446, "/healthz") == b"ok\n"
    process.stop()


def _with_port(world: Rig, port: int) -> HostProcess:
    process = world.controller("with-port", "--port", str(port), "--bind-address", "127.0.0.1")
    process.start()
    return process


def _get(port: int, path: str) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        body: bytes = answer.read()
    return body


def test_draining_leaves_no_pod_gated(world: Rig) -> None:
    gang = Gang("left", 9, memory_mib=98304)
    world.submit(gang)
    world.until_reason(gang, "WaitingForCards")
    world.processes["admission"].stop()
    drain = world.controller("drain", "--drain")
    drain.start()
    world.kit.pods_until(
        "no gate is left",
        "default",
        lambda pods: not any(found["spec"].get("schedulingGates") for found in pods.values()) or None,
    )
    world.end(gang)
