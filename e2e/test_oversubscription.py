"""Two programs that each want all of a card's memory share it: the stack as installed, on a fake driver."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from isolation.installed import installed, pod_on_one_card
from isolation.probe import MIB
from isolation.world import program
from localcluster.api import wait_until
from stack.install import Stack
from stack.kit import running
from vc_egpu.kube.resources import CONFIG_MAPS, NODES, PODS
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import Cards, NodeCards

NAMESPACE = "oversub"
SYSTEM = names.SYSTEM_NAMESPACE
H20_MIB = 98_304
OUT_OF_MEMORY = 2
ON_CARD_MIB, SPILLED_MIB = 45_000, 48_000
pytestmark = [pytest.mark.cluster, pytest.mark.long]


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with installed(NAMESPACE, cards=1) as stack:
        yield stack


def pod(name: str, memory_mib: int, command: tuple[str, ...], **limits: str) -> dict[str, Any]:
    """May spill."""
    spills = {names.OVERSUBSCRIBE: "true"}
    return pod_on_one_card(NAMESPACE, name, memory_mib, command, limits=limits, annotations=spills)


def asked(stack: Stack, name: str, *command: str) -> dict[str, Any]:
    """What a program says that is started beside the pod's own."""
    said = stack.kit.kubectl("exec", "-n", NAMESPACE, name, "--", *command).stdout
    answer: dict[str, Any] = json.loads(said.splitlines()[-1])
    return answer


def says(pods: dict[str, Any], name: str, what: str) -> bool | None:
    """Whether one of the pod's conditions says so."""
    conditions = (pods[name].get("status") or {}).get("conditions") or () if name in pods else ()
    return any(what in str(condition.get("message") or "") for condition in conditions) or None


def test_two_programs_that_each_want_the_whole_card_share_it(stack: Stack) -> None:
    (node,) = stack.kit.api.list(NODES).items
    inventory = NodeCards.decode(node["metadata"]["annotations"][names.NODE_CARDS])
    assert inventory.memory_ratio == 2.0
    assert inventory.host_memory_mib >= H20_MIB, "the halves of both that may spill"
    both = program("pile", ON_CARD_MIB, SPILLED_MIB)
    stack.kit.apply(pod("one", H20_MIB, both), pod("two", H20_MIB, both))
    stack.kit.pods_until("both run", NAMESPACE, lambda pods: len(running(pods)) == 2 or None)
    for name in ("one", "two"):
        found = stack.kit.api.get(PODS, name, NAMESPACE)
        (share,) = Cards.decode(found["metadata"]["annotations"][names.CARDS]).containers["main"]
        assert (share.memory_mib, share.physical_mib) == (H20_MIB, H20_MIB // 2)

        def piled(name: str = name) -> list[dict[str, int]] | None:
            lines = [line for line in stack.kit.api.pod_log(name, NAMESPACE).splitlines() if line[:1] == "{"]
            return json.loads(lines[0])["blocks"] if lines else None

        wait_until(f"{name} has its memory", lambda: piled() is not None, 60)
        assert piled() == [{"code": 0, "managed": 0}, {"code": 0, "managed": 1}]
        told = asked(stack, name, *program("memory"))
        assert told["total"] == H20_MIB * MIB
        assert told["free"] <= (H20_MIB - ON_CARD_MIB - SPILLED_MIB) * MIB
        assert asked(stack, name, *program("fill", 6_000))["code"] == OUT_OF_MEMORY
    stack.check_invariants()


@pytest.fixture
def promises_less(stack: Stack) -> Iterator[None]:
    """The operator changes the node policy; the agent reads it again, without a restart."""
    before = stack.kit.api.get(CONFIG_MAPS, names.POLICY_CONFIG_MAP, SYSTEM)["data"]
    less = {"policy.yaml": "defaults: {memoryRatio: 1.0, hostMemoryMiB: 0}\n"}
    for data, ratio in ((less, 1.0), (before, 2.0)):
        stack.kit.api.patch(CONFIG_MAPS, names.POLICY_CONFIG_MAP, {"data": data}, SYSTEM)

        def said(nodes: dict[str, Any], ratio: float = ratio) -> bool | None:
            (node,) = nodes.values()
            inventory = NodeCards.decode(node["metadata"]["annotations"][names.NODE_CARDS])
            return inventory.memory_ratio == ratio or None

        stack.kit.until(f"the agent promises memory {ratio} times", NODES, said, timeout_s=240)
        if data is less:
            yield


@pytest.mark.usefixtures("promises_less")
def test_what_is_promised_less_harms_nobody_who_has_it(stack: Stack) -> None:
    """The two of the test before run on; nobody else finds room for what would spill."""
    stack.kit.apply(pod("third", 1_000, program("memory")))
    stack.kit.pods_until("it waits", NAMESPACE, lambda pods: says(pods, "third", "no place for it now"))
    for name in ("one", "two"):
        (status,) = stack.kit.api.get(PODS, name, NAMESPACE)["status"]["containerStatuses"]
        assert (status["restartCount"], "running" in status["state"]) == (0, True)
        assert asked(stack, name, *program("memory"))["total"] == H20_MIB * MIB


def test_who_could_not_hold_what_it_spills_is_told_why_it_waits(stack: Stack) -> None:
    stack.kit.kubectl("delete", "pod", "--all", "-n", NAMESPACE, "--wait=true")
    stack.kit.apply(pod("tight", 40_000, program("memory"), memory="1Gi"))

    why = "may spill 20000 MiB with a memory limit of 1024 MiB"
    assert stack.kit.pods_until("it is told why", NAMESPACE, lambda pods: says(pods, "tight", why))
