"""The record of slices: an agent that dies at any point of a slice's life leaks none and owns none twice."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from vc_egpu_node.vendors.slice_book import SliceBook
from vc_egpu_node.vendors.slices import HeldSlice, SliceError, SliceWish

CARD = "NPU-1"
WISH = SliceWish(CARD, "vir05", memory_mib=16384)


class KilledError(BaseException):
    """The agent's process ends here."""


class Driver:
    """A card that is cut on demand. ``before`` and ``after`` run around each change of it."""

    def __init__(self, room: int = 4, size_mib: int = 16384) -> None:
        self.held: dict[str, HeldSlice] = {}
        self.room = room
        self.size_mib = size_mib
        self.before: Callable[[str], None] = lambda call: None
        self.after: Callable[[str], None] = lambda call: None
        self._next = 100

    def slices(self, uuid: str) -> tuple[HeldSlice, ...]:
        return tuple(self.held.values()) if uuid == CARD else ()

    def make(self, wish: SliceWish) -> HeldSlice | None:
        self.before("make")
        if len(self.held) == self.room:
            raise SliceError("no-room", "the card is full")
        made = HeldSlice(str(self._next), wish.template, memory_mib=self.size_mib)
        self._next += 1
        self.held[made.id] = made
        self.after("make")
        return made

    def destroy(self, uuid: str, slice_id: str) -> None:
        self.before("destroy")
        self.held.pop(slice_id, None)
        self.after("destroy")


class Adopting(Driver):
    """A card whose slices an operator makes."""

    def make(self, wish: SliceWish) -> HeldSlice | None:
        return None


def die(at: str) -> Callable[[str], None]:
    def call(now: str) -> None:
        if now == at:
            raise KilledError

    return call


def test_a_slice_is_the_containers_until_it_ends(tmp_path: Path) -> None:
    driver = Driver()
    book = SliceBook(tmp_path, driver)
    first = book.realise("a", WISH)
    assert book.realise("a", WISH) == first
    second = book.realise("b", WISH)
    assert first.slice.id != second.slice.id
    book.release("a")
    assert set(driver.held) == {second.slice.id}
    assert [one.owner for one in SliceBook(tmp_path, driver).entries()] == ["b"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_agent_that_dies_while_it_makes_a_slice_finds_it(tmp_path: Path, when: str) -> None:
    driver = Driver()
    book = SliceBook(tmp_path, driver)
    book.realise("other", WISH)
    setattr(driver, when, die("make"))
    with pytest.raises(KilledError):
        book.realise("a", WISH)
    driver.before = driver.after = lambda call: None

    later = SliceBook(tmp_path, driver)
    mine = later.realise("a", WISH)
    assert set(driver.held) == {mine.slice.id, later.of("other")[0].slice.id}
    later.release("a")
    later.release("other")
    assert not driver.held


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", ["make", "destroy"])
def test_the_end_of_a_container_while_the_agent_was_away_leaks_nothing(
    tmp_path: Path, when: str, call: str
) -> None:
    driver = Driver()
    book = SliceBook(tmp_path, driver)
    setattr(driver, when, die(call))
    with pytest.raises(KilledError):
        book.realise("a", WISH)
        book.release("a")
    driver.before = driver.after = lambda call: None

    later = SliceBook(tmp_path, driver)
    assert later.release_others([]) == {}
    assert not driver.held
    assert not later.entries()
    assert not list(tmp_path.iterdir())


def test_a_slice_of_somebody_else_is_never_removed(tmp_path: Path) -> None:
    driver = Driver()
    driver.held["7"] = HeldSlice("7", "vir05", memory_mib=16384)
    book = SliceBook(tmp_path, driver)
    book.realise("a", WISH)
    book.release_others([])
    assert set(driver.held) == {"7"}


def test_a_slice_that_is_smaller_than_the_plan_says_is_refused_and_removed(tmp_path: Path) -> None:
    driver = Driver(size_mib=12288)
    book = SliceBook(tmp_path, driver)
    with pytest.raises(SliceError, match=r"gave vir05 of 12288 MiB, and vir05 of 16384 MiB") as refused:
        book.realise("a", WISH)
    assert refused.value.why == "other-size"
    assert not driver.held
    assert not book.entries()


def test_a_full_card_leaves_no_record(tmp_path: Path) -> None:
    book = SliceBook(tmp_path, Driver(room=0))
    with pytest.raises(SliceError) as refused:
        book.realise("a", WISH)
    assert refused.value.why == "no-room"
    assert not list(tmp_path.iterdir())


def test_a_slice_in_use_stays_and_is_tried_again(tmp_path: Path) -> None:
    driver = Driver()
    book = SliceBook(tmp_path, driver)
    book.realise("a", WISH)

    def busy(call: str) -> None:
        raise SliceError("busy", "a process runs on it")

    driver.before = busy
    assert book.release_others([]) == {"a": "a process runs on it"}
    driver.before = lambda call: None
    assert SliceBook(tmp_path, driver).release_others([]) == {}
    assert not driver.held


def test_after_a_reboot_the_slice_is_made_again(tmp_path: Path) -> None:
    driver = Driver()
    before = SliceBook(tmp_path, driver).realise("a", WISH)
    driver.held.clear()
    again = SliceBook(tmp_path, driver).realise("a", WISH)
    assert again.slice.id != before.slice.id
    assert set(driver.held) == {again.slice.id}


def test_a_driver_that_does_not_answer_may_have_made_the_slice(tmp_path: Path) -> None:
    driver = Driver()

    def late(call: str) -> None:
        raise SliceError("no-answer", "20 s passed")

    driver.after = late
    book = SliceBook(tmp_path, driver)
    with pytest.raises(SliceError):
        book.realise("a", WISH)
    driver.after = lambda call: None
    book.realise("a", WISH)
    assert len(driver.held) == 1
    book.release("a")
    assert not driver.held


def test_an_adopted_slice_is_given_once_and_stays(tmp_path: Path) -> None:
    driver = Adopting()
    driver.held["MIG-1"] = HeldSlice("MIG-1", "1g", start=0, memory_mib=9728)
    wish = SliceWish(CARD, "1g", 0, 9728)
    book = SliceBook(tmp_path, driver)
    assert book.realise("a", wish).adopted
    with pytest.raises(SliceError, match=r"has no free slice 1g at 0") as refused:
        book.realise("b", wish)
    assert refused.value.why == "absent"
    book.release("a")
    assert book.realise("b", wish).slice.id == "MIG-1"
    assert set(driver.held) == {"MIG-1"}


def test_a_broken_record_is_set_aside(tmp_path: Path) -> None:
    (tmp_path / "a.NPU-1.json").write_text("{")
    assert not SliceBook(tmp_path, Driver()).entries()
    assert [path.name for path in tmp_path.iterdir()] == ["a.NPU-1.broken"]


def test_a_slice_of_another_start_of_the_node_is_somebody_elses() -> None:
    ours = HeldSlice("MIG-1", "2g", 0, numbers={"gi": 3, "boot": 7})
    assert replace(ours, numbers={"gi": 3, "boot": 7}).is_that(ours)
    assert not replace(ours, numbers={"gi": 3, "boot": 8}).is_that(ours)
    assert replace(ours, numbers={"gi": 3}).is_that(ours)  # its start is not known
    assert replace(ours, id="gi3", half=True).is_that(ours)
    assert not replace(ours, id="gi3").is_that(ours)
    assert not replace(ours, id="gi4", half=True, numbers={"gi": 4, "boot": 7}).is_that(ours)
    assert not replace(ours, start=2).is_that(ours)
