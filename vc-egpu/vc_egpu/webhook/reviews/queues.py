"""Queues: lowering needs ``update``, which the API server checks; raising needs ``set-cap`` as well.

Without ``set-cap`` a queue may be raised only inside a parent that the requester may not update. Then the
children together stay within what the operator gave the parent.
"""

import difflib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from typing import Any, Final

from vc_egpu.core.model.policy import DEFAULT_MIN_RUNTIME_S
from vc_egpu.core.model.words import few
from vc_egpu.volcano.codec.request import MIB
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.quantity import QuantityError, parse, parse_seconds
from vc_egpu.volcano.words.resource_names import LONGEST_NAME, PER_CARD, classify, names_cards
from vc_egpu.webhook.protocol.context import (
    DEFAULT_QUEUE,
    MAX_QUEUE_DEPTH,
    ROOT_QUEUE,
    Context,
    QueueTree,
    Review,
    mapping,
    parent_of,
    spec_of,
)
from vc_egpu.webhook.protocol.decision import Decision, Json, Refusal, allow, refuse
from vc_egpu.webhook.protocol.questions import QueueLookup, Unanswered, any_allowed
from vc_egpu.webhook.reviews import queue_limits, without_effect
from vc_egpu.webhook.reviews.access import QUEUE_GROUP, queue_access

_DEFAULT_WEIGHT: Final = 1
_MAX_WARNINGS: Final = 6
_MAX_NAMED: Final = 20
_LOOKED_UP_AT_ONCE: Final = 16
_OF_BYTES: Final = frozenset("GTPE")
"""So many MiB no cluster has; thousands and millions some do."""
_MIN_RUNTIME_PATH: Final = f'metadata.annotations["{names.MIN_RUNTIME}"]'
_SPELLINGS: Final = (
    names.shared_resource,
    names.memory_total_resource,
    names.cores_total_resource,
    names.native_resource,
    names.low_resource,
    names.low_cores_resource,
)


@dataclass(frozen=True, slots=True)
class _Raise:
    """One thing that an edit raises."""

    field: str
    """``capability``, ``guarantee``, ``deserved``, ``weight``, ``priority``, ``parent``, or the annotation
    with the minimum run time."""
    key: str
    """The resource, empty for the others."""
    text: str
    removed: bool = False

    @property
    def path(self) -> str:
        """Where it stands."""
        if self.field == names.MIN_RUNTIME:
            return _MIN_RUNTIME_PATH
        return f"spec.{self.field}" + (f'["{self.key[:100]}"]' if self.key else "")


def review_queue(review: Review, context: Context) -> Decision:
    """Check an edit of a Queue.

    Raises :class:`~vc_egpu.webhook.protocol.questions.Unanswered` when it needs to know more.
    """
    queue, stored = review.object, review.old_object
    try:
        _check_switch(queue, stored)
    except Refusal as refusal:
        return refuse(str(refusal))
    limits_edited = queue_limits.is_edited(queue, stored)
    same = stored is not None and spec_of(stored) == spec_of(queue) and _span_of(stored) == _span_of(queue)
    if same and not limits_edited:
        return allow()  # its labels, or the finalizers of one that is on its way out
    try:
        if limits_edited:
            queue_limits.check_edit(review, context)
        _check_span(queue, stored)
        _check_numbers(queue, _amounts(stored or {}), context)
        warnings = _check_parent(review, context)
        warnings += without_effect.of_queue(spec_of(queue), spec_of(stored or {}), context.settings)
        raises = list(_raises(queue, stored, context))
        if raises:
            _check_leave(review, raises, context)
    except Refusal as refusal:
        return refuse(str(refusal))
    unknown = islice(_unknown_models(queue, stored, context), _MAX_WARNINGS)
    bytes_ = islice(_meant_in_bytes(queue, stored), _MAX_WARNINGS)
    return allow(warnings=[*warnings, *_below_use(queue, stored, context), *bytes_, *unknown])


def review_queue_deleted(review: Review, context: Context) -> Decision:
    """Keep a queue while others are under it, as Volcano's own webhook does. Keep it also while cards are in
    use, if it has a parent: they would no longer count in the queues above it. Raises
    :class:`~vc_egpu.webhook.protocol.questions.Unanswered` while only the cache says so. A user who deletes a
    tree from its leaves up is faster than our watch.
    """
    name, answers = _name_of(review.object), context.answers
    below = context.queues.children(name)
    lookups = [QueueLookup(child) for child in below]
    if lookups and not any(answers.looked_up(lookup) for lookup in lookups):
        raise Unanswered(lookups[:_LOOKED_UP_AT_ONCE])
    if below:
        return refuse(
            f"queue {name!r} has queues under it ({few(below, _MAX_NAMED)}): "
            "delete those first, or give them another parent"
        )
    parent = parent_of(review.object)
    if parent == ROOT_QUEUE or context.queues.get(parent) is None:
        return allow()
    used = {key: amount for key, amount in _use_of(review.object, context.queues).items() if amount > 0}
    cards = [f"{_shown(used[key])} {key}" for key in sorted(used) if classify(key).is_counted]
    if cards:
        return refuse(
            f"queue {name!r} is in use ({few(cards, _MAX_NAMED)}), which would count in {parent!r} no more: "
            "close it, and delete it once nothing runs in it"
        )
    return allow()


def _check_switch(queue: Json, stored: Json | None) -> None:
    """Refuse a value of the annotation that means nothing, where this edit writes it."""
    key = names.PREEMPT_WITHIN_QUEUE
    before, value = _annotation(stored or {}, key), _annotation(queue, key)
    if value not in {None, before, "true", "false"}:
        raise Refusal(f'metadata.annotations["{key}"]: {str(value)[:100]!r} is neither "true" nor "false"')


def _annotation(queue: Json, key: str) -> object:
    return mapping(mapping(queue.get("metadata")).get("annotations")).get(key)


def _check_parent(review: Review, context: Context) -> list[str]:
    """Refuse a new place in the tree where no cap could count, or that would shut another queue.

    Returns a warning about a parent that is not there: it may follow in the same file.
    """
    queue, stored = review.object, review.old_object
    name, parent = _name_of(queue), parent_of(queue)
    if parent == (ROOT_QUEUE if stored is None else parent_of(stored)):
        return []
    above = [ancestor for ancestor, _ in context.queues.lineage(parent)]
    if name in {parent, *above}:
        raise Refusal(f"spec.parent: {name!r} and {parent!r} would be in a circle, and no cap counts there")
    if len(above) >= MAX_QUEUE_DEPTH:
        raise Refusal(f"spec.parent: {parent!r} is on level {len(above)}, the limit is {MAX_QUEUE_DEPTH}")
    if mapping((context.queues.get(parent) or {}).get("metadata")).get("deletionTimestamp"):
        raise Refusal(f"spec.parent: queue {parent!r} is being deleted")
    if stored is None and not any_allowed(
        context.answers,
        [
            queue_access(review.subject, names.VERB_USE, parent),
            queue_access(review.subject, names.VERB_SET_CAP, name),
        ],
    ):
        raise Refusal(
            f"spec.parent: {review.subject} may not use queue {parent!r} (RBAC verb "
            f'"{names.VERB_USE}"), and {_lacking(review)}'
        )
    known = parent == ROOT_QUEUE or parent in context.queues
    return [] if known else [f"spec.parent: queue {parent[:63]!r} does not exist, so no cap of it counts"]


def _name_of(queue: Json) -> str:
    return str(mapping(queue.get("metadata")).get("name") or "")


def _lacking(review: Review) -> str:
    return (
        f'{review.subject} may not raise queue {_name_of(review.object)!r} (RBAC verb "{names.VERB_SET_CAP}" '
        f"on queues.{QUEUE_GROUP})"
    )


def _check_numbers(queue: Json, before: Mapping[str, Mapping[str, Any]], context: Context) -> None:
    """Refuse amounts that cannot be counted. What is stored already is not judged, whatever it is."""
    for field, amounts in _amounts(queue).items():
        old = before[field]
        for key, raw in amounts.items():
            if not _is_as_before(key, raw, old):
                path = f'spec.{field}["{key[:100]}"]'
                _check_number(key, raw, path, is_new=key not in old)
                if classify(key).kind == "low":
                    _check_low_key(field, path, context)
                if classify(key).kind == "per-card" and not _is_volcanos({**old, **amounts}, old):
                    raise Refusal(
                        f"{path}: counts nothing, it is what one container asks per card; "
                        f"cap the sums, for example {names.SHARED_PREFIX}<model>{names.MEMORY_TOTAL_SUFFIX}"
                    )


def _span_of(queue: Json) -> object:
    """The minimum run time as it is written; None: the queue says nothing."""
    return mapping(mapping(queue.get("metadata")).get("annotations")).get(names.MIN_RUNTIME)


def _check_span(queue: Json, stored: Json | None) -> None:
    raw = _span_of(queue)
    if raw is None or (stored is not None and raw == _span_of(stored)):
        return
    try:
        parse_seconds(raw)
    except QuantityError as error:
        raise Refusal(f"{_MIN_RUNTIME_PATH}: {error}") from error


def _span_s(queue: Json) -> float:
    """The minimum run time that counts, as far as it is known here: the default is a flag elsewhere."""
    try:
        return parse_seconds(_span_of(queue))
    except QuantityError:
        return DEFAULT_MIN_RUNTIME_S


def _check_low_key(field: str, path: str, context: Context) -> None:
    """Keys for low shares: only as caps, and not where Volcano's scheduler counts otherwise."""
    if field != "capability":
        raise Refusal(f"{path}: is a cap for shares of low priority and has no effect here; leave it out")
    if context.settings.scheduler_name == names.SCHEDULER_VOLCANO:
        raise Refusal(
            f"{path}: vc-scheduler binds the pods here and counts low shares in the main keys; leave it out"
        )


def _is_as_before(key: str, raw: object, old: Mapping[str, Any]) -> bool:
    return key in old and type(raw) is type(old[key]) and raw == old[key]


def _is_volcanos(amounts: Mapping[str, Any], stored: Mapping[str, Any]) -> bool:
    """Whether limits per card are caps on Volcano's own vGPUs here: the queue counts those, or did before."""
    return names.VOLCANO_VGPU_NUMBER in amounts or not PER_CARD.isdisjoint(stored)


def _check_number(key: str, raw: object, path: str, *, is_new: bool) -> None:
    if len(key) > LONGEST_NAME and is_new:
        raise Refusal(f'{path[:-2]}..."]: {len(key)} characters, the limit is {LONGEST_NAME}')
    value, kind = _value(raw, path), classify(key)
    if value < 0:
        raise Refusal(f"{path}: {raw} is below 0")
    if kind.is_managed and value.denominator != 1:
        raise Refusal(f"{path}: {raw} is not a whole number")
    if kind.kind == "memory-total" and parse(raw).is_binary:
        meant = max(1, int(value) // MIB)
        raise Refusal(f"{path}: {raw}: the unit is MiB, did you mean {meant}?")


def _unknown_models(queue: Json, stored: Json | None, context: Context) -> Iterator[str]:
    """Warnings about keys, new in this edit, of models that are not in the table: most are misspelt.

    One by one: what is near takes time to find, and all reviews wait for this one.
    """
    old = _amounts(stored or {})
    known = sorted(model.name for model in context.table.models)
    spelt = [spelling(model) for model in known for spelling in _SPELLINGS]
    for field, amounts in _amounts(queue).items():
        for key in amounts:
            kind = classify(str(key))
            if kind.kind == "any" and key not in old[field]:
                yield f'spec.{field}["{key}"]: counts nothing, what is of any model counts in the chosen one'
            elif kind.kind == "mig" and key not in old[field]:
                yield f'spec.{field}["{key[:100]}"]: counts nothing, slices count in the keys of their model'
            elif kind.is_managed and kind.model not in known and key not in old[field]:
                near = difflib.get_close_matches(key, spelt, 1, cutoff=0.85)
                guess = f"did you mean {near[0]}?" if near else f"known are {', '.join(known) or 'none'}"
                yield f'spec.{field}["{key[:100]}"]: model {kind.model[:63]!r} is not known, {guess}'


def _meant_in_bytes(queue: Json, stored: Json | None) -> Iterator[str]:
    """Warnings about memory, new in this edit, of so many MiB that bytes are meant: no cap at all."""
    old = _amounts(stored or {})
    for field, amounts in _amounts(queue).items():
        for key, raw in amounts.items():
            if classify(str(key)).kind != "memory-total" or raw == old[field].get(key):
                continue
            quantity = parse(raw)
            if quantity.suffix in _OF_BYTES:
                value, meant = int(quantity.value), max(1, int(quantity.value) // MIB)
                yield f'spec.{field}["{key[:100]}"]: {raw} is {value} MiB; if bytes are meant, write {meant}'


def _amounts(queue: Json) -> dict[str, dict[str, Any]]:
    spec = spec_of(queue)
    return {
        "capability": mapping(spec.get("capability")),
        "deserved": mapping(spec.get("deserved")),
        "guarantee": mapping(mapping(spec.get("guarantee")).get("resource")),
    }


def _raises(queue: Json, stored: Json | None, context: Context) -> Iterator[_Raise]:
    """Everything that gives the queue more than it had."""
    before = stored if stored is not None else {}
    old_amounts = _amounts(before)
    for field, amounts in _amounts(queue).items():
        old = old_amounts[field]
        for key, raw in amounts.items():
            if key in old:
                if not _is_as_before(key, raw, old) and _value(raw, field) > _value_or_zero(old[key]):
                    yield _Raise(field, key, f"{old[key]} to {raw}")
            elif _adding_raises(field, key, raw, context):
                yield _Raise(field, key, f"nothing to {raw}")
        yield from (
            _Raise(field, key, f"{old[key]} to nothing", removed=True) for key in old if key not in amounts
        )
    spec, old_spec = spec_of(queue), spec_of(before)
    for field, default in (("weight", _DEFAULT_WEIGHT), ("priority", 0)):
        new, was = _int(spec.get(field), default), _int(old_spec.get(field), default)
        if new > was:
            yield _Raise(field, "", f"{was} to {new}")
    span_s, old_span_s = _span_s(queue), _span_s(before)
    if span_s > old_span_s:
        # What runs is spared for longer: the others get theirs back later.
        yield _Raise(names.MIN_RUNTIME, "", f"{old_span_s:g} s to {span_s:g} s")
    if stored is not None and parent_of(queue) != parent_of(stored):
        yield _Raise("parent", "", f"{parent_of(stored)!r} to {parent_of(queue)!r}")
    if stored is None and context.settings.unnamed_model_unlimited and _gives_everything(queue):
        yield _Raise("capability", "", "nothing to unlimited")


def _gives_everything(queue: Json) -> bool:
    """A new queue without caps where unnamed models are unlimited. Volcano's scheduler makes two of these."""
    return not _amounts(queue)["capability"] and _name_of(queue) not in {DEFAULT_QUEUE, ROOT_QUEUE}


def _adding_raises(field: str, key: str, raw: Any, context: Context) -> bool:
    """A cap on what had none lowers, except that a model that was not named was not allowed at all."""
    if _value(raw, field) == 0:
        return False
    if field != "capability":
        return True
    kind = classify(key)  # low shares count in the main keys no more
    return kind.kind == "low" or (kind.is_counted and not context.settings.unnamed_model_unlimited)


def _check_leave(review: Review, raises: list[_Raise], context: Context) -> None:
    name, first, lacking = _name_of(review.object), raises[0], _lacking(review)
    if any_allowed(context.answers, [queue_access(review.subject, names.VERB_SET_CAP, name)]):
        return
    parent_name = parent_of(review.object)
    parent = context.queues.get(parent_name) if parent_name != ROOT_QUEUE else None
    moved = next((item for item in raises if item.field == "parent"), None)
    if moved is not None or parent is None:
        shown = moved or first
        raise Refusal(f"{shown.path}: {shown.text}: {lacking}")
    edits = [queue_access(review.subject, verb, parent_name) for verb in ("update", "patch")]
    if any_allowed(context.answers, edits):
        raise Refusal(
            f"{first.path}: {first.text}: {lacking}, nor is its parent {parent_name!r} the operator's: "
            f"{review.subject} may update it"
        )
    for item in raises:
        _check_within_parent(item, review.object, name, parent_name, parent, context, lacking)


def _check_within_parent(  # noqa: PLR0917 - values of one sentence
    item: _Raise, queue: Json, name: str, parent_name: str, parent: Json, context: Context, lacking: str
) -> None:
    """The children's sum stays within the parent; what is no sum stays at or below the parent's."""
    if item.field in {"weight", "priority"}:
        default = _DEFAULT_WEIGHT if item.field == "weight" else 0
        limit = _int(spec_of(parent).get(item.field), default)
        if _int(spec_of(queue).get(item.field), default) > limit:
            raise Refusal(
                f"{item.path}: {item.text} is above the {limit} of parent {parent_name!r}: {lacking}"
            )
        return
    if item.field == names.MIN_RUNTIME:
        if _span_s(queue) > _span_s(parent):
            raise Refusal(
                f"{item.path}: {item.text} is above the {_span_s(parent):g} s of parent {parent_name!r}: "
                f"{lacking}"
            )
        return
    allowed = _amounts(parent)[item.field]
    if item.key not in allowed:
        if item.field != "capability" or (classify(item.key).is_counted and not item.removed):
            raise Refusal(f"{item.path}: {item.text}: parent {parent_name!r} does not name it: {lacking}")
        return
    if item.removed:
        raise Refusal(
            f"{item.path}: {item.text}: parent {parent_name!r} caps it at {allowed[item.key]}, a child "
            f"without a cap is not within that: {lacking}"
        )
    siblings = [child for child in context.queues.children(parent_name) if child != name]
    total = _value(_amounts(queue)[item.field][item.key], item.path)
    for sibling in siblings:
        total += _value_or_zero(_amounts(context.queues.get(sibling) or {})[item.field].get(item.key, 0))
    if total > _value_or_zero(allowed[item.key]):
        raise Refusal(
            f"{item.path}: {item.text}: the children of {parent_name!r} would have {_shown(total)} together, "
            f"it has {allowed[item.key]}: {lacking}"
        )


def _below_use(queue: Json, stored: Json | None, context: Context) -> list[str]:
    """Warnings for caps that are lowered below what the queue, with those below it, uses now."""
    if stored is None:
        return []
    used = _use_of(stored, context.queues)
    old, new = _amounts(stored)["capability"], _amounts(queue)["capability"]
    lowered = {key: str(raw) for key, raw in new.items() if raw != old.get(key)}
    # As at the door of gangs: see :func:`vc_egpu.webhook.reviews.gangs.check_caps`.
    speaks = names_cards(new) or not context.queues.children(_name_of(queue))
    if speaks and not context.settings.unnamed_model_unlimited:
        lowered |= {key: "none" for key in old if key not in new and classify(key).is_counted}
    warnings = [
        f'spec.capability["{key}"]: {raw} is below the {_shown(used[key])} in use; '
        "nothing is evicted, new work waits"
        for key, raw in lowered.items()
        if key in used and _value_or_zero(new.get(key, 0)) < used[key]
    ]
    return warnings[:_MAX_WARNINGS]


def _use_of(queue: Json, queues: QueueTree, above: frozenset[str] = frozenset()) -> dict[str, Fraction]:
    """What a queue uses by its status, or what the queues below it use together if that is more. A parent's
    status may leave theirs out. ``above``: the queues on the way here, which end a circle."""
    allocated = mapping(mapping(queue.get("status")).get("allocated"))
    own = {key: _value_or_zero(raw) for key, raw in allocated.items()}
    way, below = above | {_name_of(queue)}, defaultdict[str, Fraction](Fraction)
    for child in queues.children(_name_of(queue)) if len(way) <= MAX_QUEUE_DEPTH else ():
        if child not in way:
            for key, amount in _use_of(queues.get(child) or {}, queues, way).items():
                below[key] += amount
    return {key: max(own.get(key, Fraction(0)), below[key]) for key in {*own, *below}}


def _value(raw: object, path: str) -> Fraction:
    try:
        return parse(raw).value
    except QuantityError as error:
        raise Refusal(f"{path}: {error}") from error


def _value_or_zero(raw: object) -> Fraction:
    """What is stored already is not judged; what is not a number counts nothing."""
    try:
        return parse(raw).value
    except QuantityError:
        return Fraction(0)


def _shown(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else f"{float(value):g}"


def _int(raw: Any, default: int) -> int:
    return raw if isinstance(raw, int) and not isinstance(raw, bool) else default
