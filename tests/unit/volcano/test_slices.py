"""Slices of fixed size at the door: rounded up, announced, charged, or refused by name."""

from typing import Any

import pytest
from vc_egpu.volcano.codec.options import read
from vc_egpu.volcano.codec.request import AskError, PodAsk
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import Request
from vc_egpu.volcano.words.model_table import ModelTable, ModelTableError

TABLE = ModelTable.from_yaml("""
layouts:
  npu:
    totals: {aicore: 20, aicpu: 7}
    templates:
      - {name: vir05, mib: 16384, cores: 25, parts: {aicore: 5, aicpu: 1}}
      - {name: vir10, mib: 32768, cores: 50, parts: {aicore: 10, aicpu: 3}}
  mig:
    totals: {compute: 7, memory: 8}
    whole: false
    templates:
      - {name: 1g.10gb, mib: 9152, cores: 14, parts: {compute: 1, memory: 1}}
      - {name: 3g.40gb, mib: 36672, cores: 42, parts: {compute: 3, memory: 4}}
models:
  - {name: 910b3, memoryMiB: 65536, layout: npu, stack: false}
  - {name: h100, memoryMiB: 81559, layout: mig}
  - {name: t4, memoryMiB: 15360}
""")


def ask(limits: dict[str, Any], known: Request | None = None, **annotations: str) -> PodAsk:
    spec = {"containers": [{"name": "main", "resources": {"limits": limits}}]}
    said = {f"{names.DOMAIN}/{name}": value for name, value in annotations.items()}
    return read(spec, said, TABLE, known=known)


def amounts(of: PodAsk) -> tuple[str | None, int, int]:
    one = of.containers["main"]
    return one.slice, one.memory_mib, one.cores_percent


PART = {"volcano.sh/vgpu-910b3": 1, "volcano.sh/vgpu-memory": 10000, "volcano.sh/vgpu-cores": 20}


def test_a_part_of_a_cut_card_is_rounded_up_charged_and_announced() -> None:
    made = ask(PART)
    assert amounts(made) == ("vir05", 16384, 25)
    assert made.sums() == {
        "volcano.sh/vgpu-910b3": 1,
        "volcano.sh/vgpu-910b3-memory": 16384,
        "volcano.sh/vgpu-910b3-cores": 25,
    }
    assert made.warnings == (
        "container 'main' gets a slice vir05 of a 910b3: 16384 MiB and 25 cores, for the 10000 MiB and 20 "
        "cores that it asks for; that is what its queue is charged",
    )


def test_cores_that_nobody_named_are_not_announced() -> None:
    (told,) = ask({"volcano.sh/vgpu-910b3": 1, "volcano.sh/vgpu-memory": 10000}).warnings
    assert "16384 MiB and 25 cores, for the 10000 MiB that it asks for" in told


def test_cores_alone_may_need_the_larger_slice() -> None:
    assert amounts(ask({**PART, "volcano.sh/vgpu-cores": 26})) == ("vir10", 32768, 50)


def test_cores_alone_are_refused() -> None:
    with pytest.raises(AskError, match=r"20 without memory: name volcano\.sh/vgpu-memory"):
        ask({"volcano.sh/vgpu-910b3": 1, "volcano.sh/vgpu-cores": 20})


def test_what_fits_exactly_is_not_announced() -> None:
    exact = ask({**PART, "volcano.sh/vgpu-memory": 16384, "volcano.sh/vgpu-cores": 25})
    assert (amounts(exact), exact.warnings) == (("vir05", 16384, 25), ())


def test_a_whole_card_stays_a_whole_card() -> None:
    assert amounts(ask({"volcano.sh/vgpu-910b3": 8})) == (None, 65536, 100)


def test_shares_of_any_size_stay_what_they_are_where_the_library_holds_them() -> None:
    part = {"volcano.sh/vgpu-h100": 2, "volcano.sh/vgpu-memory": 10000}
    assert amounts(ask(part)) == (None, 10000, 0)


GROUPED = ModelTable.from_yaml("""
models:
  - {name: ring, memoryMiB: 1000, counts: [1, 2, 4, 8], groups: [[0, 1, 2, 3], [4, 5, 6, 7]], within: 4}
  - {name: pair, memoryMiB: 1000, cardsPerNode: 16, unit: 2}
""")


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        ({"volcano.sh/gpu-ring": 3}, "3 cards: a ring is given out by 1, 2, 4 or 8"),
        ({"volcano.sh/vgpu-ring": 6}, "6 cards: a ring is given out by 1, 2, 4 or 8"),
        ({"volcano.sh/gpu-pair": 5}, "a module of pair has 2, ask for 1 or for whole modules"),
    ],
)
def test_a_number_of_cards_that_the_model_is_not_given_out_by_is_refused(
    limits: dict[str, Any], problem: str
) -> None:
    spec = {"containers": [{"name": "main", "resources": {"limits": limits}}]}
    with pytest.raises(AskError, match=problem):
        read(spec, {}, GROUPED)


def test_groups_of_the_table_come_before_those_of_the_agent() -> None:
    ring, pair = GROUPED.models
    assert [ring.group_of(index, 7) for index in (0, 3, 4, 8)] == [0, 0, 1, -1]
    assert pair.group_of(3, 7) == 7
    with pytest.raises(ModelTableError, match="a card is in two groups of 'x'"):
        ModelTable.from_yaml("models: [{name: x, memoryMiB: 1, groups: [[0, 1], [1, 2]]}]")


def test_hardware_isolation_makes_a_slice_of_it() -> None:
    part = {"volcano.sh/vgpu-h100": 1, "volcano.sh/vgpu-memory": 10000}
    assert amounts(ask(part, isolation="hardware")) == ("3g.40gb", 36672, 42)


def test_a_slice_may_be_named_exactly() -> None:
    assert amounts(ask({"volcano.sh/vgpu-h100": 1}, slice="1g.10gb")) == ("1g.10gb", 9152, 14)


def test_a_slice_may_be_spelled_as_a_resource() -> None:
    made = ask({"volcano.sh/mig-1g.10gb-h100": 1})
    assert amounts(made) == ("1g.10gb", 9152, 14)
    assert made.sums() == {
        "volcano.sh/vgpu-h100": 1,
        "volcano.sh/vgpu-h100-memory": 9152,
        "volcano.sh/vgpu-h100-cores": 14,
    }
    again = ask({"volcano.sh/mig-1g.10gb-h100": 1, **made.totals["main"]})
    assert again.containers == made.containers


@pytest.mark.parametrize(
    ("limits", "annotations", "problem"),
    [
        ({"volcano.sh/mig-1g.10gb-h100": 2}, {}, "2 cards, and a part of each: a container takes one slice"),
        ({"volcano.sh/mig-9g.10gb-h100": 1}, {}, "'9g.10gb' is no slice of model h100; these are: 1g.10gb"),
        ({"volcano.sh/mig-1g.10gb-h101": 1}, {}, "model 'h101' is not known"),
        ({"volcano.sh/mig-1g.10gb-t4": 1}, {}, "cards of model t4 are not cut into slices"),
        (
            {"volcano.sh/mig-1g.10gb-h100": 1, "volcano.sh/vgpu-memory": 1},
            {},
            "leave volcano.sh/vgpu-memory out",
        ),
        (
            {"volcano.sh/mig-1g.10gb-h100": 1},
            {"slice": "3g.40gb"},
            "slice is 3g.40gb: leave the annotation out",
        ),
        (
            {"volcano.sh/mig-1g.10gb-h100": 1, "volcano.sh/mig-3g.40gb-h100": 1},
            {},
            "a container takes one slice",
        ),
        ({"volcano.sh/mig-1g.10gb-h100": 1, "volcano.sh/vgpu-910b3": 1}, {}, "two models in one container"),
        ({"volcano.sh/mig-1g.10gb-h100": 1, "volcano.sh/vgpu-h100": 2}, {}, "leave the second out"),
        (
            {**PART, "volcano.sh/vgpu-910b3": 2},
            {},
            "2 cards, and a part of each: a container takes one slice",
        ),
        ({**PART, "volcano.sh/vgpu-memory": 40000}, {}, r"the largest slice of a 910b3 is vir10 \(32768 MiB"),
        (PART, {"slice": "1g.10gb"}, "'1g.10gb' is no slice of model 910b3; these are: vir05, vir10"),
        ({"volcano.sh/vgpu-t4": 1}, {"slice": "vir05"}, "cards of model t4 are not cut into slices"),
        (
            {**PART, "volcano.sh/vgpu-memory": 20000},
            {"slice": "vir05"},
            "vir05 has 16384 MiB and 25 cores, and",
        ),
        ({"volcano.sh/vgpu-h100": 1}, {"isolation": "hardware"}, "hardware needs a size"),
        (
            {"volcano.sh/vgpu-h100": 1},
            {"isolation": "wood"},
            "'wood', it must be library, driver, hardware, vendor-file, none, mps or any",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    limits: dict[str, Any], annotations: dict[str, str], problem: str
) -> None:
    with pytest.raises(AskError, match=problem):
        ask(limits, None, **annotations)


def test_a_completed_pod_says_the_same_again() -> None:
    made = ask(PART)
    again = ask(dict(made.totals["main"]), known=made.request())
    assert again.containers == made.containers


def test_a_forged_slice_of_another_size_is_refused() -> None:
    made = ask(PART)
    forged = made.containers["main"].model_copy(update={"slice": "vir10"})
    with pytest.raises(AskError, match="has no slice vir10 of that size"):
        ask(dict(made.totals["main"]), known=Request(containers={"main": forged}))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("models: [{name: a, memoryMiB: 1, layout: x}]", "layout 'x', which is not there"),
        ("models: [{name: a, memoryMiB: 1, stack: false}]", "does not stack, and has no layout"),
        ("layouts: {x: {templates: [{name: a, mib: 1, cores: 1}]}}", "takes nothing of the card"),
    ],
)
def test_a_table_that_contradicts_itself_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ModelTableError, match=problem):
        ModelTable.from_yaml(text)
