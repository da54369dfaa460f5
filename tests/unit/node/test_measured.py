"""What the driver counted of containers goes to their libraries; launches of pods that end are not held."""

import ctypes
from pathlib import Path

import pytest
from unit.node.granted import grant, page_of
from vc_egpu.volcano.words.annotations import AnnotationError, Cards
from vc_egpu_node.containers.cdi import GrantFolder
from vc_egpu_node.isolation import abi
from vc_egpu_node.isolation.measured import measured
from vc_egpu_node.isolation.pages import ACTIVITY, SharedPages
from vc_egpu_node.vendors.base import Edits

SECOND_NS = 1_000_000_000
A = grant("a", ("GPU-0", 1000, 50), ("GPU-1", 1000, 50))
B = grant("b", ("GPU-0", 1000, 30))
FREE = grant("free", ("GPU-0", 1000, 0))


def test_time_is_counted_by_container_and_card() -> None:
    rows = [
        ("a", "GPU-0", 20),
        ("a", "GPU-0", 10),
        ("b", "GPU-0", 25),
        ("a", "GPU-1", 5),
        ("gone", "GPU-1", 5),
    ]
    assert measured([A, B, FREE], rows, (), 2 * SECOND_NS) == {
        "a": {0: 600_000_000, 1: 100_000_000},
        "b": {0: 500_000_000},
    }


def test_parts_of_a_card_never_add_up_to_more_than_it() -> None:
    rows = [("a", "GPU-0", 100), ("b", "GPU-0", 100)]
    assert measured([A, B], rows, {"GPU-1"}, SECOND_NS) == {
        "a": {0: SECOND_NS // 2},
        "b": {0: SECOND_NS // 2},
    }


def test_a_card_that_tells_nothing_is_not_taken_for_idle() -> None:
    assert measured([B], [], {"GPU-0"}, SECOND_NS) == {"b": {}}


def test_the_figure_stands_where_the_library_reads_it(tmp_path: Path) -> None:
    pages = SharedPages(tmp_path)
    pages.clear("a")
    pages.tell_measured("a", 1, 7, 11)
    pages.tell_measured("nobody", 1, 7, 11)  # it is gone: nothing to tell
    data = pages.read(ACTIVITY, "a")
    assert data is not None
    page = abi.ActivityPage.from_buffer_copy(data)
    assert (page.cards[1].measured_ns, page.cards[1].measured_at_ns) == (7, 11)
    assert page.cards[0].measured_at_ns == 0
    assert ctypes.sizeof(abi.ActivityCard) == abi.ACTIVITY_CARD_BYTES


@pytest.mark.parametrize(
    ("share_class", "pods", "unheld"),
    [("low", 1, False), ("low", 2, True), ("high", 2, False), ("unset", 2, False)],
)
def test_launches_of_low_gangs_of_several_pods_are_not_held(
    share_class: str, pods: int, unheld: bool
) -> None:
    one = grant("a", ("GPU-0", 1000, 50), share_class=share_class, gang_pods=pods)
    assert page_of([one], "a").unheld is unheld


def test_launches_of_pods_that_end_are_not_held() -> None:
    low = grant("a", ("GPU-0", 1000, 50), share_class="low")
    assert page_of([low, B], "a", let_go=frozenset({"a"})).unheld
    assert not page_of([low, B], "a", let_go=frozenset({"b"})).unheld


def test_a_restarted_agent_knows_the_gang_and_an_older_one_reads_the_grant(tmp_path: Path) -> None:
    folder = GrantFolder(tmp_path / "cdi", tmp_path / "limits")
    low = grant("a", ("GPU-0", 1000, 50), share_class="low", gang_pods=4)
    folder.write(low, Edits(), {})
    again = GrantFolder(tmp_path / "cdi", tmp_path / "limits").get("a")
    assert again == low
    assert '\\"gang_pods\\"' not in folder.path("a").read_text()


def test_the_annotation_says_of_how_many_pods_a_gang_is_only_where_these_are_several() -> None:
    plain = Cards(pod_uid="u", node="n", plan_id="1-1", containers={})
    assert "gangPods" not in plain.encode()
    assert Cards.decode(plain.model_copy(update={"gang_pods": 3}).encode()).gang_pods == 3
    with pytest.raises(AnnotationError, match="gangPods"):
        Cards.decode(plain.encode().replace('"version":1', '"version":1,"gangPods":1'))
