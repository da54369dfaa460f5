"""What users of other stacks' metrics complain of, tried on ours: see docs/figures-elsewhere.md."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry
from unit.node.granted import grant
from vc_egpu.metrics.vocabulary import ALL
from vc_egpu.volcano.words.annotations import NodeCard, NodeCards
from vc_egpu_node.cards.monitor import Observation
from vc_egpu_node.containers.cdi import Grant
from vc_egpu_node.containers.processes import Use
from vc_egpu_node.metrics import Metrics, View
from vc_egpu_node.metrics.compute_time import ComputeTime, ShareKey
from vc_egpu_node.vendors.base import CardReading, CardSample, NodeReading

MIB = 1 << 20
SAMPLE = CardSample(memory_used_mib=30_000, memory_free_mib=68_304, gpu_util_percent=90, power_w=400.0)
CARDS = tuple(CardReading(f"GPU-{at}", at, "NVIDIA H20", 98_304) for at in range(2))


def held(pod: str, container: str, mib: int = 10_000, cores: int = 25, *, native: bool = False) -> Grant:
    share = ("GPU-0", mib, cores)
    return replace(
        grant(f"{pod}-{container}", share), namespace="ml", pod=pod, container=container, native=native
    )


def shown(
    grants: Sequence[Grant] = (), uses: Iterable[Use] = (), samples: dict[str, CardSample] | None = None
) -> CollectorRegistry:
    """The page of an agent with two cards of which each tells who runs on it."""
    seen = Observation(
        reading=NodeReading(cards=CARDS),
        processes={"GPU-0": (), "GPU-1": ()},
        samples={"GPU-0": SAMPLE, "GPU-1": SAMPLE} if samples is None else samples,
    )
    cards = NodeCards(
        cards=tuple(NodeCard(uuid=one.uuid, index=one.index, model="h20", memory_mib=98_304) for one in CARDS)
    )
    view = View("n1", seen, cards, grants=grants, uses=tuple(uses))
    return Metrics(lambda: view).registry


def value(registry: CollectorRegistry, name: str, pod: str, container: str = "main") -> float | None:
    labels = {"namespace": "ml", "pod": pod, "container": container, "uuid": "GPU-0"}
    return registry.get_sample_value(f"egpu_node_container_{name}", labels)


def test_dcgm_names_are_a_card_s_and_carry_no_pod() -> None:
    families = [one for one in shown([held("a", "main")]).collect() if one.name.startswith("DCGM")]
    assert len(families) >= 4
    for family in families:
        assert len(family.samples) == len(CARDS), "one series for each card, however many share it"
        assert all(not {"pod", "namespace", "container"} & sample.labels.keys() for sample in family.samples)


def test_the_figures_of_sharers_are_their_own_and_no_more_than_the_card_s() -> None:
    uses = [Use("ml", "a", "main", "GPU-0", 9_000, 60), Use("ml", "b", "main", "GPU-0", 4_000, 30)]
    registry = shown([held("a", "main"), held("b", "main")], uses)
    used = [value(registry, "memory_used_bytes", pod) for pod in ("a", "b")]
    assert used == [9_000 * MIB, 4_000 * MIB]
    (of_card,) = [
        sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "DCGM_FI_DEV_FB_USED" and sample.labels["UUID"] == "GPU-0"
    ]
    assert sum(filter(None, used)) <= of_card * MIB


def test_who_idles_is_there_with_0_from_the_start() -> None:
    registry = shown([held("idle", "main")])
    for name in ("memory_used_bytes", "compute_used_seconds_total", "suspended_seconds_total"):
        assert value(registry, name, "idle") == 0


def test_two_containers_of_one_pod_have_figures_of_their_own() -> None:
    uses = [Use("ml", "a", "main", "GPU-0", 3_000, 10), Use("ml", "a", "side", "GPU-0", 500, 0)]
    registry = shown([held("a", "main"), held("a", "side", 1_000)], uses)
    assert value(registry, "memory_used_bytes", "a", "main") == 3_000 * MIB
    assert value(registry, "memory_used_bytes", "a", "side") == 500 * MIB


def test_a_whole_card_is_measured_like_a_share() -> None:
    whole = held("whole", "main", 98_304, 100, native=True)
    registry = shown([whole], [Use("ml", "whole", "main", "GPU-0", 50_000, 80)])
    assert value(registry, "memory_used_bytes", "whole") == 50_000 * MIB


def test_a_card_whose_readings_fail_costs_its_own_series_alone() -> None:
    registry = shown([held("a", "main")], samples={"GPU-1": SAMPLE})
    told = {
        sample.labels["UUID"]
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "DCGM_FI_DEV_FB_USED"
    }
    assert told == {"GPU-1"}
    assert value(registry, "memory_granted_bytes", "a") == 10_000 * MIB


@pytest.mark.parametrize(("percents", "most"), [((100, 80), 10.0), ((55, 0), 5.5), ((0, 0), 0.0)])
def test_time_that_is_used_never_grows_faster_than_time(percents: tuple[int, int], most: float) -> None:
    now = 100.0
    uses = [Use("ml", pod, "main", "GPU-0", 1, part) for pod, part in zip("ab", percents, strict=True)]
    keys: list[ShareKey] = [("ml", pod, "main", "GPU-0") for pod in "ab"]
    counted = ComputeTime(lambda: uses, lambda: keys, lambda: now)
    counted.look()
    now = 110.0
    counted.look()
    assert sum(counted.seconds().values()) == pytest.approx(most)


def test_what_a_queue_may_have_is_called_as_in_its_document() -> None:
    names = {one.name.removeprefix("egpu_queue_") for one in ALL if one.name.startswith("egpu_queue_")}
    assert {"capability", "deserved", "guarantee"} <= names
    assert not {name for name in names if re.search("quota|limit|over_?quota|max", name)}


def test_power_is_told_of_cards_alone() -> None:
    of_containers = [one.name for one in ALL if "_container_" in one.name]
    assert len(of_containers) > 5
    assert not [name for name in of_containers if re.search("power|energy|temp|util", name)]
