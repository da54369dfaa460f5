"""The layout compiler against brute force, for all known tables. Rounding never gives less than asked."""

import itertools

import layout_tables
import pytest
from hypothesis import given
from hypothesis import strategies as st
from vc_egpu.core.layouts.catalogue import Catalogue
from vc_egpu.core.layouts.compiler import NOWHERE, compiled
from vc_egpu.core.layouts.table import ANYWHERE, Held, Layout, LayoutError, Template

by_layout = pytest.mark.parametrize("layout", layout_tables.ALL, ids=lambda layout: layout.name)


def options(layout: Layout) -> list[Held]:
    return [
        Held(template.name, start)
        for template in layout.templates
        for start in ([place.start for place in template.places] or [ANYWHERE])
    ]


def all_held(layout: Layout) -> list[tuple[Held, ...]]:
    """Every set of slices that the card may hold, by trying each slice on each."""
    known: dict[tuple[tuple[str, int], ...], tuple[Held, ...]] = {(): ()}
    queue: list[tuple[Held, ...]] = [()]
    for held in queue:
        for one in options(layout):
            more = (*held, one)
            key = tuple(sorted((each.template, each.start) for each in more))
            if key not in known and not layout.misfit(more):
                known[key] = more
                queue.append(more)
    return queue


def most(layout: Layout, held: tuple[Held, ...], template: str) -> int:
    """How many more slices of one template fit, whatever their places."""
    mine = [one for one in options(layout) if one.template == template]
    if not layout.placed:
        count = 0
        while not layout.misfit((*held, *mine * (count + 1))):
            count += 1
        return count
    for count in range(len(mine), 0, -1):
        if any(not layout.misfit((*held, *some)) for some in itertools.combinations(mine, count)):
            return count
    return 0


@pytest.mark.parametrize(
    ("name", "states", "alone"),
    [
        ("mig-h100-80g", 192, (7, 4, 3, 2, 1, 1)),
        ("ascend-910b3", 9, (4, 2)),
        ("ascend-910b2", 31, (6, 4, 2)),
        ("ascend-310p3", 26, (7, 3, 1)),
        ("ascend-910a", 166, (15, 7, 3, 1)),
    ],
)
def test_the_sizes_are_those_that_were_worked_out(name: str, states: int, alone: tuple[int, ...]) -> None:
    tables = compiled(next(layout for layout in layout_tables.ALL if layout.name == name))
    assert (tables.states, tuple(tables.copies[0].tolist())) == (states, alone)


@by_layout
def test_the_tables_say_what_trying_says(layout: Layout) -> None:
    tables = compiled(layout)
    known: dict[int, tuple[int, ...]] = {}
    for held in all_held(layout):
        state = tables.state_of(held)
        assert 0 <= state < tables.states
        row = tuple(tables.copies[state].tolist())
        if state not in known:
            known[state] = tuple(most(layout, held, template.name) for template in layout.templates)
        assert row == known[state]
        for index, template in enumerate(layout.templates):
            after, place = int(tables.after[state, index]), int(tables.place[state, index])
            assert (after == NOWHERE) == (row[index] == 0)
            if after != NOWHERE:
                assert not layout.misfit((*held, Held(template.name, place)))
                assert tables.state_of((*held, Held(template.name, place))) == after
    assert len(known) == tables.states


@by_layout
def test_the_best_place_takes_the_least_from_others(layout: Layout) -> None:
    tables = compiled(layout)

    def lost(state: int, then: int) -> int:
        before, after = tables.copies[state], tables.copies[then]
        return sum(t.memory_mib * int(before[i] - after[i]) for i, t in enumerate(layout.templates))

    for held in all_held(layout)[:400]:
        state = tables.state_of(held)
        for index, template in enumerate(layout.templates):
            ways = [one for one in options(layout) if one.template == template.name]
            losses = [lost(state, tables.state_of((*held, w))) for w in ways if not layout.misfit((*held, w))]
            if losses:
                assert int(tables.loss[state, index]) == min(losses)


def test_small_slices_begin_at_the_top_and_large_ones_keep_halves_free() -> None:
    tables = compiled(layout_tables.mig("mig", 81920))
    layout = tables.layout
    begins = {t.name: int(tables.place[0, layout.index(t.name)]) for t in layout.templates}
    assert (begins["1g"], begins["3g"], begins["2g"]) == (6, 4, 4)


@by_layout
@given(memory_mib=st.integers(1, 100_000), cores_percent=st.integers(0, 100))
def test_rounding_never_gives_less_than_asked(layout: Layout, memory_mib: int, cores_percent: int) -> None:
    rounded = layout.rounded(memory_mib, cores_percent)
    enough = [t for t in layout.templates if t.memory_mib >= memory_mib and t.cores_percent >= cores_percent]
    if rounded is None:
        assert not enough
    else:
        assert rounded in enough
        assert rounded.memory_mib == min(t.memory_mib for t in enough)


def test_what_is_held_twice_or_unknown_leaves_no_room() -> None:
    layout = layout_tables.mig("mig", 81920)
    catalogue = Catalogue()
    for held in ([Held("1g", 0), Held("2g", 0)], [Held("5g", 0)], [Held("1g", 9)]):
        state = catalogue.state_of(layout, held)
        assert catalogue.full[state]
        assert [int(catalogue.copies(t.name)[state]) for t in layout.templates] == [0] * 6


@pytest.mark.parametrize(
    ("templates", "problem"),
    [
        ((), "1 to 16 templates"),
        ((Template("a", 2, 1, {"n": 1}), Template("b", 1, 1, {"n": 1})), "smallest first"),
        ((Template("a", 1, 1),), "takes nothing"),
        ((Template("a", 1, 1, {"n": 9}),), "takes 9 n"),
        ((Template("a", 0, 1, {"n": 1}),), "0 MiB"),
    ],
)
def test_a_table_that_contradicts_itself_is_refused(templates: tuple[Template, ...], problem: str) -> None:
    with pytest.raises(LayoutError, match=problem):
        Layout("odd", {"n": 4}, templates)


def test_a_layout_of_too_many_states_is_refused() -> None:
    parts = [f"p{n}" for n in range(14)]
    wide = Layout("wide", dict.fromkeys(parts, 1), tuple(Template(p, 1, 1, {p: 1}) for p in parts))
    with pytest.raises(LayoutError, match="more than 4096 states"):
        compiled(wide)
