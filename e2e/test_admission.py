"""The admission controller on a real API server and the real kube-scheduler, with simulated nodes.

What goes wrong around it: ``test_admission_trouble.py``.
"""

import urllib.request
from typing import Any

import orjson
import pytest
from localcluster.net import free_ports
from rigs.admission import SYSTEM, Rig, StandInController
from rigs.gangs import Gang, admitted, pod, podgroup
from stack.kit import is_gated
from vc_egpu.kube.resources import CONFIG_MAPS, DEPLOYMENTS, DISRUPTION_BUDGETS, POD_GROUPS, PODS
from vc_egpu.report import snapshot_codec
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import Cards

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]
Json = dict[str, Any]


def cards_of(found: Json) -> Cards:
    return Cards.decode(found["metadata"]["annotations"][names.CARDS])


def placed(pods: dict[str, Json]) -> dict[str, list[str]]:
    """Pod name to its cards."""
    return {
        name: [share.uuid for shares in cards_of(found).containers.values() for share in shares]
        for name, found in pods.items()
    }


@pytest.mark.parametrize("by_scheduler", [False, True], ids=["direct", "by a scheduler"])
def test_a_gang_is_admitted_whole_and_bound_where_planned(managed: Rig, by_scheduler: bool) -> None:
    gang = Gang("whole", 4, memory_mib=60000, cores=60, by_scheduler=by_scheduler)
    managed.submit(gang)
    bound = managed.until_bound(gang)
    assert len({card for cards in placed(bound).values() for card in cards}) == 4
    for found in bound.values():
        cards = cards_of(found)
        assert found["spec"]["nodeName"] == cards.node
        assert cards.pod_uid == found["metadata"]["uid"]
        assert not is_gated(found)
    group = managed.api.get(POD_GROUPS, gang.name, gang.namespace)
    plan = orjson.loads(group["metadata"]["annotations"][names.PLAN])
    assert plan["group"] == group["metadata"]["uid"]
    assert "managedFields" not in group["metadata"], "nobody applies it"
    assert {cards_of(found).plan_id for found in bound.values()} == {plan["id"]}
    condition = admitted(group)
    assert condition is not None
    assert (condition["status"], condition["reason"]) == ("True", "Admitted")


def test_a_gang_that_fits_in_part_starts_not_at_all_and_says_why(managed: Rig) -> None:
    gang = Gang("toobig", 9, memory_mib=60000)
    managed.submit(gang)
    condition = managed.until_reason(gang, "WaitingForCards")
    assert "8 of 9" in condition["message"]

    def all_say_so(pods: dict[str, Json]) -> bool | None:
        said = [admitted(found) for found in pods.values()]
        return len(said) == 9 and all(c is not None and c["message"] == condition["message"] for c in said)

    managed.kit.pods_until("every pod carries the same sentence", "default", all_say_so)
    assert all(map(is_gated, managed.pods_of(gang)))


def test_members_are_waited_for(managed: Rig) -> None:
    gang = Gang("late", 3, memory_mib=1000, min_member=4)
    managed.submit(gang)
    assert "3 of 4" in managed.until_reason(gang, "WaitingForMembers")["message"]
    managed.make_anew(gang, 3)
    assert len(managed.until_bound(gang, 4)) == 4


def test_a_cap_holds_and_raising_it_lets_the_gang_in(managed: Rig) -> None:
    shares = names.shared_resource("h20")
    managed.queue("small", **{shares: 2})
    inside, beyond = Gang("inside", 2, memory_mib=1000, queue="small"), Gang("beyond", 1, queue="small")
    managed.submit(inside)
    managed.until_bound(inside)
    managed.submit(beyond)
    assert "2" in managed.until_reason(beyond, "WaitingForQuota")["message"]
    managed.cluster.kubectl(
        "patch", "queues.scheduling.volcano.sh", "small", "--type=merge",
        "-p", orjson.dumps({"spec": {"capability": {shares: "3"}}}).decode(),
    )  # fmt: skip
    managed.until_bound(beyond)


def test_high_takes_time_of_low_on_the_same_card_and_nobody_dies(managed: Rig) -> None:
    training = Gang("training", 8, memory_mib=40000, cores=100, priority="low")
    serving = Gang("serving", 2, memory_mib=30000, cores=50, priority="high")
    managed.submit(training)
    before = managed.until_bound(training)
    managed.submit(serving)
    shared = placed(managed.until_bound(serving))
    assert {card for cards in shared.values() for card in cards} <= {
        card for cards in placed(before).values() for card in cards
    }
    after = {found["metadata"]["uid"] for found in managed.pods_of(training)}
    assert after == {found["metadata"]["uid"] for found in before.values()}


def test_high_evicts_one_low_gang_as_a_whole_and_it_comes_back(managed: Rig) -> None:
    first = Gang("first", 4, memory_mib=60000, cores=100, priority="low")
    second = Gang("second", 4, memory_mib=60000, cores=100, priority="low")
    serving = Gang("urgent", 4, memory_mib=60000, cores=50, priority="high")
    with StandInController(managed, first, second):
        uids = {}
        for gang in (first, second):
            managed.submit(gang)
            uids[gang.name] = {found["metadata"]["uid"] for found in managed.until_bound(gang).values()}
        managed.submit(serving)
        managed.until_bound(serving)
        alive = {g.name: {found["metadata"]["uid"] for found in managed.pods_of(g)} for g in (first, second)}
        kept = [name for name, before in uids.items() if alive[name] == before]
        evicted = next(gang for gang in (first, second) if gang.name not in kept)
        assert len(kept) == 1, "one gang and only that one goes"
        managed.until_reason(evicted, "WaitingForCards")
        managed.check()
        managed.end(serving)
        managed.until_bound(evicted)


def test_a_lever_without_effect_is_followed_by_a_plain_eviction(managed: Rig) -> None:
    low = Gang("stubborn", 8, memory_mib=60000, cores=100, priority="low")
    serving = Gang("pressing", 1, memory_mib=60000, cores=50, priority="high")
    with StandInController(managed, low, pulls_lever=False):
        managed.submit(low)
        managed.until_bound(low)
        managed.submit(serving)
        managed.until_bound(serving, timeout_s=40)


@pytest.mark.parametrize("budgets", [{"all": 4}, {"some": 0, "others": 0}], ids=["one", "two"])
def test_who_is_guarded_stays(managed: Rig, budgets: dict[str, int]) -> None:
    """By a budget that needs all; or by two, whatever those allow: the API server evicts nobody then."""
    low = Gang("guarded", 4, memory_mib=60000, cores=100, priority="low")
    others = Gang("others", 4, memory_mib=60000, cores=100)
    serving = Gang("served", 1, memory_mib=60000, cores=50, priority="high")
    with StandInController(managed, low, others):
        for gang in (low, others):
            managed.submit(gang)
            managed.until_bound(gang)
        # Kubernetes counts one budget again when a pod changes: of two that came first, one may stay behind.
        for name, least in budgets.items():
            managed.api.create(DISRUPTION_BUDGETS, budget(f"guard-{name}", low, least))
        counted = dict.fromkeys((f"guard-{name}" for name in budgets), 4)
        managed.kit.until(
            "its budgets are counted",
            DISRUPTION_BUDGETS,
            lambda found: (
                {n: (b.get("status") or {}).get("currentHealthy") for n, b in found.items()} == counted
            ),
            namespace=low.namespace,
        )
        before = {found["metadata"]["uid"] for found in managed.pods_of(low)}
        managed.submit(serving)
        managed.until_reason(serving, "WaitingForCards")
        managed.check()
        assert {found["metadata"]["uid"] for found in managed.pods_of(low)} == before
        for name in budgets:
            managed.api.delete(DISRUPTION_BUDGETS, f"guard-{name}", low.namespace)
        managed.until_bound(serving, timeout_s=40)


def budget(name: str, gang: Gang, least: int) -> Json:
    return {
        "apiVersion": DISRUPTION_BUDGETS.api_version,
        "kind": DISRUPTION_BUDGETS.kind,
        "metadata": {"name": name, "namespace": gang.namespace},
        "spec": {"minAvailable": least, "selector": {"matchLabels": {"gang": gang.name}}},
    }


def test_a_bare_pod_is_no_victim(managed: Rig) -> None:
    for index in range(2):
        for card in range(4):
            gang = Gang(f"bare-{index}-{card}", 1, memory_mib=60000, cores=100, priority="low")
            managed.api.create(POD_GROUPS, podgroup(gang))
            managed.api.create(PODS, pod(gang))
            managed.until_bound(gang)
    serving = Gang("polite", 1, memory_mib=60000, cores=50, priority="high")
    managed.submit(serving)
    assert "no controller makes its pods again" in managed.until_reason(serving, "WaitingForCards")["message"]


def test_replicas_of_a_deployment_are_admitted_singly(managed: Rig) -> None:
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
    managed.api.create(DEPLOYMENTS, deployment)
    owner = managed.kit.pods_until(
        "replicas",
        "default",
        lambda pods: next(iter(pods.values()))["metadata"]["ownerReferences"] if pods else None,
    )[0]
    group = podgroup(gang)
    group["metadata"]["name"] = f"podgroup-{owner['uid']}"
    managed.api.create(POD_GROUPS, group)
    managed.until_bound(gang, 8)
    assert sum(map(is_gated, managed.pods_of(gang))) == 2
    managed.api.delete(DEPLOYMENTS, "web", "default", propagation="Foreground")
    managed.kit.pods_until("the replicas are gone", "default", lambda pods: not pods or None)


def test_members_without_cards_wait_and_go_with_their_gang(managed: Rig) -> None:
    wide = Gang("wide", 10, memory_mib=60000, without_cards=1)
    mixed = Gang("mixed", 3, memory_mib=60000, without_cards=2)
    managed.submit(wide)
    managed.until_reason(wide, "WaitingForCards")
    assert all(map(is_gated, managed.pods_of(wide)))
    managed.submit(mixed)
    bound = managed.until_bound(mixed)
    assert sum(1 for found in bound.values() if names.CARDS in found["metadata"]["annotations"]) == 1


def test_pods_without_a_podgroup_say_so(managed: Rig) -> None:
    gang = Gang("lonely", 1)
    managed.api.create(PODS, pod(gang))

    def says_so(pods: dict[str, Json]) -> bool | None:
        found = admitted(pods.get("lonely-worker-0") or {})
        return (found is not None and "no PodGroup" in found["message"]) or None

    managed.kit.pods_until("it says so", "default", says_so)
    managed.api.create(POD_GROUPS, podgroup(gang))
    managed.until_bound(gang)


def test_the_switch_stops_what_is_new_and_nothing_else(managed: Rig) -> None:
    running, late = Gang("running", 1, memory_mib=1000), Gang("stopped", 1, memory_mib=1000)
    managed.submit(running)
    managed.until_bound(running)
    switch = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": names.SWITCHES_CONFIG_MAP, "namespace": SYSTEM},
        "data": {"stopAdmitting": "true"},
    }
    managed.api.create(CONFIG_MAPS, switch)
    managed.submit(late)
    assert "stopped" in managed.until_reason(late, "WaitingForGate")["message"]
    assert managed.pods_of(running)[0]["spec"]["nodeName"]
    managed.api.delete(CONFIG_MAPS, names.SWITCHES_CONFIG_MAP, SYSTEM)
    managed.until_bound(late)


def test_metrics_and_the_view_tell_who_is_where(managed: Rig) -> None:
    managed.processes["admission"].stop()
    (port,) = free_ports(1, set())
    process = managed.controller("with-port", "--port", str(port), "--bind-address", "127.0.0.1")
    process.start()
    gang = Gang("seen", 2, memory_mib=30000, cores=30)
    managed.submit(gang)
    managed.until_bound(gang)
    metrics = _get(port, "/metrics").decode()
    assert 'egpu_queue_used{queue="team",resource="volcano.sh/vgpu-h20"} 2' in metrics
    assert "egpu_share_memory_bytes{" in _get(port, "/metrics/shares").decode()
    page = _get(port, "/v1/snapshot")
    view = orjson.loads(page)
    on_cards = [share["pod"] for card in view["cards"] for share in card["shares"]]
    assert sorted(on_cards) == ["seen-worker-0", "seen-worker-1"]
    assert {pod.name for pod in snapshot_codec.from_json(page).pods.values()} >= set(on_cards)
    assert _get(port, "/healthz") == b"ok\n"
    process.stop()


def _get(port: int, path: str) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        body: bytes = answer.read()
    return body


def test_draining_leaves_no_pod_waiting_for_us(managed: Rig) -> None:
    """What has our gate loses it. What has our name is deleted, so that its controller makes it again."""
    gated = Gang("left", 9, memory_mib=98304, by_scheduler=True)
    direct = Gang("deleted", 9, memory_mib=98304)
    for gang in (gated, direct):
        managed.submit(gang)
        managed.until_reason(gang, "WaitingForCards")
    managed.processes["admission"].stop()
    drain = managed.controller("drain", "--drain")
    drain.start()
    managed.kit.pods_until(
        "none waits for us", "default", lambda pods: not any(map(is_gated, pods.values())) or None
    )
    assert (len(managed.pods_of(gated)), len(managed.pods_of(direct))) == (9, 0)
    for gang in (gated, direct):
        managed.end(gang)
