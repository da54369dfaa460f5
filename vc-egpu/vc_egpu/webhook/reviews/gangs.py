"""How much a gang needs at the least, and whether its queue's cap and the plan's limits can ever hold it."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from vc_egpu.core.model.gangs import counted_minimums, too_few
from vc_egpu.core.model.resources import counted, low_parts
from vc_egpu.volcano.words.quantity import QuantityError, parse_whole
from vc_egpu.volcano.words.resource_names import classify, names_cards
from vc_egpu.webhook.protocol.context import Context, QueueTree, Settings, mapping, spec_of, state_of
from vc_egpu.webhook.protocol.decision import Refusal


@dataclass(frozen=True, slots=True)
class Members:
    """Pods of one task: alike."""

    task: str
    replicas: int
    min_available: int
    sums: Mapping[str, int]
    """Countable resources of one pod."""
    cards: int = 0
    """Cards of one pod."""
    waits_for: tuple[str, ...] = ()
    """Tasks that have to run before its pods are made."""
    any_will_do: bool = False
    """One of them is enough."""


def gang_size(tasks: Sequence[Members], min_available: int | None) -> int:
    """Members that must start together: the Job's ``minAvailable``, or the sum of its tasks'."""
    return sum(task.min_available for task in tasks) if min_available is None else min_available


def least_need(tasks: Sequence[Members], min_available: int | None) -> dict[str, int]:
    """By resource, the least that any choice of ``minAvailable`` members takes; never too much.

    Tasks' own minimums count where their sum does not exceed the Job's; the rest are the cheapest members
    of each resource.
    """
    size = gang_size(tasks, min_available)
    floors = Counter(
        counted_minimums(size, {task.task: min(task.min_available, task.replicas) for task in tasks})
    )
    need: dict[str, int] = {}
    for resource in sorted({resource for task in tasks for resource in task.sums}):
        amount = sum(floors[task.task] * task.sums.get(resource, 0) for task in tasks)
        left = size - sum(floors.values())
        for task in sorted(tasks, key=lambda task: task.sums.get(resource, 0)):
            taken = max(0, min(left, task.replicas - floors[task.task]))
            amount += taken * task.sums.get(resource, 0)
            left -= taken
        if amount:
            need[resource] = amount
    return need


def check_size(tasks: Sequence[Members], settings: Settings, path: str) -> None:
    """Refuse gangs whose plan could not be written down."""
    members = sum(task.replicas for task in tasks)
    if members > settings.max_gang_members:
        raise Refusal(
            f"{path}: {members} members in all, the largest gang has {settings.max_gang_members}; "
            "split the Job"
        )
    cards = sum(task.replicas * task.cards for task in tasks)
    if cards > settings.max_gang_cards:
        raise Refusal(
            f"{path}: {cards} cards in all, the largest gang has {settings.max_gang_cards}; split the Job"
        )


@dataclass(frozen=True, slots=True)
class _Problem:
    """A reason why a gang could never come together."""

    kind: str
    task: str
    text: str = field(compare=False)


def check_minimums(
    tasks: Sequence[Members],
    min_available: int | None,
    stored: tuple[Sequence[Members], int | None] | None = None,
) -> None:
    """Refuse gangs that could never come together: Volcano's webhook does, where it runs.

    ``stored``: the same before an edit, which is not refused for what it found there.
    """
    known = frozenset(_never(*stored)) if stored is not None else frozenset()
    for problem in _never(tasks, min_available):
        if problem not in known:
            raise Refusal(problem.text)


def _never(tasks: Sequence[Members], min_available: int | None) -> Iterator[_Problem]:
    for name in [name for name, count in Counter(task.task for task in tasks).items() if count > 1]:
        text = f"spec.tasks: two tasks are called {name[:63]!r}; each needs a name of its own"
        yield _Problem("twice", name, text)
    for task in tasks:
        if task.min_available > task.replicas:
            yield _Problem(
                "task",
                task.task,
                f'spec.tasks["{task.task[:63]}"].minAvailable: {task.min_available} is more than '
                f"its {task.replicas} replicas",
            )
    total = sum(task.replicas for task in tasks)
    if min_available is not None and min_available > total:
        yield _Problem(
            "gang",
            "",
            f"spec.minAvailable: {min_available} is more than the {total} replicas of all tasks: "
            "it could never start",
        )
    yield from _order(tasks, gang_size(tasks, min_available))


def _order(tasks: Sequence[Members], size: int) -> Iterator[_Problem]:
    """Gangs that wait for members which are made only once others of the gang run: none ever does.

    Volcano's controllers and ours make them so, and both put the minimums of all tasks into the PodGroup. So
    the members that are made first are asked for what the decision, and Volcano's gang plugin, will ask.
    """
    least = {task.task: task.min_available for task in tasks}

    def comes_later(task: Members) -> bool:
        waits = [least.get(name, 1) > 0 for name in task.waits_for]
        return bool(waits) and (all(waits) if task.any_will_do else any(waits))

    later = {task.task: task for task in tasks if task.replicas and comes_later(task)}
    first = {task.task: task.replicas for task in tasks if task.task not in later}
    short = too_few(size, least, first) if later else None
    if short is None:
        return
    task = later.get(short.task) or next(iter(later.values()))
    before = (" or " if task.any_will_do else " and ").join(repr(name[:63]) for name in task.waits_for)
    made = f"made only once {before} runs (dependsOn): it could never start"
    most = min(sum(first.values()), size)
    if too_few(most, least, first) is not None:
        most = sum(least.values()) - 1  # the minimums of tasks count no more then
    if short.task:
        text = (
            f'spec.tasks["{task.task[:63]}"].minAvailable: the gang needs {short.wanted} of task '
            f"{task.task[:63]!r}, which are {made}; set it to 0, or name at most {most} as spec.minAvailable"
        )
    else:
        text = (
            f"spec.minAvailable: the gang is {size} members, of which {task.replicas} of task "
            f"{task.task[:63]!r} are {made}; name at most {most}"
        )
    yield _Problem("order", task.task, text)


def check_caps(
    need: Mapping[str, int], queue: str, context: Context, path: str, what: str, *, low: bool = False
) -> None:
    """Refuse a gang that its queue, or an ancestor of it, can never hold.

    ``what`` says what needs it, e.g. "the gang (minAvailable 9)". ``low``: it is of low priority.
    """
    needs = {**need, **(low_parts(need) if low else {})}
    for name, obj in context.queues.lineage(queue):
        capability = mapping(spec_of(obj).get("capability"))
        # A parent that names no model at all has no say in models; a leaf that names none allows none.
        speaks = name == queue or names_cards(capability)
        unnamed_refused = speaks and not context.settings.unnamed_model_unlimited
        for resource in needs:
            amount = counted(resource, needs, capability)
            if not amount:
                continue
            if resource not in capability:
                if unnamed_refused and classify(resource).is_counted:
                    raise Refusal(
                        f"{path}: queue {name!r} does not name {resource} in spec.capability, so it may have "
                        f"none of it; {what} needs {amount}"
                    )
                continue
            try:
                cap = parse_whole(capability[resource])
            except QuantityError as error:
                raise Refusal(f"{path}: queue {name!r}, spec.capability[{resource}]: {error}") from error
            if amount > cap:
                raise Refusal(
                    f"{path}: {what} needs {amount} {resource} at once, the cap of queue {name!r} is {cap}"
                )


def check_open(queue: str, queues: QueueTree, path: str) -> None:
    """Refuse queues that are closed, and those under one that is."""
    for name, obj in queues.lineage(queue):
        if state_of(obj) != "Open":
            below = "" if name == queue else f", and {queue!r} is under it"
            raise Refusal(f"{path}: queue {name!r} is {state_of(obj)}{below}, it takes nothing new")


def check_leaf(queue: str, queues: QueueTree, path: str) -> None:
    """Refuse queues that have queues under them."""
    children = queues.children(queue)
    if children:
        shown = ", ".join(children[:8]) + (", …" if len(children) > 8 else "")
        raise Refusal(f"{path}: queue {queue!r} has queues under it ({shown}); name one of those")
