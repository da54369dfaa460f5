"""Ascend, Hygon and MIG on real nodes, faked at the vendors' libraries: from a user's ask to the container.

The stories share one cluster. Each has a namespace of its own, and leaves no slice on a card.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

import pytest
import yaml
from fakes.nvml_state import FakeInstance
from localcluster.api import wait_until
from outcomes.workload import Task, job, pod, shares
from outcomes.world import World, world
from rigs.agent_on_node import AgentOnNode
from rigs.vendor_nodes import DCU, GROUP, H100, MODELS, VendorCluster, vendor_cluster
from stack.install import Stack
from stack.kit import cards_of
from vc_egpu.volcano.words.names import ENV_CARDS, ISOLATION, MIG_PREFIX, SLICE, shared_resource

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
Json = dict[str, Any]
NPU, DCU_KEY, H100_KEY = (shared_resource(model) for model in ("910b3", "k100-ai", "h100"))
SMALL_NPU: Final = shares(12_000, model="910b3")
"""Rounded up to a vir05_1c_16g."""
SMALL_DCU: Final = shares(8_000, model="k100-ai")
"""Rounded up to a cu15."""
SMALL_MIG: Final = shares(8_000, 10, model="h100")
IN_HARDWARE: Final = {ISOLATION: "hardware"}
"""With it, :data:`SMALL_MIG` is rounded up to a 1g.10gb."""
VENDOR_WORDS: Final = re.compile("ascend|davinci|dcmi|npu|hygon|dcu|rocm|hydmi|kfd", re.IGNORECASE)


@pytest.fixture(scope="module")
def nodes() -> Iterator[VendorCluster]:
    """The one cluster."""
    with vendor_cluster("vendors") as found:
        yield found


@pytest.fixture
def here(nodes: VendorCluster, request: pytest.FixtureRequest) -> Iterator[World]:
    """At the end of a story the invariants hold, plan = CDI file = container, and no slice is left."""
    with world(Stack.of(nodes.stack.cluster), request.node.name, MODELS) as found:
        yield found
    wait_until("no vNPU is left", lambda: not nodes.npus.slices, 30)
    wait_until("no vDCU is left", lambda: not vdcus(nodes), 30)


def vdcus(nodes: VendorCluster) -> list[str]:
    """Files of vDCUs on the Hygon node."""
    return [path.name for path in (nodes.agents["hygon"].state_dir / "vdcu").glob("*.conf")]


def said(here: World, name: str) -> Json:
    """The one card that a container says it has."""
    (card,) = json.loads(here.inside(name, f'printf %s "${ENV_CARDS}"'))
    found: Json = card
    return found


def npus_in(here: World, name: str) -> set[str]:
    """Device nodes of NPUs that a container sees, and may open as an ordinary user."""
    own = here.inside(name, "cd /dev; for n in davinci[0-9]*; do true < $n > $n && echo $n; done")
    return set(own.split())


def one_by_one(here: World, pods: Mapping[str, Json]) -> None:
    """Each starts before the next one is made."""
    for name, document in pods.items():
        here.submit(document)
        here.runs(name, 1)


def test_a_gang_on_whole_npus_lies_in_one_group(here: World, nodes: VendorCluster) -> None:
    """The node has two halves of eight cards, and only cards of one half have direct links (HCCS)."""
    queue = here.add_queue("npu", capability={NPU: 16})
    group_of = {card.uuid: card.group for card in nodes.inventory("ascend").cards}
    index_of = {card.uuid: card.index for card in nodes.inventory("ascend").cards}

    def five(name: str) -> Json:
        return job(name, Task(shares(model="910b3", cards=5)), queue=queue)

    here.submit(five("first"))
    (first,) = here.runs("first", 1).values()
    (half,) = {group_of[uuid] for uuid in cards_of(first)}
    here.submit(job("gang", Task(shares(model="910b3", cards=4), replicas=2), queue=queue))
    members = here.runs("gang", 2)
    for name, member in members.items():
        assert {group_of[uuid] for uuid in cards_of(member)} == {1 - half}
        assert npus_in(here, name) == {f"davinci{index_of[uuid]}" for uuid in cards_of(member)}
    here.check()
    here.delete("vcjob", "gang")
    here.gone("gang", {member["metadata"]["uid"] for member in members.values()})

    here.submit(five("second"))
    here.runs("second", 1)
    here.submit(job("four", Task(shares(model="910b3", cards=4)), queue=queue))
    print(here.waits("four", "WaitingForCards", "enough for 1, but not in a set that may go together"))


def test_two_small_vnpus_and_a_large_one_share_a_card(here: World, nodes: VendorCluster) -> None:
    queue = here.add_queue("npu", capability={NPU: 4, f"{NPU}-memory": 65_536, f"{NPU}-cores": 100})
    answer = here.apply(pod("small-a", SMALL_NPU, queue=queue))
    assert "gets a slice vir05_1c_16g of a 910b3: 16384 MiB and 25 cores" in answer
    here.runs("small-a", 1)
    large = pod("large", shares(model="910b3"), queue=queue, annotations={SLICE: "vir10_3c_32g"})
    one_by_one(here, {"small-b": pod("small-b", SMALL_NPU, queue=queue), "large": large})

    cards = {name: said(here, name) for name in ("small-a", "small-b", "large")}
    assert len({card["uuid"] for card in cards.values()}) == 1, cards
    assert [card["slice"] for card in cards.values()] == ["vir05_1c_16g", "vir05_1c_16g", "vir10_3c_32g"]
    assert [card["memoryMiB"] for card in cards.values()] == [16_384, 16_384, 32_768]
    lying = {f"davinci{line.split()[1]}": line.split()[2] for line in nodes.npus.slices}
    for name, card in cards.items():
        (device,) = npus_in(here, name)
        assert lying.pop(device) == card["slice"]
        assert str(GROUP) in here.inside(name, "id -G").split()
    assert not lying, "the driver has a slice that no container has"

    here.submit(pod("more", SMALL_NPU, queue=queue))
    print(here.waits("more", "WaitingForQuota", "slice vir05_1c_16g of 910b3"))


def test_an_agent_that_dies_finds_its_vnpus_again(here: World, nodes: VendorCluster) -> None:
    """One pod goes while no agent is there. Its vNPU is removed by the next one."""
    queue = here.add_queue("npu", capability={NPU: 4})
    one_by_one(here, {name: pod(name, SMALL_NPU, queue=queue) for name in ("stays", "goes")})
    (device,) = npus_in(here, "stays")
    agent = nodes.agents["ascend"]
    agent.kill()
    here.delete("pod", "goes")
    assert len(nodes.npus.slices) == 2
    agent.start()
    agent.wait_ready()
    wait_until("the slice of what has gone is removed", lambda: len(nodes.npus.slices) == 1, 30)
    assert npus_in(here, "stays") == {device}
    here.submit(pod("later", SMALL_NPU, queue=queue))
    here.runs("later", 1)
    assert npus_in(here, "later") != {device}
    assert len(nodes.npus.slices) == 2


EVERYTHING: Final = {
    "ASCEND_VISIBLE_DEVICES": "0-7",
    "ASCEND_VNPU_SPECS": "vir10_3c_32g",
    "ASCEND_RUNTIME_OPTIONS": "VIRTUAL",
}
"""What the vendor's own runtime would read."""


@pytest.mark.parametrize("who", ["user", "account"])
def test_row_6_of_attacks_variables_open_no_other_npu(here: World, nodes: VendorCluster, who: str) -> None:
    """Of the table in ``docs/security.md``. One pod has a card, the other none."""
    queue = here.add_queue("npu", capability={NPU: 1})
    group = f"system:serviceaccounts:{here.namespace}"
    in_namespace = ("-n", here.namespace)
    here.kit.kubectl("create", "role", "pods", "--verb=create", "--resource=pods", *in_namespace)
    here.kit.kubectl("create", "rolebinding", "pods", "--role=pods", f"--group={group}", *in_namespace)
    account = f"system:serviceaccount:{here.namespace}:default"
    identity = ("--as", "mallory", "--as-group", group) if who == "user" else ("--as", account)
    for name, limits in (("mine", shares(model="910b3")), ("none", {})):
        document = pod(name, limits, queue=queue if limits else None)
        (one,) = document["spec"]["containers"]
        one["env"] = [{"name": key, "value": value} for key, value in EVERYTHING.items()]
        document["spec"]["nodeSelector"] = {"kubernetes.io/hostname": nodes.agents["ascend"].node.name}
        making = (*identity, "create", "-f", "-", *in_namespace)
        here.eventually(partial(here.kit.kubectl, *making, text_in=yaml.safe_dump(document)))
    (mine,) = here.runs("mine", 1).values()
    here.runs("none", 1)
    index_of = {card.uuid: card.index for card in nodes.inventory("ascend").cards}
    assert npus_in(here, "mine") == {f"davinci{index_of[uuid]}" for uuid in cards_of(mine)}
    assert here.inside("mine", "printf %s $ASCEND_VISIBLE_DEVICES") == "void"
    assert here.inside("none", "ls /dev | grep davinci || true") == ""


def test_three_vdcus_share_a_card_and_a_fifth_waits(here: World, nodes: VendorCluster) -> None:
    """The fourth takes the last place. The card has compute units and memory left for a fifth."""
    queue = here.add_queue("dcu", capability={DCU_KEY: 8})
    one_by_one(here, {f"dcu-{n}": pod(f"dcu-{n}", SMALL_DCU, queue=queue) for n in "abc"})
    masks = 0
    for name in ("dcu-a", "dcu-b", "dcu-c"):
        text = here.inside(name, "cat /etc/vdev/docker/vdev0.conf")
        low, high = (int(mask, 16) for mask in re.findall("cu_mask: 0x([0-9a-f]+)", text))
        mask = low | high << 64
        assert mask.bit_count() == 15
        assert not mask & masks, "two containers have a compute unit"
        masks |= mask
        assert said(here, name)["slice"] == "cu15"
        assert f"card{DCU}" in here.inside(name, "ls /dev/dri").split()
    here.submit(pod("dcu-d", SMALL_DCU, queue=queue))
    here.runs("dcu-d", 1)
    assert len(vdcus(nodes)) == 4

    here.submit(pod("dcu-e", SMALL_DCU, queue=queue))
    print(here.waits("dcu-e", "WaitingForCards", "cores left, but no place for a slice cu15"))
    here.check()
    here.delete("pod", "dcu-b")
    here.runs("dcu-e", 1)


def owners(nodes: VendorCluster, count: int) -> dict[str, str]:
    """By pod, the size of the MIG instance that the agent of that node says is its own."""

    def told() -> dict[str, str]:
        (card,) = nodes.inventory("mig").cards
        return {one.owner: one.template for one in card.slices if one.owner}

    wait_until(f"{count} instances have an owner", lambda: len(told()) == count, 30)
    return told()


def test_three_mig_slices_share_a_card_up_to_the_cap(here: World, nodes: VendorCluster) -> None:
    """Each is asked for in another way. The queue is charged in the keys of the model."""
    caps = {H100_KEY: 4, f"{H100_KEY}-memory": 36_672 + 18_304 + 9_152, f"{H100_KEY}-cores": 100}
    queue = here.add_queue("mig", capability=caps)
    by_resource = {f"{MIG_PREFIX}3g.40gb-h100": 1}
    two = Task(shares(model="h100"), annotations={SLICE: "2g.20gb"})
    one = Task(SMALL_MIG, annotations=IN_HARDWARE)
    here.submit(job("three", Task(by_resource), queue=queue))
    here.submit(job("two", two, queue=queue))
    here.submit(job("one", one, queue=queue))
    sizes = {"three": "3g.40gb", "two": "2g.20gb", "one": "1g.10gb"}
    given = {}
    for name, size in sizes.items():
        ((member, found),) = here.runs(name, 1).items()
        card = said(here, member)
        assert (card["uuid"], card["slice"]) == (H100, size)
        given[found["metadata"]["uid"]] = size
    assert owners(nodes, len(given)) == given

    here.submit(job("fourth", one, queue=queue))
    print(here.waits("fourth", "WaitingForQuota", "0 of 64128 MiB left"))
    here.check()
    here.delete("vcjob", "two")
    here.runs("fourth", 1)


@pytest.fixture
def on_demand(nodes: VendorCluster) -> Iterator[AgentOnNode]:
    """The MIG node's agent may make instances, beside one that its operator made. Later it is as before."""
    agent = nodes.agents["mig"]
    policy = agent.folder / "policy.yaml"
    before, card = policy.read_text(), agent.fake.cards[0]
    own = card.instances
    card.instances = [FakeInstance("MIG-operator", 1, 1, 0, 19968)]
    agent.fake.write()
    policy.write_text("defaults: {recoveryS: 2, migOnDemand: true}\n")
    wait_until("the card is for instances on demand", lambda: makes(nodes), 30)
    yield agent
    policy.write_text(before)
    card.instances = own
    agent.fake.write()
    wait_until("the card has the operator's instances", lambda: not makes(nodes), 30)


def makes(nodes: VendorCluster) -> bool:
    """Whether the H100 is offered as one on which instances are made, with what lies on it now."""
    (card,) = nodes.inventory("mig").cards
    seen = {one.id for one in card.slices}
    return card.offered and card.layout is not None and card.layout.made and seen == {"MIG-operator"}


def lying(agent: AgentOnNode) -> set[tuple[str, int]]:
    """Instances on its card: the operator's name or the profile's number, and the start."""
    agent.fake.take_in()
    there = agent.fake.cards[0].instances
    return {(one.uuid if one.uuid == "MIG-operator" else str(one.profile), one.start) for one in there}


def test_mig_instances_are_made_for_pods_and_removed_behind_them(here: World, on_demand: AgentOnNode) -> None:
    """A 3g lies beside the operator's 2g. Its pod goes while no agent is there. The next one removes it."""
    queue = here.add_queue("made", capability={H100_KEY: 4})
    large = pod("large", shares(model="h100"), queue=queue, annotations={SLICE: "3g.40gb"})
    small = pod("small", SMALL_MIG, queue=queue, annotations=IN_HARDWARE)
    one_by_one(here, {"large": large, "small": small})
    assert said(here, "large")["slice"] == "3g.40gb"
    (place,) = (start for name, start in lying(on_demand) if name == "0")
    assert lying(on_demand) == {("MIG-operator", 0), ("2", 4), ("0", place)} and place in (2, 3)

    here.submit(pod("more", shares(model="h100"), queue=queue, annotations={SLICE: "3g.40gb"}))
    print(here.waits("more", "WaitingForCards", "3g.40gb"))
    here.check()
    here.delete("pod", "more")
    on_demand.kill()
    here.delete("pod", "large")
    on_demand.start()
    on_demand.wait_ready()
    wait_until("the 3g is removed", lambda: len(lying(on_demand)) == 2, 60)
    here.submit(pod("later", shares(model="h100"), queue=queue, annotations={SLICE: "3g.40gb"}))
    here.runs("later", 1)
    assert lying(on_demand) == {("MIG-operator", 0), ("2", 4), ("0", place)}
    here.check()
    for name in ("small", "later"):
        here.delete("pod", name)
    wait_until("the operator's alone is left", lambda: lying(on_demand) == {("MIG-operator", 0)}, 60)


def test_a_tenant_s_queue_has_cards_of_all_vendors(here: World) -> None:
    queue = here.add_queue("all", capability={NPU: 2, DCU_KEY: 1, H100_KEY: 1})
    mixed = job(
        "mixed",
        Task(SMALL_NPU, name="npu"),
        Task(SMALL_DCU, name="dcu"),
        Task(SMALL_MIG, name="mig", annotations=IN_HARDWARE),
        queue=queue,
    )
    here.submit(mixed)
    members = here.runs("mixed", 3)
    rows = here.card_rows()
    models = {rows[uuid]["model"] for member in members.values() for uuid in cards_of(member)}
    assert models == {"910b3", "k100-ai", "h100"}
    assert {row["model"] for row in rows.values()} == models | {"h20"}

    table = here.stack.egpu("cards")
    print(table)
    for name, size in (("npu", "vir05_1c_16g"), ("dcu", "cu15"), ("mig", "1g.10gb")):
        (line,) = (line for line in table.splitlines() if f"mixed-{name}-0" in line)
        assert size in line

    here.submit(job("dcu", Task(SMALL_DCU), queue=queue))
    here.submit(job("npu", Task(SMALL_NPU), queue=queue))
    here.runs("npu", 1)
    print(here.waits("dcu", "WaitingForQuota", "k100-ai"))


def test_agents_of_nodes_without_other_vendors_log_nothing_about_them(nodes: VendorCluster) -> None:
    """All agents have been told that their nodes may have cards of every vendor."""
    for kind in ("mig", "plain"):
        told = [line for line in nodes.log(kind).splitlines() if VENDOR_WORDS.search(line)]
        assert not told, told
    assert "ygon" not in nodes.log("ascend")
    assert "scend" not in nodes.log("hygon")
