"""Level-1 metrics and the page for programs: who waits, which cards take anything."""

from dataclasses import replace

from unit.admission.build import TABLE, added, group, node, pod, queue
from vc_egpu.admission.execution.operations import lacked, none_by_kubelets
from vc_egpu.admission.serving.metrics import Level1
from vc_egpu.admission.serving.snapshot import document
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.admission.view import View
from vc_egpu.core.decide import decide
from vc_egpu.core.model.policy import Policy
from vc_egpu.report import snapshot_codec
from vc_egpu.volcano.words.annotations import Cards, CardShare, NodeCard, NodeCards, NodeLayout, NodeTemplate
from vc_egpu.volcano.words.model_table import ModelTable
from vc_egpu.volcano.words.names import CARDS


def view_of(mirror: Mirror) -> View:
    snapshot = mirror.snapshot()
    plan = decide(snapshot, Policy(), 1000.0)
    return View(snapshot, plan.verdicts, {}, 5, admitting=True)


def series(view: View, name: str) -> list[str]:
    level1 = Level1(lambda: view)
    lines = [line for path in level1.paths for line in level1.answer(path).decode().splitlines()]
    return [line for line in lines if line.startswith(f"{name}{{")]


def waiting(mirror: Mirror) -> list[str]:
    """The series of gangs that wait, as the leader shows them."""
    return series(view_of(mirror), "egpu_queue_waiting_gangs")


def of_a_replica_set(name: str) -> dict[str, object]:
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": name,
        "uid": f"rs-{name}",
        "controller": True,
    }


def test_cards_of_a_node_that_is_given_up_take_nothing() -> None:
    """By its taint, though its kubelet is there: as the decision sees it."""
    mirror, taint = Mirror(TABLE), {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}
    mirror.apply("nodes", added(node("given-up", cards=1, spec={"taints": [taint]})))
    mirror.apply("nodes", added(node("well", cards=1)))
    view = view_of(mirror)
    assert {card["node"]: card["usable"] for card in document(view)["cards"]} == {
        "given-up": False,
        "well": True,
    }
    (given_up, well) = sorted(series(view, "egpu_card_usable"))
    assert 'node="given-up"' in given_up
    assert (given_up.split()[-1], well.split()[-1]) == ("0", "1")


def test_slices_that_are_given_out_are_counted_by_card_and_size() -> None:
    small = NodeTemplate(name="vir05", memory_mib=16384, cores=25, parts={"aicore": 5})
    large = NodeTemplate(name="vir10", memory_mib=32768, cores=50, parts={"aicore": 10})
    cut = NodeCard(
        uuid="npu", index=0, model="910b3", memory_mib=65536, stack=False,
        layout=NodeLayout(totals={"aicore": 20}, templates=(small, large), made=True),
    )  # fmt: skip
    plain = NodeCard(uuid="GPU-n1-1", index=1, model="h20", memory_mib=98304)
    table = ModelTable.from_yaml("models: [{name: h20, memoryMiB: 98304}, {name: 910b3, memoryMiB: 65536}]")
    mirror = Mirror(table)
    mirror.apply("nodes", added(node(inventory=NodeCards(cards=(cut, plain)).encode())))
    for name in ("a", "b"):
        share = CardShare(uuid="npu", memory_mib=16384, cores=25, slice="vir05")
        held = pod(name, uid=name, spec={"nodeName": "n1", "schedulingGates": []}, phase="Running")
        cards = Cards(pod_uid=name, node="n1", plan_id="1-1", containers={"main": (share,)})
        held["metadata"]["annotations"][CARDS] = cards.encode()
        mirror.apply("pods", added(held))
    npu = 'node="n1",uuid="npu",index="0",model="910b3"'
    assert series(view_of(mirror), "egpu_card_slices") == [
        f'egpu_card_slices{{{npu},slice="vir05"}} 2',
        f'egpu_card_slices{{{npu},slice="vir10"}} 0',
    ]


def test_who_is_scaled_to_nothing_does_not_wait() -> None:
    """What scales nodes by who waits would add one for nobody."""
    mirror = Mirror(TABLE)
    mirror.apply("queues", added(queue()))
    replicas = group("podgroup-rs-web", members=1)
    replicas["metadata"]["ownerReferences"] = [of_a_replica_set("web")]
    mirror.apply("podgroups", added(replicas))
    assert waiting(mirror) == []
    one = pod("web-1", gang="podgroup-rs-web", owners=[of_a_replica_set("web")])
    mirror.apply("pods", added(one))
    assert waiting(mirror) == ['egpu_queue_waiting_gangs{queue="team",reason="WaitingForModel",class=""} 1']


def test_a_job_whose_pods_are_still_to_be_made_waits() -> None:
    mirror = Mirror(TABLE)
    mirror.apply("queues", added(queue()))
    mirror.apply("podgroups", added(group("train")))
    assert waiting(mirror) == ['egpu_queue_waiting_gangs{queue="team",reason="WaitingForMembers",class=""} 1']


def test_the_page_holds_all_that_a_decision_reads() -> None:
    """What-if and replay start from the saved page."""
    mirror = Mirror(TABLE)
    mirror.apply("queues", added(queue(cap=1 << 62)))
    mirror.apply("nodes", added(node(cards=2)))
    mirror.apply("podgroups", added(group("train", members=1)))
    mirror.apply("pods", added(pod("train-0", gang="train")))
    view = view_of(mirror)
    found = snapshot_codec.from_json(snapshot_codec.to_json(document(view)))
    assert found == view.snapshot
    assert decide(found, Policy(), 1000.0).verdicts == view.verdicts


def test_what_kubelets_refuse_is_counted_by_what_lacked() -> None:
    said = ["OutOfcpu: no cpu", "OutOfvolcano.sh/vgpu-h20: none", "UnexpectedAdmissionError: x", "Odd: y"]
    assert [lacked(text) for text in said] == ["cpu", "resource", "device", "other"]
    view = replace(view_of(Mirror(TABLE)), by_kubelets={**none_by_kubelets(), "cpu": 3})
    shown = series(view, "egpu_kubelet_refusals_total")
    assert 'egpu_kubelet_refusals_total{lacked="cpu"} 3' in shown
    assert 'egpu_kubelet_refusals_total{lacked="pods"} 0' in shown, "a total begins at zero"


def test_pods_that_were_let_go_are_counted_by_way() -> None:
    view = replace(view_of(Mirror(TABLE)), let_go={"direct": 2, "scheduler": 1})
    assert series(view, "egpu_pods_let_go_total") == [
        'egpu_pods_let_go_total{way="direct"} 2',
        'egpu_pods_let_go_total{way="scheduler"} 1',
    ]
