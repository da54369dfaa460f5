"""Whose a node's cards are: what other plugins and DRA drivers offer, what their pods still hold."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from vc_egpu.volcano.words.node_policy import Policy
from vc_egpu.volcano.words.other_plugins import slim_slice
from vc_egpu_node.api.pods import PodView, view
from vc_egpu_node.api.pods import slim as slim_pod
from vc_egpu_node.kubelet.podresources import (
    CHECKPOINT,
    Checkpoint,
    ContainerRef,
    Holder,
    PodResourcesError,
    holders_in,
)
from vc_egpu_node.kubelet_api import podresources_pb2 as pr
from vc_egpu_node.offers.other_plugins import OffersFile, OtherPlugins

Json = dict[str, Any]
PATIENCE_S = 300.0
CLAIMED = "0a046d61696e2a241201631a026d6c221b120e6770752e6e76696469612e636f6d1a026e3122056770752d30"
"""A container's resources as the kubelet of 1.36 encodes them: main, with claim ml/c for gpu-0 of pool n1."""
OFFERED = "another plugin offered the same cards less than 300 s ago"


def status(capacity: int | None = None, allocatable: int | None = None, name: str = "nvidia.com/gpu") -> Json:
    return {
        "capacity": {} if capacity is None else {name: str(capacity)},
        "allocatable": {} if allocatable is None else {name: str(allocatable)},
    }


def pod(name: str, resource: str = "nvidia.com/gpu", phase: str = "Running") -> PodView:
    return PodView(f"uid-{name}", "ml", name, "n1", phase, None, asks=frozenset({resource}))


def resource_slice(driver: str, devices: int, generation: int = 1, node: str = "n1") -> Json:
    """As NVIDIA's DRA driver publishes it: one pool, named after the node."""
    found = [{"name": f"gpu-{i}", "attributes": {"uuid": {"string": f"GPU-{i}"}}} for i in range(devices)]
    pool = {"name": node, "generation": generation, "resourceSliceCount": 1}
    spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": found}
    return slim_slice({"metadata": {"name": "s", "resourceVersion": "1"}, "spec": spec})


@dataclass
class Look:
    """One node's eyes, with a clock of their own."""

    now_s: float = 1000.0
    kept: OffersFile = field(default_factory=lambda: OffersFile(Path("/dev/null/others.json")))

    def __post_init__(self) -> None:
        self.held: list[Holder] | None = []
        self.asked = 0
        self.given: dict[str, frozenset[str]] | None = None
        self.others = OtherPlugins(self.holders, lambda: self.given, self.kept.keep, clock=lambda: self.now_s)

    def holders(self) -> list[Holder]:
        """What the kubelet says; None: it does not answer."""
        self.asked += 1
        if self.held is None:
            raise PodResourcesError("away")
        return self.held

    def see(
        self, seen: Json, *pods: PodView, slices: tuple[Json, ...] = (), policy: Policy | None = None
    ) -> str:
        return self.others.problem(seen, pods, slices, policy or Policy())


@pytest.mark.parametrize(
    "name",
    [
        "nvidia.com/gpu",
        "nvidia.com/gpu.shared",
        "nvidia.com/mig-1g.10gb",
        "nvidia.com/mig-1g.10gb.shared",
        "nvidia.com/mig-1g.10gb.me",
        "volcano.sh/vgpu-number",
        "volcano.sh/gpu-number",
        "volcano.sh/gpu-memory",
        "aliyun.com/gpu-mem",
    ],
)
def test_each_name_under_which_others_offer_the_same_cards(name: str) -> None:
    assert Look().see(status(4, 4, name)) == f"another plugin offers the same cards: {name}=4"


@pytest.mark.parametrize(
    "name",
    ["volcano.sh/vgpu-h20", "volcano.sh/gpu-h20", "nvidia.com/hostdev", "amd.com/gpu", "nvidia.com/gpumem"],
)
def test_what_is_no_card_of_ours_is_left_alone(name: str) -> None:
    assert Look().see(status(4, 4, name)) == ""


def test_amounts_that_cannot_be_read_are_something() -> None:
    seen = {"capacity": {}, "allocatable": {"nvidia.com/gpu": "many"}}
    assert Look().see(seen) == "another plugin offers the same cards: nvidia.com/gpu=1"


def test_a_plugin_that_restarts_gives_no_card_away() -> None:
    """The kubelet keeps its devices as capacity and takes them from what is allocatable, at once."""
    look = Look()
    assert look.see(status(4, 4)).endswith("nvidia.com/gpu=4")
    assert look.see(status(4, 0)) == f"{OFFERED}: nvidia.com/gpu"
    assert look.see(status(4, 4)).endswith("nvidia.com/gpu=4")


def test_a_kubelet_that_restarts_forgets_the_devices_and_the_agent_does_not() -> None:
    look = Look()
    look.see(status(4, 4))
    look.now_s += PATIENCE_S - 1
    assert look.see(status(0, 0)) == f"{OFFERED}: nvidia.com/gpu"
    look.now_s += 1
    assert look.see(status(0, 0)) == ""


def test_how_long_it_does_not_is_a_setting() -> None:
    look = Look()
    look.see(status(4, 4))
    assert look.see(status(0, 0), policy=Policy(take_over_after_s=0)) == ""
    assert "less than 10 s ago" in look.see(status(0, 0), policy=Policy(take_over_after_s=10))


def test_an_agent_that_starts_sees_devices_of_a_plugin_that_just_left() -> None:
    assert Look().see(status(4, 0)) == f"{OFFERED}: nvidia.com/gpu"


@pytest.mark.parametrize("leaving", [False, True])
def test_what_the_last_agent_saw_counts_for_the_next_one(leaving: bool, tmp_path: Path) -> None:
    """Whatever it said on the Node, and in which words."""
    first, second = (Look(kept=OffersFile(tmp_path / "others.json")) for _ in range(2))
    first.see(status(4, 4))
    if leaving:
        first.see(status(4, 0))
    second.others.remember(second.kept.load())
    assert second.see(status(0, 0)) == f"{OFFERED}: nvidia.com/gpu"
    second.now_s += PATIENCE_S
    assert second.see(status(0, 0)) == ""
    third = Look(kept=OffersFile(tmp_path / "others.json"))
    third.others.remember(third.kept.load())
    assert third.see(status(0, 0)) == "", "the wait was over before it began"


def test_drivers_are_kept_as_well(tmp_path: Path) -> None:
    first, second = (Look(kept=OffersFile(tmp_path / "others.json")) for _ in range(2))
    first.see(status(), slices=(resource_slice("gpu.nvidia.com", 2),))
    second.others.remember(second.kept.load())
    assert second.see(status()) == f"{OFFERED}: gpu.nvidia.com"


@pytest.mark.parametrize("text", [None, "", "[1, 2]", '{"a": 1}', '"nvidia.com/gpu"', "\x00"])
def test_what_cannot_be_read_was_nobody(text: str | None, tmp_path: Path) -> None:
    kept = OffersFile(tmp_path / "others.json")
    if text is not None:
        kept.path.write_text(text)
    assert kept.load() == frozenset()


def test_a_disk_that_takes_nothing_is_tried_again(tmp_path: Path) -> None:
    look = Look(kept=OffersFile(tmp_path / "full" / "others.json"))
    assert look.see(status(4, 4)) == "another plugin offers the same cards: nvidia.com/gpu=4"
    (tmp_path / "full").mkdir()
    look.see(status(4, 4))
    assert look.kept.load() == {"nvidia.com/gpu"}


def test_nothing_is_written_while_nothing_changes(tmp_path: Path) -> None:
    look = Look(kept=OffersFile(tmp_path / "others.json"))
    look.see(status())
    assert not look.kept.path.exists()
    look.see(status(4, 4))
    before = look.kept.path.stat().st_ino
    look.now_s += 10
    look.see(status(4, 4))
    assert look.kept.path.stat().st_ino == before


def test_a_resource_that_stays_at_zero_for_ever_is_nobody_s() -> None:
    assert Look().see(status(0, 0)) == ""


def test_pods_of_a_plugin_that_is_gone_keep_their_cards() -> None:
    look = Look()
    pods = [pod(f"p{i}") for i in range(4)]
    look.see(status(4, 4), *pods)
    look.now_s += 10 * PATIENCE_S
    said = "pods of another plugin hold cards: ml/p0, ml/p1, ml/p2 and 1 more"
    assert look.see(status(0, 0), *pods) == said
    assert look.see(status(0, 0), *(replace(one, phase="Failed") for one in pods)) == ""


def test_a_pod_that_was_given_nothing_closes_no_node() -> None:
    """Nobody offers the resource, and the pod names its node itself: the kubelet lets it in without it."""
    look = Look()
    asks = replace(pod("p"), kubelet_uid="uid-p")
    look.given = {"uid-q": frozenset({"nvidia.com/gpu"}), "uid-p": frozenset({"volcano.sh/vgpu-h20"})}
    assert look.see(status(), asks) == ""
    look.given["uid-p"] = frozenset({"nvidia.com/gpu"})
    assert look.see(status(), asks) == "pods of another plugin hold cards: ml/p"
    look.given = None
    assert look.see(status(), asks) == "pods of another plugin hold cards: ml/p", "in doubt it was"


def test_of_a_static_pod_the_kubelet_has_another_uid() -> None:
    metadata: Json = {"name": "p", "uid": "u"}
    assert view(slim_pod({"metadata": metadata})).kubelet_uid == "u"
    metadata["annotations"] = {"kubernetes.io/config.mirror": "73ae"}
    static = view(slim_pod({"metadata": metadata}))
    assert (static.uid, static.kubelet_uid) == ("u", "73ae")


def test_the_kubelet_writes_down_what_it_gives_and_keeps_it(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    assert checkpoint.resources() is None
    entry = {"ContainerName": "c", "ResourceName": "nvidia.com/gpu", "DeviceIDs": {"-1": ["0"]}}
    written = {"Data": {"PodDeviceEntries": [{"PodUID": "u", **entry}]}, "Checksum": 1}
    (tmp_path / CHECKPOINT).write_text(json.dumps(written))
    assert checkpoint.resources() == {"u": frozenset({"nvidia.com/gpu"})}
    (tmp_path / CHECKPOINT).write_text('{"Data": {"PodDeviceEntries": null}}')
    assert checkpoint.resources() == {}
    (tmp_path / CHECKPOINT).write_text("{")
    assert checkpoint.resources() is None


def test_pods_that_ask_for_something_else_hold_no_card() -> None:
    assert Look().see(status(), pod("p", "volcano.sh/vgpu-h20"), pod("q", "rdma/hca")) == ""


def test_a_pod_s_asks_are_those_of_all_its_containers() -> None:
    ask = {"resources": {"requests": {"nvidia.com/gpu": "1", "cpu": "1"}}}
    document = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a"}], "initContainers": [ask]}}
    assert view(slim_pod(document)).asks == {"nvidia.com/gpu"}


def test_who_asks_for_none_holds_no_card() -> None:
    """``nvidia.com/gpu: 0`` is what charts write where cards are a number of theirs. Scheduler and kubelet
    let it onto any node, and one such pod closed its node to everybody."""
    none = {"resources": {"limits": {"nvidia.com/gpu": "0"}, "requests": {"nvidia.com/gpu": "0"}}}
    document = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", **none}]}}
    asks = view(slim_pod(document)).asks
    assert asks == frozenset()
    assert Look().see(status(), replace(pod("p", "x/y"), asks=asks)) == ""


def test_cards_under_dynamic_resource_allocation_are_not_ours() -> None:
    """No resource of the Node tells of them."""
    look = Look()
    said = look.see(status(), slices=(resource_slice("gpu.nvidia.com", 4),))
    assert said == "another plugin offers the same cards: gpu.nvidia.com=4"
    assert look.see(status()) == f"{OFFERED}: gpu.nvidia.com"
    look.now_s += PATIENCE_S
    assert look.see(status()) == ""


def claimed(name: str, driver: str = "gpu.nvidia.com") -> Holder:
    return Holder(ContainerRef("ml", name, "main"), driver, frozenset({"n1/gpu-0"}))


def test_pods_with_claims_outlive_their_driver() -> None:
    look = Look()
    pods = [replace(pod("p", "cpu/x"), claims=True), replace(pod("q", "cpu/x"), claims=True)]
    look.held = [claimed("p"), claimed("q", "dra.net"), claimed("gone")]
    assert look.see(status(), *pods) == "pods of another plugin hold cards: ml/p"
    look.held = None
    assert look.see(status(), *pods) == "pods of another plugin hold cards: ml/p"
    assert look.see(status(), *(replace(one, phase="Succeeded") for one in pods)) == ""


def test_a_kubelet_that_starts_again_and_lists_no_pod_yet_frees_no_card() -> None:
    """It answers before the API server has told it of any pod. Who held a device has it to his end."""
    look = Look()
    pods = [replace(pod("p", "cpu/x"), claims=True), replace(pod("q", "cpu/x"), claims=True)]
    look.held = [claimed("p")]
    said = "pods of another plugin hold cards: ml/p"
    assert look.see(status(), *pods) == said
    look.held = []
    assert look.see(status(), *pods) == said
    look.held = [claimed("q", "dra.net")]
    assert look.see(status(), *pods) == said
    assert look.see(status(), replace(pods[0], uid="another"), pods[1]) == "", "one of the same name"
    assert look.see(status(), *pods) == "", "it was over"


def test_the_kubelet_is_asked_only_where_there_are_claims() -> None:
    look = Look()
    look.see(status(), pod("p"))
    assert look.asked == 0


@pytest.mark.parametrize(
    "document",
    [
        {"spec": {"resourceClaims": [{"name": "gpu"}]}},
        {"status": {"extendedResourceClaimStatus": {"resourceClaimName": "p-x"}}},
    ],
    ids=["by-name", "behind-an-extended-resource"],
)
def test_a_pod_s_claims(document: Json) -> None:
    assert view(slim_pod({"metadata": {"name": "p"}, **document})).claims
    assert not view(slim_pod({"metadata": {"name": "p"}})).claims


def test_the_kubelet_s_list_names_devices_of_drivers() -> None:
    container = pr.ContainerResources.FromString(bytes.fromhex(CLAIMED))
    pod_resources = [pr.PodResources(name="p", namespace="ml", containers=[container])]
    assert holders_in(pr.ListPodResourcesResponse(pod_resources=pod_resources)) == [claimed("p")]


@pytest.mark.parametrize(
    "slices",
    [
        (resource_slice("compute-domain.nvidia.com", 2049),),
        (resource_slice("dra.net", 8),),
        (resource_slice("gpu.nvidia.com", 0),),
        (
            resource_slice("gpu.nvidia.com", 4, generation=1),
            resource_slice("gpu.nvidia.com", 0, generation=2),
        ),
    ],
    ids=["imex-channels", "network-cards", "no-devices", "an-old-generation"],
)
def test_slices_without_cards(slices: tuple[Json, ...]) -> None:
    assert Look().see(status(), slices=slices) == ""


def test_the_operator_says_who_the_others_are() -> None:
    mine = Policy(foreign_resources=("acme.com/*",), foreign_drivers=())
    look = Look()
    slices = (resource_slice("gpu.nvidia.com", 4),)
    assert look.see(status(4, 4), pod("p"), slices=slices, policy=mine) == ""
    assert look.see(status(4, 4, "acme.com/card"), policy=mine).endswith(": acme.com/card=4")
    assert look.see(status(4, 4), policy=mine).endswith(": acme.com/card")
    assert look.see(status(), policy=Policy()) == ""
