"""The admission controller on a real API server and the real kube-scheduler, with simulated nodes.

What goes wrong around it: ``test_admission_trouble.py``.
"""

import urllib.request
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from localcluster.net import free_ports
from rigs.admission import SYSTEM, Rig, StandInController, rig
from rigs.gangs import Gang, admitted, pod, podgroup
from vc_egpu.kube.resources import CONFIG_MAPS, DEPLOYMENTS, POD_GROUPS, PODS
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
    with one_rig.story():
        one_rig.controller().start()
        yield one_rig


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
    with StandInController(world, first, second):
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
    with StandInController(world, low, pulls_lever=False):
        world.submit(low)
        world.until_bound(low)
        world.submit(serving)
        world.until_bound(serving, timeout_s=40)


def test_a_bare_pod_is_no_victim(world: Rig) -> None:
    for index in range(2):
        for card in range(4):
            gang = Gang(f"bare-{index}-{card}", 1, memory_mib=60000, cores=100, priority="low")
            world.api.create(POD_GROUPS, podgroup(gang))
            world.api.create(PODS, pod(gang))
            world.until_bound(gang)
    serving = Gang("polite", 1, memory_mib=60000, cores=50, priority="high")
    world.submit(serving)
    assert "would not make room" in world.until_reason(serving, "WaitingForCards")["message"]


def test_replicas_of_a_deployment_are_admitted_singly(world: Rig) -> None:
    gang = Gang("web", 10, memory_mib=60000, min_member=1)
    template = pod(gang)
    for key in (names.TASK_SPEC, names.TASK_INDEX, names.GROUP_NAME):
        template["metadata"]["annotations"].pop(key)
    for key in ("name", "namespace", "ownerReferences"):
        template["metadata"].pop(key)
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
    world.api.create(DEPLOYMENTS, deployment)
    owner = world.kit.pods_until(
        "replicas",
        "default",
        lambda pods: next(iter(pods.values()))["metadata"]["ownerReferences"] if pods else None,
    )[0]
    group = podgroup(gang)
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
    world.api.create(PODS, pod(gang))

    def says_so(pods: dict[str, Json]) -> bool | None:
        found = admitted(pods.get("lonely-worker-0") or {})
        return (found is not None and "no PodGroup" in found["message"]) or None

    world.kit.pods_until("it says so", "default", says_so)
    world.api.create(POD_GROUPS, podgroup(gang))
    world.until_bound(gang)


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
    (port,) = free_ports(1, set())
    process = world.controller("with-port", "--port", str(port), "--bind-address", "127.0.0.1")
    process.start()
    gang = Gang("seen", 2, memory_mib=30000, cores=30)
    world.submit(gang)
    world.until_bound(gang)
    metrics = _get(port, "/metrics").decode()
    assert 'egpu_queue_used{queue="team",resource="volcano.sh/vgpu-h20"} 2.0' in metrics
    assert "egpu_share_memory_mib{" in metrics
    view = orjson.loads(_get(port, "/v1/snapshot"))
    on_cards = [share["pod"] for card in view["cards"] for share in card["shares"]]
    assert sorted(on_cards) == ["seen-worker-0", "seen-worker-1"]
    assert _get(port, "/healthz") == b"ok\n"
    process.stop()


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
