"""What the driver shows beyond what a container's page claims: when it counts, and when it does not."""

import random

import pytest
from unit.node.doubtful import MIB
from vc_egpu_node.isolation import abi
from vc_egpu_node.isolation.accounts import Shared, Slot, Usage
from vc_egpu_node.isolation.unseen_memory import (
    FALL_LOOKS,
    NOTHING,
    UNSTEADY_LOOKS,
    Beyond,
    Process,
    Reckoning,
    beyond_of,
    owner_of,
)

ONE: Process = (7, 5)
OWNER = 5 << 32 | 7


def slot(mib: int, changes: int = 1, *, process: Process = ONE, managed_mib: int = 0) -> Slot:
    """Of a process on the only card."""
    pid, start = process
    return Slot(pid, start, (mib * MIB,), (managed_mib * MIB,), 1, changes, 0)


def look(
    books: Reckoning, shown: dict[Process, int], *slots: Slot, shared: Shared | None = None
) -> tuple[int, dict[int, int]]:
    """One look; MiB without a slot, and by owner."""
    usage = Usage(slots, (0,), (shared,) if shared else ())
    books.look({process: mib * MIB for process, mib in shown.items()}, usage)
    always, owners = books.figures()
    return always // MIB, {owner: size // MIB for owner, size in owners}


def test_two_looks_without_a_change_tell() -> None:
    books = Reckoning(0)
    assert look(books, {ONE: 700}, slot(500)) == (0, {})
    assert look(books, {ONE: 700}, slot(500)) == (0, {OWNER: 200})


def test_less_than_a_granule_is_rounding() -> None:
    books = Reckoning(0)
    look(books, {ONE: 501}, slot(500))
    assert look(books, {ONE: 501}, slot(500)) == (0, {})


def test_what_comes_and_goes_between_driver_and_page_does_not_count() -> None:
    books = Reckoning(0)
    for changes in range(1, 60):  # each look meets the memory at the driver, and no longer on the page
        assert look(books, {ONE: 1500 if changes % UNSTEADY_LOOKS else 500}, slot(500, changes)) == (0, {})


def test_a_process_that_always_changes_something_is_judged_over_many_looks() -> None:
    books, chance = Reckoning(0), random.Random(1)
    for changes in range(1, 40):
        claimed, told = chance.randrange(500, 600, 2), chance.randrange(500, 600, 2)
        always, owners = look(books, {ONE: told + 300}, slot(claimed, changes))
        assert always == 0
        assert sum(owners.values()) <= 300
        if changes >= UNSTEADY_LOOKS:
            assert owners[OWNER] >= 200


def test_a_library_that_does_not_count_is_judged_over_many_looks() -> None:
    books = Reckoning(0)
    for _ in range(UNSTEADY_LOOKS - 1):
        assert look(books, {ONE: 700}, slot(500, 0)) == (0, {})
    assert look(books, {ONE: 700}, slot(500, 0)) == (0, {OWNER: 200})


def test_it_falls_only_after_many_looks_and_rises_no_more_often() -> None:
    books = Reckoning(0)
    look(books, {ONE: 700}, slot(500))
    figures = []
    for number in range(200):  # now 200 beyond, now 100: the larger stays in force
        _, owners = look(books, {ONE: 700 if number % 10 < 2 else 600}, slot(500))
        figures.append(owners[OWNER])
    assert set(figures) == {200}
    for _ in range(FALL_LOOKS):
        last = look(books, {ONE: 600}, slot(500))
    assert last == (0, {OWNER: 100})


def test_it_is_never_more_than_the_driver_shows() -> None:
    books = Reckoning(0)
    look(books, {ONE: 700}, slot(500))
    look(books, {ONE: 700}, slot(500))
    assert look(books, {ONE: 40}, slot(500)) == (0, {OWNER: 40})  # checkpointed, say
    assert look(books, {ONE: 0}, slot(500)) == (0, {})


def test_claims_of_one_process_hide_nothing_of_another() -> None:
    books, other = Reckoning(0), (8, 5)
    liar = slot(100_000, process=other)
    for _ in range(2):
        figures = look(books, {ONE: 700, other: 300}, slot(500), liar)
    assert figures == (0, {OWNER: 200})


def test_slots_of_nobody_hide_nothing() -> None:
    books = Reckoning(0)
    for _ in range(2):
        figures = look(books, {ONE: 700}, *(slot(9000, process=(pid, 5)) for pid in range(20, 60)), slot(500))
    assert figures == (0, {OWNER: 200})


def test_without_a_slot_all_of_it_counts_whoever_lives() -> None:
    books = Reckoning(0)
    assert look(books, {ONE: 700}) == (0, {})
    assert look(books, {ONE: 700}) == (700, {})
    assert look(books, {ONE: 700}, slot(500)) == (0, {})  # it has registered: nothing else is known of it
    assert look(books, {ONE: 700}, slot(500)) == (0, {OWNER: 200})


def test_managed_and_shared_memory_are_nobodys_excess() -> None:
    books = Reckoning(0)
    ours, others = Shared(0, 200 * MIB, (1,)), Shared(0, 200 * MIB, (2,))
    for _ in range(3):
        assert look(books, {ONE: 700}, slot(300, managed_mib=200), shared=ours) == (0, {})
    assert look(books, {ONE: 700}, slot(300, managed_mib=200), shared=others) == (0, {})
    assert look(books, {ONE: 700}, slot(300, managed_mib=200), shared=others) == (0, {OWNER: 200})


def test_a_look_at_nothing_does_not_drop_a_process_and_two_do() -> None:
    books = Reckoning(0)
    look(books, {ONE: 700}, slot(500))
    look(books, {ONE: 700}, slot(500))
    assert look(books, {}, slot(500)) == (0, {OWNER: 200})
    assert look(books, {}, slot(500)) == (0, {})


def test_an_agent_that_starts_again_goes_on_from_the_page() -> None:
    books = Reckoning(0, Beyond((), ((OWNER, 0, 200 * MIB), (OWNER, 1, 900 * MIB))))
    assert look(books, {ONE: 700}, slot(500)) == (0, {OWNER: 200})
    assert look(books, {ONE: 700}, slot(500)) == (0, {OWNER: 200})


def test_what_is_not_held_against_the_container_is_not_told() -> None:
    books = Reckoning(0)
    for _ in range(2):
        look(books, {ONE: 700, (9, 9): 50}, slot(500))
    assert books.figures(0) == (50 * MIB, [(OWNER, 200 * MIB)])
    assert books.figures(150 * MIB) == (50 * MIB, [(OWNER, 50 * MIB)])
    assert books.figures(900 * MIB) == (50 * MIB, [])


def test_a_page_holds_the_largest_and_the_rest_together() -> None:
    assert beyond_of([(0, []), (0, [])]) == NOTHING
    many = [(owner, (owner + 1) * MIB) for owner in range(abi.MAX_BEYOND + 3)]
    made = beyond_of([(MIB, []), (0, many)])
    assert made.always == (MIB, (1 + 2 + 3) * MIB)
    assert len(made.processes) == abi.MAX_BEYOND
    assert made.on(1) == sum(size for _, size in many)
    assert made.on(0) == MIB


@pytest.mark.parametrize("seed", range(30))
def test_random_programs_are_never_charged_more_than_they_have_beyond(seed: int) -> None:
    """Whatever is allocated between one reading and the other: at most the true excess, in the end all."""
    chance, books = random.Random(seed), Reckoning(0)
    claimed, changes, true = 500, 1, chance.randrange(0, 400, 2)

    def step() -> None:
        nonlocal claimed, changes
        if chance.random() < 0.5:
            claimed, changes = chance.randrange(0, 2000, 2), changes + 1

    for _ in range(300):
        step()
        shown = claimed + true
        step()  # between driver and page
        _, owners = look(books, {ONE: shown}, slot(claimed, changes))
        assert owners.get(OWNER, 0) <= true
    for _ in range(2):
        _, owners = look(books, {ONE: claimed + true}, slot(claimed, changes))
    assert owners.get(OWNER, 0) == true


def test_an_owner_is_named_as_on_the_page() -> None:
    assert owner_of(slot(1)) == OWNER


@pytest.mark.parametrize("seed", range(30))
def test_a_driver_that_is_a_look_behind_charges_nobody(seed: int) -> None:
    """What it shows is as old as the last look."""
    chance, books = random.Random(seed), Reckoning(0)
    claimed, changes, true = 500, 1, chance.randrange(0, 400, 2)
    shown = claimed + true
    for _ in range(300):
        if chance.random() < 0.3:
            claimed, changes = chance.randrange(0, 2000, 2), changes + 1
        _, owners = look(books, {ONE: shown}, slot(claimed, changes))
        assert owners.get(OWNER, 0) <= true
        shown = claimed + true
