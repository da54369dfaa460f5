"""Rules between pods that some pod carries: other pods of its namespace are held against them.

A pod that another one avoids need not have any rule itself. So a rule that comes, or goes, may say something
about each pod of its namespace.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from vc_egpu.core.model.cluster import PodUid
from vc_egpu.core.model.neighbours import RuleKey
from vc_egpu.volcano.codec.pod_codec import DecodedPod
from vc_egpu.volcano.podspec.neighbours import NO_RULES, Rules, Selector

MOST_RULES: Final = 64
"""In one namespace. Pods are held against further rules only where they carry them."""


@dataclass(slots=True)
class _Carried:
    selector: Selector
    by: dict[PodUid, None] = field(default_factory=dict)


@dataclass(slots=True)
class RulesAtWork:
    """By namespace: the rules, and the pods that carry them."""

    _known: dict[str, dict[RuleKey, _Carried]] = field(default_factory=dict)
    _of: dict[PodUid, tuple[str, Rules]] = field(default_factory=dict)

    def put(self, uid: PodUid, namespace: str, rules: Rules) -> bool:
        """The pod carries these rules, and no others. Whether any rule of its namespace came or went."""
        before = self._of.get(uid, (namespace, NO_RULES))
        if before == (namespace, rules):
            return False
        went = self._take_off(uid, *before)
        came = False
        known = self._known.setdefault(namespace, {}) if rules else {}
        for key, selector in rules:
            if key not in known and len(known) < MOST_RULES:
                known[key] = _Carried(selector)
                came = True
            if key in known:
                known[key].by[uid] = None
        if rules:
            self._of[uid] = (namespace, rules)
        return came or went

    def _take_off(self, uid: PodUid, namespace: str, rules: Rules) -> bool:
        self._of.pop(uid, None)
        known = self._known.get(namespace, {})
        for key, _ in rules:
            if key in known:
                known[key].by.pop(uid, None)
        gone = [key for key, _ in rules if key in known and not known[key].by]
        for key in gone:
            del known[key]
        if not known:
            self._known.pop(namespace, None)
        return bool(gone)

    def enter(self, decoded: DecodedPod) -> DecodedPod:
        """The pod with the rules that select it: its own, and those that are at work in its namespace."""
        known = self._known.get(decoded.pod.namespace)
        own = decoded.words.shape.neighbours if decoded.words is not None else decoded.pod.shape.neighbours
        others = _selecting(known, decoded.labels) if known else ()
        selected_by = tuple(sorted({*own.selected_by, *others}))
        shape = decoded.pod.shape
        if selected_by == shape.neighbours.selected_by:
            return decoded
        neighbours = replace(own, selected_by=selected_by)
        return replace(decoded, pod=replace(decoded.pod, shape=replace(shape, neighbours=neighbours)))


def _selecting(known: Mapping[RuleKey, _Carried], labels: Mapping[str, str]) -> list[RuleKey]:
    return [key for key, carried in known.items() if carried.selector.matches(labels)]
