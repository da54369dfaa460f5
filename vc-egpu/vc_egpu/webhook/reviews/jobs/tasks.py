"""A Volcano Job and its tasks as reviews see them, and what an update copies back into a task."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from vc_egpu.volcano.api.containers import IN_SPEC
from vc_egpu.volcano.codec import options
from vc_egpu.volcano.codec.request import AskError, PodAsk, is_managed, names_without_effect
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.model_table import ModelTable
from vc_egpu.volcano.words.quantity import QuantityError, parse
from vc_egpu.volcano.words.resource_names import classify
from vc_egpu.webhook.protocol.context import DEFAULT_QUEUE, annotations_of, items, labels_of, mapping, spec_of
from vc_egpu.webhook.protocol.decision import Json
from vc_egpu.webhook.reviews.gangs import Members
from vc_egpu.webhook.reviews.jobs.respell import minimum_of, respell_task
from vc_egpu.webhook.reviews.pods import complete_container

_TOTAL_KINDS: Final = frozenset({"memory-total", "cores-total"})


@dataclass(frozen=True, slots=True)
class Task:
    """One task of a Job; ``raw`` is what the object holds."""

    name: str
    raw: Json

    @property
    def path(self) -> str:
        """Where its template stands, for refusals."""
        return f'spec.tasks["{self.name[:63]}"].template'

    @property
    def template(self) -> dict[str, Any]:
        """The pod template."""
        return mapping(self.raw.get("template"))

    @property
    def pod_spec(self) -> dict[str, Any]:
        """The template's pod spec."""
        return spec_of(self.template)

    @property
    def annotations(self) -> dict[str, Any]:
        """The template's annotations."""
        return annotations_of(self.template)

    @property
    def is_labelled(self) -> bool:
        """True if the template carries the managed label."""
        return labels_of(self.template).get(names.MANAGED_LABEL) == "true"

    @property
    def grace_s(self) -> object:
        """How long its pods may take to end, as the object says it."""
        return self.pod_spec.get("terminationGracePeriodSeconds")

    def ask(self, table: ModelTable) -> PodAsk:
        """What each of its pods asks for; raises :class:`AskError`."""
        return options.read(self.pod_spec, self.annotations, table, f"{self.path}.spec")

    def members(self, ask: PodAsk) -> Members:
        """Its pods, counted; a minimum that is not named is the one that Volcano fills in."""
        where = f'spec.tasks["{self.name[:63]}"]'
        replicas = _count(self.raw.get("replicas"), 0, f"{where}.replicas")
        least = _count(minimum_of(self.raw), 0, f"{where}.partitionPolicy")
        minimum = _count(self.raw.get("minAvailable"), least, f"{where}.minAvailable")
        depends_on = mapping(self.raw.get("dependsOn"))
        waits_for = tuple(str(name) for name in items(depends_on.get("name")))
        any_will_do = depends_on.get("iteration") == "any"
        return Members(self.name, replicas, minimum, ask.sums(), ask.cards, waits_for, any_will_do)

    def completed(self, ask: PodAsk) -> Json:
        """The task with the totals in its template, and the managed label."""
        spec = dict(self.pod_spec)
        for key in IN_SPEC:
            if items(spec.get(key)):
                spec[key] = [complete_container(item, ask, whole_pod=False) for item in items(spec[key])]
        return _with_template(self.raw, {**self.template, "spec": spec}, label=True)


_FOR_TEMPLATES: Final = (names.ALTERNATIVES, names.ALTERNATIVES_ORDER)
"""Annotations of a Job that count for the templates which take any of several models."""


def _told(task: Json, told: Mapping[str, Any]) -> Json:
    """The task with what its Job says of alternatives: its pods are made of the template alone."""
    template = mapping(task.get("template"))
    if not told or not options.is_open(spec_of(template)):
        return task
    metadata = mapping(template.get("metadata"))
    said = {**annotations_of(template), **told}
    return {**task, "template": {**template, "metadata": {**metadata, "annotations": said}}}


@dataclass(frozen=True, slots=True)
class TaskedJob:
    """A Job with its tasks; ``raw`` is what the object holds."""

    raw: Json
    tasks: tuple[Task, ...]

    @classmethod
    def read(cls, job: Json) -> "TaskedJob":
        """Read the tasks; one without a name is called as Volcano will call it."""
        found = items(spec_of(job).get("tasks"))
        told = {name: text for name, text in annotations_of(job).items() if name in _FOR_TEMPLATES}
        tasks = (
            Task(str(mapping(task).get("name") or f"default{index}"), _told(mapping(task), told))
            for index, task in enumerate(found)
        )
        return cls(job, tuple(tasks))

    @property
    def spec(self) -> dict[str, Any]:
        """The Job's spec."""
        return spec_of(self.raw)

    @property
    def annotations(self) -> dict[str, Any]:
        """The Job's own annotations."""
        return annotations_of(self.raw)

    @property
    def queue(self) -> str:
        """The queue that it names, or Volcano's default."""
        return str(self.spec.get("queue") or DEFAULT_QUEUE)

    @property
    def min_available(self) -> int | None:
        """The Job's own minimum; None where the tasks' minimums count (0 is Volcano's "not set")."""
        return _count(self.spec.get("minAvailable"), 0, "spec.minAvailable") or None

    def sizes(self) -> object:
        """All that says how many pods start together, to compare."""
        return (
            self.spec.get("minAvailable"),
            [(task.name, task.raw.get("replicas"), task.raw.get("minAvailable")) for task in self.tasks],
        )

    def queues(self) -> object:
        """All that names a queue, to compare."""
        named = [(task.name, task.annotations.get(names.QUEUE_NAME)) for task in self.tasks]
        return self.spec.get("queue"), named

    def classes(self) -> object:
        """All that names a class, to compare."""
        return (
            self.annotations.get(names.PRIORITY),
            self.spec.get("priorityClassName"),
            [
                (task.name, task.annotations.get(names.PRIORITY), task.pod_spec.get("priorityClassName"))
                for task in self.tasks
            ],
        )


def asks_for_cards(job: Json) -> bool:
    """Whether a Job is one that is reviewed: a task names a model, or carries the managed label."""
    return any(task.is_labelled or is_managed(task.pod_spec) for task in TaskedJob.read(job).tasks)


def copied_back(task: Task, stored: Task) -> tuple[Task, bool]:
    """(the task with what the webhook once wrote into the stored one, whether all asks are unchanged).

    A manifest that is applied again lacks our totals and our label. If a container's ask is still the same,
    they come back exactly as stored, and no others are added. A container whose ask changed loses the stored
    totals, so that they are counted again.
    """
    unchanged = True
    task = Task(task.name, respell_task(task.raw, stored.raw))
    spec = dict(task.pod_spec)
    before = {str(container.get("name")): container for container in _containers(stored.pod_spec)}
    asked_before = {name for name, container in before.items() if ask_key(container)}
    seen: set[str] = set()
    for key in IN_SPEC:
        containers: list[Any] = []
        for container in items(spec.get(key)):
            name = str(mapping(container).get("name"))
            old = before.get(name)
            if old is None:
                unchanged = unchanged and not ask_key(mapping(container))
                containers.append(container)
                continue
            seen.add(name)
            same = ask_key(container) == ask_key(old)
            unchanged = unchanged and same
            containers.append(_restore(container, old) if same else _without_totals(container, old))
        if containers:
            spec[key] = containers
    template = {**task.template, "spec": spec}
    raw = _with_template(task.raw, template, label=stored.is_labelled)
    return Task(task.name, raw), unchanged and asked_before <= seen


def ask_key(container: Json) -> dict[str, object]:
    """What a container asks for, without totals and independent of how numbers are written."""
    limits = mapping(mapping(container.get("resources")).get("limits"))
    idle = names_without_effect(container)
    return {
        name: _value(raw)
        for name, raw in limits.items()
        if classify(name).kind in {"shared", "native", "any", "mig", "per-card"} and name not in idle
    }


def _restore(container: Json, stored: Json) -> Json:
    ours = _written(stored)
    if not any(ours.values()):
        return container
    resources = dict(mapping(container.get("resources")))
    for kind, amounts in ours.items():
        if amounts:
            resources[kind] = {**mapping(resources.get(kind)), **amounts}
    return {**container, "resources": resources}


def _without_totals(container: Json, stored: Json) -> Json:
    """Drop the stored totals that an edit of the live object carried over."""
    resources = dict(mapping(container.get("resources")))
    for kind, amounts in _written(stored).items():
        if amounts and isinstance(resources.get(kind), dict):
            resources[kind] = {
                name: raw for name, raw in resources[kind].items() if amounts.get(name, _ABSENT) != raw
            }
    return {**container, "resources": resources}


_ABSENT: Final = object()


def _written(stored: Json) -> dict[str, dict[str, Any]]:
    """What the webhook adds to a container: totals in limits; totals and cards in requests."""
    resources = mapping(stored.get("resources"))
    return {
        "limits": {
            name: raw
            for name, raw in mapping(resources.get("limits")).items()
            if classify(name).kind in _TOTAL_KINDS
        },
        "requests": {
            name: raw for name, raw in mapping(resources.get("requests")).items() if classify(name).is_managed
        },
    }


def _containers(spec: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for key in IN_SPEC:
        yield from (mapping(container) for container in items(spec.get(key)))


def _with_template(raw: Json, template: dict[str, Any], *, label: bool) -> Json:
    if label and labels_of(template).get(names.MANAGED_LABEL) != "true":
        metadata = mapping(template.get("metadata"))
        labels = {**labels_of(template), names.MANAGED_LABEL: "true"}
        template = {**template, "metadata": {**metadata, "labels": labels}}
    return {**raw, "template": template}


def _value(raw: object) -> object:
    try:
        return parse(raw).value
    except QuantityError:
        return repr(raw)


def _count(raw: object, absent: int, path: str) -> int:
    if raw is None:
        return absent
    if isinstance(raw, bool) or not isinstance(raw, int) or not 0 <= raw < 2**31:
        raise AskError(path, f"{str(raw)[:40]!r} is not a number of pods from 0 to {2**31 - 1}")
    return raw
