"""Rules between pods that some pod carries: other pods are held against them.

A pod that another one avoids, or needs, need not have any rule itself. So a rule that comes, or goes, may say
something about each pod of its namespaces.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from vc_egpu.core.model.cluster import PodUid
from vc_egpu.core.model.neighbours import NO_NEIGHBOURS, RuleKey
from vc_egpu.volcano.codec.pod_codec import DecodedPod
from vc_egpu.volcano.podspec.neighbours import NO_RULES, Rules, selecting
from vc_egpu.volcano.podspec.selectors import Label, Selection

MOST_RULES: Final = 64
"""Rules of one namespace, or of all, that name no label and its value: each is held against every pod."""
MOST_LABELLED: Final = 4096
"""All others of one namespace: a pod is held against those of its own labels."""
_EVERYWHERE: Final = ""
_Labels = Mapping[str, str]


@dataclass(slots=True)
class _Carried:
    selection: Selection
    by: dict[PodUid, None] = field(default_factory=dict)

    @property
    def homes(self) -> Iterable[str]:
        """The namespaces that it is about; empty text: those with some labels."""
        named = self.selection.namespaces
        return (_EVERYWHERE,) if named is None else named

    @property
    def label(self) -> Label | None:
        """A label that all have which it selects."""
        return self.selection.label


@dataclass(slots=True)
class _Home:
    """The rules about pods of one namespace, by a label that the pods have."""

    by_label: dict[Label | None, dict[RuleKey, Selection]] = field(default_factory=dict)
    count: int = 0

    def put(self, key: RuleKey, carried: _Carried) -> bool:
        label = carried.label
        rules = self.by_label.setdefault(label, {})
        if len(rules) >= MOST_RULES if label is None else self.count >= MOST_LABELLED:
            return False
        rules[key] = carried.selection
        self.count += label is not None
        return True

    def drop(self, key: RuleKey, carried: _Carried) -> None:
        label = carried.label
        rules = self.by_label.get(label, {})
        if rules.pop(key, None) is not None:
            self.count -= label is not None
        if not rules:
            self.by_label.pop(label, None)

    def about(self, labels: _Labels) -> Iterator[tuple[RuleKey, Selection]]:
        """Those that may select a pod with these labels."""
        if None in self.by_label:
            yield from self.by_label[None].items()
        if self.count:
            for label in labels.items():
                yield from self.by_label.get(label, {}).items()


@dataclass(slots=True)
class RulesAtWork:
    """The rules, by the namespaces that they are about, and the pods that carry them."""

    namespaces: dict[str, _Labels] = field(default_factory=dict)
    """Labels of namespaces."""
    _homes: dict[str, _Home] = field(default_factory=dict)
    _known: dict[RuleKey, _Carried] = field(default_factory=dict)
    _of: dict[PodUid, Rules] = field(default_factory=dict)

    def put(self, uid: PodUid, rules: Rules) -> list[Selection]:
        """The pod carries these rules, and no others. Those that came, or went with their last pod."""
        before = self._of.get(uid, NO_RULES)
        if before == rules:
            return []
        gone = self._take_off(uid, before)
        came: list[Selection] = []
        for key, selection in rules:
            if key not in self._known:
                self._known[key] = _Carried(selection)
                came += [selection] if self._enter(key) else []
            self._known[key].by[uid] = None
        if rules:
            self._of[uid] = rules
        return [one for key, one in gone if key not in self._known] + came

    def selects(self, selection: Selection, labels: _Labels, namespace: str) -> bool:
        """Whether it selects a pod with these labels in this namespace."""
        return selection.matches(labels, namespace, self.namespaces.get(namespace, {}))

    def _enter(self, key: RuleKey) -> bool:
        carried = self._known[key]
        entered = [self._homes.setdefault(home, _Home()).put(key, carried) for home in carried.homes]
        return any(entered)

    def _take_off(self, uid: PodUid, before: Rules) -> list[tuple[RuleKey, Selection]]:
        self._of.pop(uid, None)
        gone = []
        for key, selection in before:
            carried = self._known.get(key)
            if carried is None:
                continue
            carried.by.pop(uid, None)
            if not carried.by:
                del self._known[key]
                gone.append((key, selection))
                for name in carried.homes:
                    home = self._homes.get(name)
                    if home is not None:
                        home.drop(key, carried)
                        if not home.by_label:
                            del self._homes[name]
        return gone

    def put_namespace(self, name: str, labels: _Labels | None) -> bool:
        """A namespace has these labels, or is gone. Whether its pods have to be looked at again."""
        before = self.namespaces.get(name)
        if labels is None:
            self.namespaces.pop(name, None)
        else:
            self.namespaces[name] = labels
        return before != labels and _EVERYWHERE in self._homes

    def enter(self, decoded: DecodedPod) -> DecodedPod:
        """The pod with the rules that select it: its own, and those that other pods carry."""
        pod, words = decoded.pod, decoded.words
        own, rules = (words.shape.neighbours, words.rules) if words is not None else (NO_NEIGHBOURS, NO_RULES)
        if not self._homes and not rules and pod.shape.neighbours == own:
            return decoded
        its_labels = self.namespaces.get(pod.namespace, {})
        others = [
            key
            for name in (pod.namespace, _EVERYWHERE)
            if (home := self._homes.get(name)) is not None
            for key, selection in home.about(decoded.labels)
            if selection.matches(decoded.labels, pod.namespace, its_labels)
        ]
        selected_by = tuple(sorted({*others, *selecting(rules, decoded.labels, pod.namespace, its_labels)}))
        itself = bool(own.needs) and set(own.needs) <= set(selected_by)
        neighbours = replace(own, selected_by=selected_by, needs_itself=itself)
        if neighbours == pod.shape.neighbours:
            return decoded
        return replace(decoded, pod=replace(pod, shape=replace(pod.shape, neighbours=neighbours)))
