"""From readings to what the node offers: whatever the library says ends in a reason, never an exception."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vc_egpu.core.topology.links import Near
from vc_egpu.volcano.codec import cluster_codec
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import NodeCard, NodeCards
from vc_egpu.volcano.words.model_table import GpuModel, ModelTable
from vc_egpu.volcano.words.node_policy import Policy, parse_policy
from vc_egpu_node.cards.inventory import (
    CORDONED,
    Holding,
    Inventory,
    NodeFacts,
    Offer,
    counters,
    is_counter,
    labels,
    row_for,
    take_stock,
)
from vc_egpu_node.vendors.base import SHARED, Ability, CardReading, NodeReading
from vc_egpu_node.vendors.nvidia.words import FACTS

TABLE = ModelTable(
    models=(
        GpuModel(name="h20", products=("NVIDIA H20",), memory_mib=98304),
        GpuModel(name="t4", products=("Tesla T4",), memory_mib=15360),
    )
)


def card(number: int, **changes: object) -> CardReading:
    base = CardReading(uuid=f"GPU-{number}", index=number, product="NVIDIA H20", memory_mib=98304)
    return replace(base, **changes)  # type: ignore[arg-type]


def stock(
    *cards: CardReading,
    facts: NodeFacts = NodeFacts(),  # noqa: B008 - a frozen value
    ill: dict[str, str] | None = None,
    holdings: dict[str, Holding] | None = None,
    previous: NodeCards | None = None,
    policy: Policy | None = None,
    problem: str = "",
) -> Inventory:
    return take_stock(
        NodeReading(cards=cards, problem=problem),
        table=TABLE,
        policy=policy or Policy(),
        facts=facts,
        ill=ill or {},
        holdings=holdings or {},
        previous=previous,
        vendor=FACTS,
    )


@pytest.mark.parametrize(("isolated", "kept"), [(True, "library"), (False, "none")])
def test_cards_say_whether_containers_get_the_library(isolated: bool, kept: str) -> None:
    result = take_stock(
        NodeReading(cards=(card(0),)),
        table=TABLE,
        policy=Policy(),
        facts=NodeFacts(),
        ill={},
        holdings={},
        previous=None,
        vendor=FACTS,
        isolated=isolated,
    )
    assert result.node_cards.cards[0].isolation == kept


OLD, NEW = SHARED, SHARED | {"limit"}


@pytest.mark.parametrize(
    ("wanted", "card_and_agent", "kept", "reason"),
    [
        ("auto", (NEW, "", True), "driver", ""),
        ("auto", (NEW, "no right", True), "library", ""),
        ("auto", (OLD, "", True), "library", ""),
        ("auto", (NEW, "", False), "none", ""),
        ("library", (NEW, "", True), "library", ""),
        ("none", (NEW, "", True), "none", ""),
        ("driver", (NEW, "", True), "driver", ""),
        ("driver", (NEW, "no right", True), "library", "wants isolation: driver, and no right"),
        ("driver", (OLD, "", True), "library", "and its driver has no memory limits for containers"),
        ("driver", (NEW, "", False), "none", "and the agent runs without --library"),
    ],
)
def test_what_holds_the_memory_follows_from_node_and_policy(
    wanted: str, card_and_agent: tuple[frozenset[Ability], str, bool], kept: str, reason: str
) -> None:
    abilities, trouble, isolated = card_and_agent
    taken = take_stock(
        NodeReading(cards=(card(0, abilities=abilities),)),
        table=TABLE,
        policy=parse_policy(f"defaults: {{isolation: {wanted}}}", "n"),
        facts=NodeFacts(),
        ill={},
        holdings={},
        previous=None,
        vendor=FACTS,
        isolated=isolated,
        no_driver_limits=trouble,
    )
    (found,) = taken.node_cards.cards
    assert (found.isolation, found.offered, reason in found.reason) == (kept, not reason, True)
    assert taken.needs_library == (wanted != "none")


def test_what_others_hold_apart_no_policy_changes() -> None:
    cut = card(0, isolation="hardware", abilities=frozenset({"slice"}))
    for wanted in ("auto", "driver", "library", "none"):
        policy = parse_policy(f"defaults: {{isolation: {wanted}}}", "n")
        assert stock(cut, policy=policy).node_cards.cards[0].isolation == "hardware"


def test_healthy_cards_are_offered_by_model() -> None:
    result = stock(card(0), card(1), card(2, product="tesla t4 ", memory_mib=15360))
    assert result.offers == {"volcano.sh/vgpu-h20": Offer(2, 0), "volcano.sh/vgpu-t4": Offer(1, 0)}
    assert [entry.model for entry in result.node_cards.cards] == ["h20", "h20", "t4"]
    assert all(entry.offered and entry.healthy and not entry.reason for entry in result.node_cards.cards)


UNHEARD_OF = (
    "product 'NVIDIA Unheard-Of' is not in the model table; "
    'a row for it: {name: unheard-of, products: ["NVIDIA Unheard-Of"], memoryMiB: 98304}'
)


@pytest.mark.parametrize(
    ("product", "name"),
    [("Ascend910B4-1", "910b4-1"), ("K100_AI", "k100-ai"), ("NVIDIA H100 80GB HBM3", "h100-80gb-hbm3"),
     ("", "card"), ("NVIDIA 310", "310"), ("No", "no"),
     ('a: "b"}', "a-b"), ("\n" * 200, "card"), ("x" * 200, "x" * 32)],
)  # fmt: skip
def test_a_proposed_row_is_one_that_the_table_takes(product: str, name: str) -> None:
    table = ModelTable.from_yaml(f"models:\n  - {row_for(card(0, product=product))}")
    assert (table.models[0].name, table.models[0].memory_mib) == (name, 98304)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"product": "NVIDIA Unheard-Of"}, UNHEARD_OF),
        ({"memory_mib": 97871}, "NVML reports 97871 MiB, model h20 needs 98304"),
        ({"memory_mib": 0}, "NVML reports 0 MiB, model h20 needs 98304"),
        ({"memory_mib": 1 << 44}, f"NVML reports a memory of {1 << 44} MiB"),
        ({"abilities": frozenset({"slice"})}, "MIG mode is on"),
        (
            {"closed_to": "others"},
            "its compute mode lets one program alone in: nvidia-smi -i GPU-0 -c DEFAULT",
        ),
        ({"closed_to": "all"}, "its compute mode lets no program in: nvidia-smi -i GPU-0 -c DEFAULT"),
    ],
)
def test_cards_that_are_not_offered_say_why(changes: dict[str, object], reason: str) -> None:
    result = stock(card(0, **changes), card(1))
    bad = result.node_cards.cards[0]
    assert (bad.offered, bad.reason) == (False, reason)
    assert result.offers == {"volcano.sh/vgpu-h20": Offer(1, 0)}
    assert not result.node_cards.problem


def test_a_card_on_which_nothing_could_start_is_not_offered() -> None:
    result = stock(card(0), card(1), facts=NodeFacts(unusable={"GPU-0": "not in NVIDIA's CDI spec"}))
    assert result.node_cards.cards[0].reason == "not in NVIDIA's CDI spec"
    assert result.offers == {"volcano.sh/vgpu-h20": Offer(1, 0)}


def test_ill_and_cordoned_cards_count_but_are_out() -> None:
    facts = NodeFacts(cordoned=frozenset({"GPU-1"}))
    result = stock(card(0), card(1), card(2), facts=facts, ill={"GPU-2": "XID 79"})
    assert result.offers == {"volcano.sh/vgpu-h20": Offer(3, 2)}
    by_uuid = {entry.uuid: entry for entry in result.node_cards.cards}
    assert (by_uuid["GPU-1"].healthy, by_uuid["GPU-1"].offered, by_uuid["GPU-1"].reason) == (
        True,
        False,
        CORDONED,
    )
    assert (by_uuid["GPU-2"].healthy, by_uuid["GPU-2"].reason) == (False, "XID 79")


def test_who_is_on_cards_that_are_out_is_counted() -> None:
    """Their slots are taken already: free ones of other cards must not go for them."""
    held = {f"GPU-{number}": Holding(("p",), containers=number + 1) for number in range(3)}
    facts = NodeFacts(cordoned=frozenset({"GPU-1"}))
    result = stock(card(0), card(1), card(2), facts=facts, ill={"GPU-2": "XID 79"}, holdings=held)
    assert result.offers == {"volcano.sh/vgpu-h20": Offer(3, 2, out_held=5)}
    gone = stock(card(0), previous=result.node_cards, holdings=held)
    assert gone.offers == {"volcano.sh/vgpu-h20": Offer(1, beside=5)}
    held["GPU-2"] = Holding(("p",), native=True, containers=3)  # of another resource
    assert stock(card(0), previous=result.node_cards, holdings=held).offers == {
        "volcano.sh/vgpu-h20": Offer(1, beside=2)
    }
    other = stock(card(0, product="Tesla T4"), previous=result.node_cards, holdings=held)
    assert other.offers == {"volcano.sh/vgpu-t4": Offer(1)}


@pytest.mark.parametrize(
    ("facts", "problem"),
    [
        (
            NodeFacts(mode_label="half"),
            "label egpu.volcano.sh/card-mode is 'half', not shared, native or mig",
        ),
        (
            NodeFacts(foreign="pods of another plugin hold cards: a/b"),
            "pods of another plugin hold cards: a/b",
        ),
    ],
)
def test_a_node_that_takes_nothing_says_why(facts: NodeFacts, problem: str) -> None:
    result = stock(card(0), facts=facts)
    assert result.node_cards.problem == problem
    assert result.offers == {}
    assert not any(entry.offered for entry in result.node_cards.cards)


def test_native_mode_offers_whole_cards_under_the_other_name_only() -> None:
    result = stock(card(0), card(1), facts=NodeFacts(mode_label="native"))
    assert result.offers == {"volcano.sh/gpu-h20": Offer(2, 0)}
    assert counters(result, TABLE, {}) == {}


def test_a_whole_card_may_be_for_one_program_alone() -> None:
    """What its tenant does with it is the tenant's affair; one that nobody may use is nobody's."""
    result = stock(
        card(0, closed_to="others"), card(1, closed_to="all"), facts=NodeFacts(mode_label="native")
    )
    assert [entry.offered for entry in result.node_cards.cards] == [True, False]


def test_shares_from_before_a_change_of_mode_hold_the_card_back() -> None:
    result = stock(
        card(0), card(1), facts=NodeFacts(mode_label="native"), holdings={"GPU-0": Holding(("pod-a",))}
    )
    assert result.node_cards.cards[0].reason == "still held in shares, the node is native now"
    assert result.offers == {"volcano.sh/gpu-h20": Offer(1, 0)}


def test_indices_stay_when_a_card_leaves_and_comes_back() -> None:
    first = stock(card(0), card(1), card(2)).node_cards
    without = stock(card(0), card(2, index=1), previous=first, holdings={"GPU-1": Holding(("p",))})
    assert [(c.uuid, c.index) for c in without.node_cards.cards] == [("GPU-0", 0), ("GPU-1", 1), ("GPU-2", 2)]
    gone = without.node_cards.cards[1]
    assert (gone.healthy, gone.offered, gone.held) == (False, False, ("p",))
    assert without.offers == {"volcano.sh/vgpu-h20": Offer(2, 0)}
    new = stock(card(7, index=0), card(0, index=1), previous=stock(card(0), card(2)).node_cards)
    assert {c.uuid: c.index for c in new.node_cards.cards} == {"GPU-0": 0, "GPU-7": 1}


def test_the_node_says_what_is_held_of_its_cards_and_how_many_it_lists_though_one_cannot_be_read() -> None:
    """What the agent reports as held stays in the ledger, whatever became of its pod."""
    held = {"GPU-1": Holding(("u1", "u2"))}
    result = stock(card(0), card(1), holdings=held, problem="card 2: the driver does not reach it")
    assert [(one.uuid, one.held, one.offered) for one in result.node_cards.cards] == [
        ("GPU-0", (), True), ("GPU-1", ("u1", "u2"), True),
    ]  # fmt: skip
    assert result.node_cards.problem == ""


def test_a_vanished_card_that_nobody_holds_is_forgotten() -> None:
    first = stock(card(0), card(1)).node_cards
    assert [c.uuid for c in stock(card(1), previous=first).node_cards.cards] == ["GPU-1"]


@pytest.mark.parametrize(
    "readings",
    [
        (card(0), card(1, uuid="GPU-0")),
        (card(0, uuid=""),),
        (card(0, uuid="GPU-\x00\x07"),),
        (card(0, uuid="GPU-0\n"),),
    ],
)
def test_cards_that_cannot_be_told_apart_close_the_node(readings: tuple[CardReading, ...]) -> None:
    result = stock(*readings)
    assert "UUID" in result.node_cards.problem
    assert result.offers == {}


def test_counters_are_never_a_wall() -> None:
    result = stock(card(0), card(1), ill={"GPU-1": "lost"}, policy=Policy(slots_per_card=10))
    requested = {
        "volcano.sh/vgpu-h20-cores": 5000,
        "volcano.sh/vgpu-a100-memory": 7,
        "volcano.sh/vgpu-h20": 3,
    }
    assert counters(result, TABLE, requested) == {
        "volcano.sh/vgpu-h20-memory": 2 * 10 * 98304,
        "volcano.sh/vgpu-h20-cores": 5000,
        "volcano.sh/vgpu-a100-memory": 7,
    }


def test_counters_are_no_less_than_the_cards_offer_and_only_ours() -> None:
    """Volcano's own resources of like names are somebody else's: the agent takes its own off a Node."""
    result = stock(card(0), policy=Policy(slots_per_card=10))
    small = {"volcano.sh/vgpu-h20-memory": 1, "volcano.sh/vgpu-memory": 5, "volcano.sh/vgpu-cores": 5}
    assert counters(result, TABLE, small) == {
        "volcano.sh/vgpu-h20-memory": 10 * 98304,
        "volcano.sh/vgpu-h20-cores": 10 * 100,
    }
    assert not any(is_counter(name) for name in ("volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores", "memory"))


def test_labels() -> None:
    inventory = stock(card(0), card(1), card(2, product="Other")).node_cards
    assert labels(inventory, FACTS.labels) == {
        "model.egpu.volcano.sh/h20": "2",
        "egpu.volcano.sh/vendor": "nvidia",
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.count": "3",
        "nvidia.com/gpu.product": "NVIDIA-H20",
    }
    assert labels(stock().node_cards, FACTS.labels) == {}
    cut = stock(card(0, product=f"{'N' * 62} GPU")).node_cards
    assert labels(cut, FACTS.labels)["nvidia.com/gpu.product"] == "N" * 62  # it may not end in a dash


def a_card(index: int, capability: str) -> NodeCard:
    """As a Node tells of it."""
    uuid = f"GPU-{index}"
    return NodeCard(uuid=uuid, index=index, model="h20", memory_mib=98304, compute_capability=capability)


@pytest.mark.parametrize(
    ("vendor", "said"),
    [
        ("nvidia", {"driver": "550.54.14", "cuda": "12.4", "capability": "9.0", "vendor": "nvidia"}),
        ("ascend", {"hdk": "550.54.14", "cuda": "12.4", "capability": "9.0", "vendor": "ascend"}),
        ("hygon", {"hyhal": "550.54.14", "cuda": "12.4", "capability": "9.0", "vendor": "hygon"}),
    ],
)
def test_labels_tell_a_nodes_software(vendor: str, said: dict[str, str]) -> None:
    cards = tuple(
        NodeCard(uuid=f"GPU-{n}", index=n, model="h20", memory_mib=98304, compute_capability="9.0")
        for n in range(2)
    )
    node_cards = NodeCards(cards=cards, vendor=vendor, driver_version="550.54.14", cuda_version="12.4")
    told = {name: value for name, value in labels(node_cards, None).items() if name in names.AGENT_LABELS}
    assert told == {f"egpu.volcano.sh/{name}": value for name, value in said.items()}


def test_what_is_not_known_or_no_label_has_no_label() -> None:
    """A patch with one bad label would be refused as a whole, and the inventory with it."""
    cards = tuple(
        NodeCard(uuid=f"GPU-{n}", index=n, model="h20", memory_mib=98304, compute_capability=f"{n}.0")
        for n in range(8, 10)
    )
    odd = NodeCards(cards=cards, vendor="nvidia", driver_version="550 (beta)", cuda_version="")
    assert labels(odd, None) == {"model.egpu.volcano.sh/h20": "2", "egpu.volcano.sh/vendor": "nvidia"}


def test_links_come_back_from_the_inventory_as_they_were_read() -> None:
    """By index, which is not the place in the vendor's list."""
    previous = stock(card(1)).node_cards
    assert [entry.index for entry in previous.cards] == [0], "it keeps this index"
    read = stock(
        card(0, links={"GPU-1": 2}, link_mb_s=25_000, near={"GPU-1": Near.SWITCH, "GPU-2": Near.SYSTEM}),
        card(1, links={"GPU-0": 2}, link_mb_s=25_000, near={"GPU-0": Near.SWITCH, "GPU-2": Near.NODE}),
        card(2, switch_links=18, near={"GPU-0": Near.SYSTEM, "GPU-x": Near.NODE}),
        previous=previous,
    ).node_cards
    document = {
        "metadata": {"name": "n1", "annotations": {names.NODE_CARDS: read.encode()}},
        "status": {},
    }
    by_uuid = {str(card.uuid): card for card in cluster_codec.node(document, TABLE).cards}
    first, second, third = (by_uuid[f"GPU-{number}"] for number in range(3))
    assert (first.index, second.index, third.index) == (1, 0, 2)
    assert (first.links, first.link_mb_s, first.switch_links) == ({"GPU-1": 2}, 25_000, 0)
    assert first.near == {"GPU-1": Near.SWITCH, "GPU-2": Near.SYSTEM}
    assert second.near == {"GPU-0": Near.SWITCH, "GPU-2": Near.NODE}
    assert (third.switch_links, third.near) == (18, {"GPU-0": Near.SYSTEM})


_TEXT = st.text(max_size=200)
_NUMBER = st.integers(min_value=-(2**70), max_value=2**70)
_GARBAGE = st.builds(
    CardReading,
    uuid=st.one_of(_TEXT, st.sampled_from(["GPU-0", "GPU-1"])),
    index=_NUMBER,
    product=st.one_of(_TEXT, st.just("NVIDIA H20")),
    memory_mib=_NUMBER,
    clock_mhz=_NUMBER,
    pci_bus_id=_TEXT,
    abilities=st.sampled_from([SHARED, frozenset({"slice"})]),
    numbers=st.fixed_dictionaries({"sm": _NUMBER, "minor": _NUMBER}),
    attributes=st.fixed_dictionaries({"compute_capability": _TEXT}),
    links=st.dictionaries(_TEXT, st.integers(0, 18), max_size=4),
    switch_links=_NUMBER,
    link_mb_s=_NUMBER,
    near=st.dictionaries(st.sampled_from(["GPU-0", "GPU-1", "x"]), st.sampled_from(Near), max_size=4),
)


@given(st.lists(_GARBAGE, max_size=70), _TEXT, _TEXT, _TEXT)
def test_garbage_never_raises_and_can_be_read_back(
    readings: list[CardReading], driver: str, problem: str, mode: str
) -> None:
    result = take_stock(
        NodeReading(cards=tuple(readings), versions={"driver": driver}, problem=problem),
        table=TABLE,
        policy=Policy(),
        facts=NodeFacts(mode_label=mode),
        ill={"GPU-0": problem or "ill"},
        holdings={"GPU-1": Holding(("p",))},
        previous=stock(card(0), card(1)).node_cards,
        vendor=FACTS,
    )
    assert NodeCards.decode(result.node_cards.encode()) == result.node_cards
    for entry in result.node_cards.cards:
        assert not entry.offered or (entry.memory_mib >= 98304 and not result.node_cards.problem)
