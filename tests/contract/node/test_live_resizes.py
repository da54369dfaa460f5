"""The agent's part of a resize: less memory only where no more is used, and an answer on the Node."""

import dataclasses
from typing import Any

import pytest
from contract.node.node_world import World
from contract.node.test_live_limits import Isolated
from vc_egpu.volcano.resizing.notes import NodeResizes, ResizeNote, ResizeReport, Stage, with_sizes
from vc_egpu.volcano.words.annotations import Cards, CardShare
from vc_egpu_node.isolation.live_limits import LiveLimits


class Resizing(Isolated):
    """A node, and what its driver sees of each container, in MiB of card 1."""

    def __init__(self, world: World) -> None:
        self.used_mib: dict[str, int] = {}
        self.looks = 0
        super().__init__(world)

    def restart(self) -> None:
        super().restart()
        self.live = LiveLimits(
            node="node-1",
            grants=self.world.grants,
            pods=self.world.pods,  # type: ignore[arg-type]
            identity=self.world.identity,
            isolation=self.isolation,
            tell=lambda _namespace, pod, _uid, reason, text: self.told.append((pod, reason, text)),
            count=self.counted.append,
            used_mib=self.seen,
        )

    def seen(self, grant: Any) -> dict[str, int]:
        self.looks += 1
        return {"GPU-1": self.used_mib.get(grant.pod, 0)}

    def says(
        self, pod: Any, stage: Stage, then: int, *, now: int, cores: int = 0, number: str = "1-9"
    ) -> None:
        """The admission layer writes cards and note."""
        share = CardShare(uuid="GPU-1", memory_mib=then, cores=cores)
        was = Cards.decode(pod.cards).containers
        note = ResizeNote(pod_uid=pod.uid, number=number, stage=stage, was=was, then={"main": (share,)})
        held = CardShare(uuid="GPU-1", memory_mib=now, cores=cores)
        cards = with_sizes(Cards.decode(pod.cards), {"main": (held,)})
        self.world.pods.put(dataclasses.replace(pod, cards=cards.encode(), resized=note.encode()))

    def limit_mib(self, pod: str) -> int:
        return self.page(pod).limits[0].memory_bytes >> 20

    def answer(self, pod: str) -> ResizeReport | None:
        return NodeResizes.decode(self.live.told).pods.get(f"u-{pod}") if self.live.told else None


@pytest.fixture
def node(world: World) -> Resizing:
    return Resizing(world)


def test_more_is_applied_and_answered(node: Resizing) -> None:
    pod = node.start("p", 4000, "s1")
    assert node.live.apply() == 0
    assert node.live.told is None
    node.says(pod, Stage.APPLYING, 9000, now=9000, cores=40)
    assert node.live.apply() == 1
    assert node.page("p").limits[0].cores_percent == 40
    assert (node.limit_mib("p"), node.answer("p")) == (9000, ResizeReport(number="1-9", state="applied"))
    node.says(pod, Stage.DONE, 9000, now=9000, cores=40)
    assert node.live.apply() == 0
    assert node.live.told is None, "it is not asked any more"


def test_more_than_the_card_has_is_refused_with_numbers(node: Resizing) -> None:
    pod = node.start("p", 4000, "s1")
    node.start("q", 90_000, "s2")
    node.says(pod, Stage.APPLYING, 9000, now=9000)
    assert node.live.apply() == 0
    answer = node.answer("p")
    assert answer is not None
    assert (answer.state, node.limit_mib("p")) == ("refused", 4000)
    assert "9000 MiB do not fit, 90000 of 98304 MiB are held" in answer.reason


def test_less_is_in_force_before_it_is_answered(node: Resizing) -> None:
    pod = node.start("p", 4000, "s1")
    node.used_mib["p"] = 2000
    node.says(pod, Stage.LOWERING, 2000, now=4000)
    assert node.live.apply() == 1
    assert (node.limit_mib("p"), node.answer("p")) == (2000, ResizeReport(number="1-9", state="lowered"))
    assert node.isolation.ceilings(node.page("p").name) == {}, "nothing above is left to it"
    node.restart()
    assert node.live.apply() == 0
    assert (node.limit_mib("p"), node.answer("p")) == (2000, ResizeReport(number="1-9", state="lowered"))
    node.says(pod, Stage.APPLYING, 2000, now=2000)
    assert node.live.apply() == 0
    assert node.answer("p") == ResizeReport(number="1-9", state="applied")


def test_less_than_the_container_uses_is_refused_with_numbers(node: Resizing) -> None:
    pod = node.start("p", 4000, "s1")
    node.used_mib["p"] = 2001
    node.says(pod, Stage.LOWERING, 2000, now=4000)
    for _ in range(2):
        assert node.live.apply() == 0
    answer = node.answer("p")
    assert answer is not None
    assert (answer.state, node.limit_mib("p")) == ("refused", 4000)
    assert answer.reason == "container main uses 2001 MiB of card GPU-1 now, which is more than 2000 MiB"
    node.says(pod, Stage.LOWERING, 2001, now=4000, number="1-10")
    assert node.live.apply() == 1
    assert (node.limit_mib("p"), node.answer("p")) == (2001, ResizeReport(number="1-10", state="lowered"))


def test_what_was_allocated_while_the_limit_fell_is_kept(node: Resizing) -> None:
    """The library looks at the page before an allocation; one may have looked a moment before."""
    pod = node.start("p", 4000, "s1")

    class Growing(dict[str, int]):
        def get(self, key: str, default: Any = 0) -> Any:
            return 3000 if node.looks > 1 else default

    node.used_mib = Growing()
    node.says(pod, Stage.LOWERING, 2000, now=4000)
    node.live.apply()
    answer = node.answer("p")
    assert answer is not None
    assert (answer.state, node.limit_mib("p")) == ("refused", 4000)
    assert "uses 3000 MiB" in answer.reason


def test_an_order_that_is_taken_back_gives_the_memory_back(node: Resizing) -> None:
    pod = node.start("p", 4000, "s1")
    node.says(pod, Stage.LOWERING, 2000, now=4000)
    node.live.apply()
    node.says(pod, Stage.REFUSED, 2000, now=4000)
    assert node.live.apply() == 1
    assert (node.limit_mib("p"), node.live.told) == (4000, None)


def test_a_container_that_does_not_run_yet_is_not_lowered(node: Resizing) -> None:
    pod = node.start("p", 4000, "s1")
    share = CardShare(uuid="GPU-1", memory_mib=1000, cores=0)
    note = ResizeNote(pod_uid=pod.uid, number="1-9", stage=Stage.LOWERING, was={}, then={"side": (share,)})
    node.world.pods.put(dataclasses.replace(pod, resized=note.encode()))
    node.live.apply()
    answer = node.answer("p")
    assert answer is not None
    assert answer.reason == "container side does not run yet"


@pytest.mark.parametrize("text", ["{", '{"version": 1}', "x" * 1000])
def test_a_note_that_cannot_be_read_changes_nothing(node: Resizing, text: str) -> None:
    pod = node.start("p", 4000, "s1")
    node.world.pods.put(dataclasses.replace(pod, resized=text))
    assert node.live.apply() == 0
    assert (node.limit_mib("p"), node.live.told) == (4000, None)


def test_a_note_for_another_pod_changes_nothing(node: Resizing) -> None:
    pod = node.start("p", 4000, "s1")
    node.says(dataclasses.replace(pod, uid="u-else"), Stage.LOWERING, 1000, now=4000)
    text = next(one.resized for one in node.world.pods.views() if one.uid == "u-else")
    node.world.pods.put(dataclasses.replace(pod, resized=text))
    assert node.live.apply() == 0
    assert (node.limit_mib("p"), node.live.told) == (4000, None)
