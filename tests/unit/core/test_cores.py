"""Which members a gang's minimum may be made of, where it has more of them than it needs."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations, islice

import pytest
from unit.core.make import gang, node, pods, shape, snapshot
from vc_egpu.core.books.state import fresh_index
from vc_egpu.core.model.cluster import PodUid
from vc_egpu.core.model.gangs import GangView, Member
from vc_egpu.core.waiting import ready


def view_of(tasks: Mapping[str, int], least: int, minimums: Mapping[str, int] | None = None) -> GangView:
    """A gang of tasks that all ask for something else: the later, the more. ``a'`` is of task ``a``."""
    asking = gang("ns/g", least=least, min_task_member=minimums or {})
    waiting = [
        pod
        for size, (task, count) in enumerate(tasks.items())
        for pod in pods("ns/g", count, shape(1000 + size, 10), task=task)
    ]
    waiting = [
        replace(pod, task=pod.task.rstrip("'"), index=at, uid=PodUid(f"uid{at}"))
        for at, pod in enumerate(waiting)
    ]
    return fresh_index(snapshot([node()], [asking], waiting)).view("ns/g")


def by_task(members: tuple[Member, ...]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(Counter(member.task for member in members).items()))


def by_kind(members: tuple[Member, ...]) -> tuple[tuple[tuple[str, int], int], ...]:
    return tuple(sorted(Counter((member.task, member.shape_id) for member in members).items()))


@pytest.mark.parametrize(
    ("tasks", "least", "minimums"),
    [
        ({"a": 2, "b": 2}, 3, {}),
        ({"a": 3, "b": 1, "c": 2}, 4, {}),
        ({"a": 3, "b": 2, "c": 2}, 4, {"c": 2}),
        ({"a": 2, "b": 3, "c": 1}, 3, {"a": 1, "b": 2}),
        ({"a": 1, "b": 1, "c": 1, "d": 1}, 2, {"d": 1}),
        ({"a": 2, "b": 2, "a'": 2, "b'": 1}, 4, {"a": 2, "b": 1}),
        ({"b": 1, "a": 1, "a'": 1, "b'": 2}, 4, {"a": 1, "b": 3}),
    ],
)
def test_every_choice_that_makes_the_gang_whole_is_given_once(
    tasks: Mapping[str, int], least: int, minimums: Mapping[str, int]
) -> None:
    view = view_of(tasks, least, minimums)
    possible = {
        by_kind(members)
        for members in combinations(view.waiting, least)
        if all(dict(by_task(members)).get(task, 0) >= count for task, count in minimums.items())
    }
    given = [by_kind(members) for members in ready.cores(view)]
    assert len(given) == len(set(given))
    assert set(given) == possible


def test_the_smallest_asks_come_first_after_the_order_of_tasks() -> None:
    view = view_of({"a": 2, "b": 2, "c": 2}, 3, {"c": 1})
    given = [dict(by_task(members)) for members in islice(ready.cores(view), 3)]
    assert given == [{"a": 2, "c": 1}, {"a": 1, "b": 1, "c": 1}, {"a": 1, "c": 2}]


def test_small_is_who_asks_for_fewer_cards_then_less_memory_then_fewer_cores_then_less_cpu() -> None:
    shapes = {
        "a-is-the-first": shape(9, 9, cards=9),
        "b-cards": shape(1, 1, cards=2),
        "c-memory": shape(9, 1),
        "d-cores": shape(1, 2, cpu_milli=50),
        "e-cpu": shape(1, 1, cpu_milli=200),
        "f-least": shape(1, 1, cpu_milli=100),
        "g-none": shape(cpu_milli=900),
    }
    waiting = [pod for task, what in shapes.items() for pod in pods("ns/g", 1, what, task=task)]
    view = fresh_index(snapshot([node()], [gang("ns/g")], waiting)).view("ns/g")
    given = [members[0].task for members in ready.cores(view)]
    assert given == ["a-is-the-first", "g-none", "f-least", "e-cpu", "d-cores", "c-memory", "b-cards"]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("least", "minimums"),
    [
        pytest.param(1199, {}, id="nearly-all"),
        pytest.param(600, {"t11": 99}, id="much-of-the-last"),
    ],
)
def test_choices_that_lead_nowhere_are_not_tried(least: int, minimums: Mapping[str, int]) -> None:
    """A dozen tasks of a hundred: tried one after the other, the ways that fall short outlast everybody."""
    view = view_of({f"t{number:02}": 100 for number in range(12)}, least, minimums)
    given = list(islice(ready.cores(view), 24))
    assert len(given) == (12 if not minimums else 24)
    assert {len(members) for members in given} == {least}


def test_a_task_for_each_member_is_no_deeper_than_any_other_gang() -> None:
    view = view_of({f"t{number:04}": 1 for number in range(1500)}, 1499)
    assert len(list(islice(ready.cores(view), 24))) == 24
