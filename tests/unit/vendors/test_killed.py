"""The agent dies at each point of a slice's life, on each vendor's fake: no leak, no second owner."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mortal import KilledError, Mortal
from vc_egpu_node.vendors.slice_book import SliceBook
from vc_egpu_node.vendors.slices import SliceWish
from vendor_nodes import AscendNode, HygonNode, MigNode

Cut = tuple[Mortal, Callable[[int], SliceWish], Callable[[], int]]


@pytest.fixture(params=["ascend", "hygon", "mig"])
def cut(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cut]:
    """A slicer, what each of three containers wishes, and how many slices lie on the card."""
    if request.param == "ascend":
        ascend = AscendNode(tmp_path)
        uuid = ascend.readings.scan().cards[0].uuid
        wish = SliceWish(uuid, "vir05_1c_16g", memory_mib=16384)
        yield Mortal(ascend.slicer), (lambda _: wish), lambda: len(ascend.script.slices)
        ascend.close()
    elif request.param == "mig":
        mig = MigNode(tmp_path)
        yield Mortal(mig.slicer), (lambda n: SliceWish("GPU-h100-0", "2g.20gb", 2 * n, 18304)), mig.lying
        mig.close()
    else:
        hygon = HygonNode(tmp_path)
        wish = SliceWish(hygon.asked.scan().cards[0].uuid, "cu30", memory_mib=16380)
        yield Mortal(hygon.slicer), (lambda _: wish), lambda: len(list(hygon.slices.glob("*.conf")))
        hygon.close()


@pytest.mark.parametrize("moment", ["intended", "made", "ended", "released"])
def test_nothing_leaks_and_no_slice_has_two_owners(cut: Cut, tmp_path: Path, moment: str) -> None:
    slicer, wish, lying = cut
    book = SliceBook(tmp_path / "book", slicer)
    kept = book.realise("kept", wish(0))
    slicer.dies = moment
    with pytest.raises(KilledError):
        book.realise("a", wish(1))
        book.release("a")
    later = SliceBook(tmp_path / "book", slicer)
    again = later.realise("a", wish(1))
    other = later.realise("b", wish(2))
    assert len({kept.slice.id, again.slice.id, other.slice.id}) == 3 == lying()
    assert later.realise("kept", wish(0)) == kept
    assert not later.release_others(["kept"]) and lying() == 1
    assert not later.release_others([]) and lying() == 0


@pytest.mark.parametrize("moment", ["intended", "made", "ended", "released"])
def test_a_container_that_is_gone_leaves_nothing(cut: Cut, tmp_path: Path, moment: str) -> None:
    slicer, wish, lying = cut
    book = SliceBook(tmp_path / "book", slicer)
    slicer.dies = moment
    with pytest.raises(KilledError):
        book.realise("a", wish(1))
        book.release("a")
    later = SliceBook(tmp_path / "book", slicer)
    assert not later.release_others([]) and lying() == 0 and not later.entries()
