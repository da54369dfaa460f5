"""Containers with the library: let in with pages, changed while they run, found again by the next agent."""

import dataclasses
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from contract.node.node_world import RES, World, planned
from vc_egpu.volcano.words.annotations import Cards, CardShare
from vc_egpu_node.isolation.control import Control, Timings
from vc_egpu_node.isolation.lifecycle import Isolation
from vc_egpu_node.isolation.live_limits import LiveLimits
from vc_egpu_node.isolation.pages import SharedPages
from vc_egpu_node.vendors.nvidia.preload import LIBRARY_NAME, install

ELF = b"\x7fELF\x02\x01" + bytes(12) + (62).to_bytes(2, "little")


class Isolated:
    """A node with the library."""

    def __init__(self, world: World) -> None:
        self.world = world
        (world.root / LIBRARY_NAME).write_bytes(ELF)
        self.told: list[tuple[str, str, str]] = []
        self.counted: list[str] = []
        self.restart()
        world.serve()

    def restart(self) -> None:
        """The next agent, from what is on disk."""
        self.world.link.stop()  # a server that is collected later would take the next one's socket away
        self.isolation = self.world.isolation = Isolation(
            install(self.world.root / LIBRARY_NAME, self.world.root / "library", "x86_64"),
            self.world.root / "containers",
            SharedPages(self.world.root / "run"),
            pci_bus_ids=lambda: {f"GPU-{n}": f"00000000:{n:02X}:00.0" for n in range(4)},
            timings=Timings,
        )
        self.world.assemble()
        self.live = LiveLimits(
            node="node-1",
            grants=self.world.grants,
            pods=self.world.pods,  # type: ignore[arg-type]
            identity=self.world.identity,
            isolation=self.isolation,
            tell=lambda _namespace, pod, _uid, reason, text: self.told.append((pod, reason, text)),
            count=self.counted.append,
        )

    def allocate(self, name: str, mib: int, slot: str, **changes: Any) -> Any:
        """A pod with one container on card 1 that is about to start."""
        pod = planned(name, f"u-{name}", {"main": [("GPU-1", mib)]}, **changes)
        self.world.pods.put(pod)
        self.world.kubelet.allocate(("ns", name, "main"), RES, (slot,), pod.uid)
        return pod

    def start(self, name: str, mib: int, slot: str, **changes: Any) -> Any:
        """And starts."""
        pod = self.allocate(name, mib, slot, **changes)
        self.world.kubelet.pre_start(RES, (slot,))
        return pod

    def change(self, pod: Any, *shares: tuple[str, int, int], **changes: Any) -> None:
        """The admission layer writes the annotation again."""
        values = {
            **Cards.decode(pod.cards).model_dump(),
            "containers": {"main": tuple(CardShare(uuid=u, memory_mib=m, cores=c) for u, m, c in shares)},
            **changes,
        }
        self.world.pods.put(dataclasses.replace(pod, cards=Cards(**values).encode()))

    def page(self, pod: str) -> Control:
        """The control page of a pod's one container."""
        name = next(grant.name for grant in self.world.grants.all() if grant.pod == pod)
        page = self.isolation.file(name).read()
        assert page is not None
        return page


@pytest.fixture
def node(world: World) -> Isolated:
    return Isolated(world)


def test_limits_change_while_a_container_runs(node: Isolated) -> None:
    pod = node.start("p", 4000, "s1")
    node.start("q", 4000, "s2")
    assert node.live.apply() == 0
    before = node.isolation.file(node.page("p").name).path.stat().st_ino
    node.change(pod, ("GPU-1", 2000, 30), share_class="high", plan_id="1-2")
    assert node.live.apply() == 1
    page = node.page("p")
    assert (page.limits[0].memory_bytes, page.limits[0].cores_percent) == (2000 << 20, 30)
    assert node.isolation.file(page.name).path.stat().st_ino == before
    assert node.page("q").peers[0].peer_class == page.own_class == 2
    assert node.isolation.ceilings(page.name) == {"GPU-1": 4000}
    assert node.live.apply() == 0
    assert (node.told, node.counted) == ([], ["applied"])
    node.restart()
    node.isolation.refresh(node.world.grants.all())
    assert node.page("p") == page
    assert node.live.apply() == 0
    node.world.serve()
    node.world.kubelet.pre_start(RES, ("s1",))  # and its next start finds the same
    assert node.page("p") == page


def test_what_does_not_fit_is_told_and_not_applied(node: Isolated) -> None:
    pod = node.start("p", 4000, "s1")
    other = node.start("q", 90_000, "s2")
    node.change(pod, ("GPU-1", 9000, 0))
    for _ in range(2):
        assert node.live.apply() == 0
    assert node.page("p").limits[0].memory_bytes == 4000 << 20
    ((name, reason, text),) = node.told
    assert (name, reason) == ("p", "LimitsNotApplied")
    assert "9000 MiB do not fit, 90000 of 98304 MiB are held" in text
    node.world.pods.remove(other)
    node.world.grants.release(next(g.name for g in node.world.grants.all() if g.pod == "q"))
    assert node.live.apply() == 1
    assert node.page("p").limits[0].memory_bytes == 9000 << 20
    assert node.counted == ["refused", "applied"]


def test_two_pods_that_trade_memory(node: Isolated) -> None:
    one, two = node.start("p", 60_000, "s1"), node.start("q", 38_000, "s2")
    node.change(two, ("GPU-1", 58_000, 0))
    node.change(one, ("GPU-1", 40_000, 0))
    assert node.live.apply() + node.live.apply() == 2
    assert node.page("q").limits[0].memory_bytes == 58_000 << 20


@pytest.mark.parametrize("share", [("GPU-2", 4000, 0), ("GPU-9", 1, 0)])
def test_cards_of_a_running_container_do_not_change(node: Isolated, share: tuple[str, int, int]) -> None:
    pod = node.start("p", 4000, "s1")
    before = node.page("p")
    node.change(pod, share)
    assert node.live.apply() == 0
    assert "its cards cannot change" in node.told[0][2]
    assert node.page("p") == before


def test_malformed_annotations_leave_the_limits(node: Isolated) -> None:
    pod = node.start("p", 4000, "s1")
    before = node.page("p")
    for text in ("", "{", '{"version": 2}'):
        node.world.pods.put(dataclasses.replace(pod, cards=text))
        assert node.live.apply() == 0
    assert len(node.told) == 3
    assert node.page("p") == before


def test_many_at_once_all_know_each_other(node: Isolated) -> None:
    names = [f"p{n}" for n in range(16)]
    for number, name in enumerate(names):
        node.allocate(name, 1000, f"s{number}")
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda n: node.world.kubelet.pre_start(RES, (f"s{n}",)), range(16)))
    own = {grant.pod: grant.name for grant in node.world.grants.all()}
    for name in names:
        assert {peer.name for peer in node.page(name).peers} == set(own.values()) - {own[name]}


def test_a_folder_for_pages_that_fails_lets_nobody_in(
    node: Isolated, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(node.isolation.pages, "clear", refuse)
    with pytest.raises(grpc.RpcError, match="No space left"):
        node.start("p", 4000, "s1")
    assert node.world.grants.all() == []
    assert not list((node.world.root / "cdi").iterdir())
    monkeypatch.undo()
    node.world.kubelet.pre_start(RES, ("s1",))
    assert node.page("p").limits[0].memory_bytes == 4000 << 20


def test_what_no_page_holds_lets_nobody_in(node: Isolated) -> None:
    """More cards than the library knows, say, or names that are too long for it."""
    world, uuid = node.world, "GPU-" + "0" * 60
    cards = tuple(one.model_copy(update={"uuid": uuid}) for one in world.stock.node_cards.cards[:1])
    listed = world.stock.node_cards.model_copy(update={"cards": cards})
    world.stock = dataclasses.replace(world.stock, node_cards=listed)
    world.pods.put(planned("p", "u-p", {"main": [(uuid, 4000)]}))
    world.kubelet.allocate(("ns", "p", "main"), RES, ("s1",), "u-p")
    with pytest.raises(grpc.RpcError, match="more than 47 bytes") as caught:
        world.kubelet.pre_start(RES, ("s1",))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert world.grants.all() == []
    assert node.isolation.paged == frozenset()
    assert not list((world.root / "cdi").iterdir())


def test_what_an_agent_left_that_died_in_the_middle_goes(node: Isolated) -> None:
    """Of its pages there is one in memory that nobody else would free before the next reboot."""
    node.start("p", 1000, "s1")
    name = node.page("p").name
    node.world.grants.path(name).unlink()
    node.restart()
    assert node.world.grants.leftovers() == {name: "u-p"}
    assert node.isolation.paged == {name}
    node.world.grants.release(name)
    assert node.isolation.paged == frozenset()
    assert [path for path in (node.world.root / "run").rglob("*") if path.is_file()] == []
    assert node.world.grants.leftovers() == {}


def test_pages_follow_while_containers_come_and_go(node: Isolated) -> None:
    """Readers of one container's page see whole pages only, whatever its neighbours do."""
    node.start("p", 1000, "s0")
    file = node.isolation.file(node.page("p").name)
    done = threading.Event()
    odd: list[int] = []

    def read() -> None:
        while not done.is_set():
            page = file.read()
            if page is not None and any(peer.cards != 1 for peer in page.peers):
                odd.append(len(page.peers))

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(30):
        node.start(f"q{number}", 1000, f"s{number + 1}")
        if number % 2:
            node.world.grants.release(next(g.name for g in node.world.grants.all() if g.pod == f"q{number}"))
    done.set()
    reader.join()
    assert len(node.page("p").peers) == 15
    assert odd == []


def test_who_is_given_less_has_it_at_once_though_the_card_holds_too_much(node: Isolated) -> None:
    """A ratio that was lowered, say: were each refused for the others' sake, it would stay so for good."""
    one, two = node.start("p", 60_000, "s1"), node.start("q", 30_000, "s2", share_class="low")
    node.world.stock = dataclasses.replace(node.world.stock, nominal_mib={"h20": 50_000})
    node.change(one, ("GPU-1", 40_000, 0))
    assert node.live.apply() == 1
    assert node.page("p").limits[0].memory_bytes == 40_000 << 20
    for shares, changes in (
        (("GPU-1", 40_001, 0), {}),
        (("GPU-1", 40_000, 1), {}),
        (("GPU-1", 30_000, 0), {"share_class": "low"}),
    ):
        node.change(one, shares, **changes)
        assert node.live.apply() == 0
    node.change(one, ("GPU-1", 25_000, 0))
    node.change(two, ("GPU-1", 25_000, 0))
    assert node.live.apply() == 2
