"""`kubectl egpu cards` where very many pods hold cards: metadata alone are read, and say the same."""

import io
import tracemalloc
from collections.abc import Iterator

import pytest
from rich.console import Console, RenderableType
from unit.cli import documents as docs
from vc_egpu.cli import world
from vc_egpu.cli.views import cards, render
from vc_egpu.core.model.cluster import SuspensionState
from vc_egpu.kube import Json
from vc_egpu.volcano.codec.suspension import NodeSuspension, PodSuspension, SuspendOrder
from vc_egpu.volcano.measured.notes import NodeUseNote
from vc_egpu.volcano.words import names


def bare(pod: Json) -> Json:
    """What an API server sends of it where metadata are asked for."""
    return {"kind": "PartialObjectMetadata", "metadata": pod["metadata"]}


def pods() -> Iterator[Json]:
    yield docs.pod("train-0", cards={"GPU-a": (61440, 100)}, share_class="low")
    yield docs.pod("infer-0", cards={"GPU-a": (30720, 50)}, share_class="high")
    yield docs.pod("waits-0", gated=True)


def test_metadata_tell_what_whole_pods_tell() -> None:
    nodes = [docs.node("n1", docs.card("GPU-a"))]
    whole = cards.report(nodes, pods())
    (row,) = cards.report(nodes, (world.told_by_metadata(bare(pod)) for pod in pods())).cards
    assert row == whole.cards[0]


def test_a_pod_that_is_deleted_still_holds_its_card() -> None:
    pod = docs.pod("goes-0", cards={"GPU-a": (1024, 10)})
    pod["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    (row,) = cards.report([docs.node("n1", docs.card("GPU-a"))], [world.told_by_metadata(bare(pod))]).cards
    assert [sharer.phase for sharer in row.sharers] == ["Terminating"]
    assert row.used_mib == 1024


def test_no_more_is_kept_of_a_pod_than_its_row_needs() -> None:
    pod = docs.pod("train-0", cards={"GPU-a": (61440, 100)})
    pod["metadata"]["managedFields"] = [{"manager": "x" * 1000}]
    pod["metadata"]["annotations"]["a/b"] = "y" * 100_000
    light = world.told_by_metadata(bare(pod))
    assert len(str(light)) < 3000
    assert names.CARDS in light["metadata"]["annotations"]


def test_a_pod_that_left_its_card_is_told_by_its_node() -> None:
    """Its metadata have the order; whether it has left stands on the Node."""
    pod = docs.pod("away-0", cards={"GPU-a": (1024, 10)}, share_class="low")
    order = SuspendOrder(pod_uid="uid-away-0", plan_id="1-2")
    pod["metadata"]["annotations"][names.SUSPEND] = order.encode()
    said = NodeSuspension(pods={"uid-away-0": PodSuspension(state=SuspensionState.SUSPENDED, plan_id="1-2")})
    node = docs.node("n1", docs.card("GPU-a"), annotations={names.NODE_SUSPENSION: said.encode()})
    light = [world.told_by_metadata(bare(pod))]
    (row,) = cards.report([node], cards.with_answers([node], light)).cards
    assert [sharer.phase for sharer in row.sharers] == ["Suspended"]
    assert (row.used_mib, row.suspended_mib) == (0, 1024)


@pytest.mark.long
def test_28_000_pods_take_little_memory() -> None:
    made = [docs.pod(f"p-{number}", cards={"GPU-a": (1, 0)}) for number in range(28_000)]
    tracemalloc.start()
    kept = [world.told_by_metadata(bare(pod)) for pod in made]
    size_mib = tracemalloc.get_traced_memory()[0] / (1 << 20)
    tracemalloc.stop()
    assert len(kept) == 28_000
    assert size_mib < 150


def test_how_busy_a_card_was_stands_beside_it_where_its_node_tells() -> None:
    said = NodeUseNote.model_validate({"at": 1000, "cards": {"GPU-a": {"compute": 70, "memory": 40}}})
    told = docs.node("n1", docs.card("GPU-a"), annotations={names.NODE_USE: said.encode()})
    silent = docs.node("n2", docs.card("GPU-b"))
    one, other = cards.report([told, silent], (), now=1100.0).cards
    assert (one.compute_points, one.memory_points) == (70, 40)
    assert (other.compute_points, other.memory_points) == (None, None)
    old = cards.report([told, silent], (), now=1000.0 + 3600).cards
    assert [row.compute_points for row in old] == [None, None]
    lines = drawn(render.cards(cards.report([told, silent], (), now=1100.0)))
    assert "USED % compute|memory" in lines[0]
    assert "70|40" in lines[1]
    assert "USED" not in drawn(render.cards(cards.report([told, silent], (), now=9999.0)))[0]


def drawn(shown: RenderableType) -> list[str]:
    console = Console(width=render.WIDTH, file=io.StringIO())
    with console.capture() as captured:
        console.print(shown)
    return captured.get().splitlines()
