"""What is watched besides nodes, pods, gangs and queues: budgets, volumes, Jobs, RuntimeClasses, switches."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from vc_egpu.admission.kept.earlier_runs import EarlierRuns
from vc_egpu.core.model.cluster import PodUid
from vc_egpu.core.profiles.table import WANTS_NOTHING, Wants
from vc_egpu.volcano.codec import cluster_codec
from vc_egpu.volcano.codec.cluster_codec import Document, Terms
from vc_egpu.volcano.codec.pod_codec import claims_of
from vc_egpu.volcano.needs.table import EnvironmentTable, shipped
from vc_egpu.volcano.podspec.selectors import Selector

ClaimKey = tuple[str, str]
"""Namespace and name of a PersistentVolumeClaim."""


class Surroundings:
    """Each ``put_`` returns whether pods have to be looked at again because of it."""

    def __init__(self) -> None:
        self.jobs: dict[tuple[str, str], Document] = {}
        """Volcano Jobs by (namespace, name)."""
        self.switches: Mapping[str, str] = {}
        self.runtime_classes: dict[str, Document] = {}
        """RuntimeClasses by name: what the API server will add to pods that name one."""
        self.runtime_revision = 0
        """Counts their changes: what was read from a Job's template before one is read again."""
        self.environments = shipped()
        """What software needs of nodes."""
        self.needs_revision = 0
        """Counts the tables of needs, as ``runtime_revision`` does RuntimeClasses."""
        self.asked: Wants = WANTS_NOTHING
        """What rules of placement ask of gangs."""
        self.runs = EarlierRuns()
        self._budgets: dict[str, Budgets] = {}
        """By namespace."""
        self._claims: dict[ClaimKey, str] = {}
        self._bound: dict[str, set[ClaimKey]] = {}
        """The same by volume."""
        self._volumes: dict[str, Terms] = {}
        self.claimants = Claimants()

    def take_environments(self, table: EnvironmentTable) -> None:
        """Another table of needs; it counts for templates that are read from now on."""
        self.environments = table
        self.needs_revision += 1

    def ask(self, asked: Wants) -> bool:
        """Rules of placement ask this of gangs from now on; whether that is something else."""
        before, self.asked = self.asked, asked
        self.runs.wanted, self.runs.of_use_alone = asked.earlier or asked.use, not asked.earlier
        return asked != before

    def put_budget(self, document: Document, *, deleted: bool) -> tuple[Selector, ...]:
        """A PodDisruptionBudget changed; returns whose pods, in its namespace, may be guarded otherwise."""
        metadata = document["metadata"]
        budgets = self._budgets.setdefault(metadata["namespace"], Budgets())
        concerned = budgets.put(metadata["name"], None if deleted else budget(document))
        if not budgets:
            del self._budgets[metadata["namespace"]]
        return concerned

    def put_claim(self, document: Document, *, deleted: bool) -> bool:
        """A PersistentVolumeClaim changed."""
        metadata = document["metadata"]
        key = (metadata["namespace"], metadata["name"])
        volume = "" if deleted else (document.get("spec") or {}).get("volumeName") or ""
        before = self._claims.get(key, "")
        if deleted:
            self._claims.pop(key, None)
        else:
            self._claims[key] = volume
        if volume != before:
            self._bound.get(before, set()).discard(key)
            if not self._bound.get(before):
                self._bound.pop(before, None)
            if volume:
                self._bound.setdefault(volume, set()).add(key)
        return bool(volume != before)

    def claims_on(self, volume: str) -> Collection[ClaimKey]:
        """The claims that are bound to a volume, by namespace and name."""
        return self._bound.get(volume, ())

    def put_volume(self, document: Document, *, deleted: bool) -> bool:
        """A PersistentVolume changed."""
        name = document["metadata"]["name"]
        affinity = (document.get("spec") or {}).get("nodeAffinity") or {}
        terms = () if deleted else cluster_codec.node_terms(affinity.get("required"))
        before = self._volumes.pop(name, ())
        if not deleted:
            self._volumes[name] = terms
        return terms != before

    def put_switches(self, document: Document, *, deleted: bool) -> None:
        """The operator's ConfigMap changed."""
        self.switches = {} if deleted else dict(document.get("data") or {})

    def put_runtime_class(self, document: Document, *, deleted: bool) -> None:
        """A RuntimeClass changed."""
        name = document["metadata"]["name"]
        self.runtime_revision += 1
        if deleted:
            self.runtime_classes.pop(name, None)
        else:
            self.runtime_classes[name] = document

    def put_job(self, document: Document, *, deleted: bool) -> str:
        """A Volcano Job changed; returns the key of its gang."""
        metadata = document["metadata"]
        key = (metadata["namespace"], metadata["name"])
        if deleted:
            self.jobs.pop(key, None)
        else:
            self.jobs[key] = document
        return f"{key[0]}/{key[1]}-{metadata['uid']}"

    def claim_terms(self, namespace: str, claim: str) -> Terms:
        """Where the volume of a claim can be used; empty: anywhere, or not known."""
        return self._volumes.get(self._claims.get((namespace, claim), ""), ())

    def forbids(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether a budget lets no pod with these labels go now."""
        budgets = self._budgets.get(namespace)
        return budgets is not None and budgets.forbids(labels)

    def overdrawn(self, leaving: Iterable[tuple[str, Mapping[str, str]]]) -> bool:
        """Whether budgets forbid that all of these, (namespace, labels) each, go together.

        The API server, asked dry for one pod after the other, says yes to each of them.
        """
        by_namespace: dict[str, list[Mapping[str, str]]] = {}
        for namespace, labels in leaving:
            by_namespace.setdefault(namespace, []).append(labels)
        return any(
            budgets.overdrawn(pods)
            for namespace, pods in by_namespace.items()
            if (budgets := self._budgets.get(namespace)) is not None
        )


@dataclass(slots=True)
class Claimants:
    """Pods that name claims, by claim: where their volumes are says where the pods can go.

    A pod is read again when one of its own claims changed, and no other pod is. Where each Job brings claims
    of its own, volumes come and go as often as Jobs do.
    """

    _documents: dict[PodUid, Document] = field(default_factory=dict)
    _by_claim: dict[ClaimKey, dict[PodUid, None]] = field(default_factory=dict)

    def put(self, uid: PodUid, document: Document) -> None:
        """A pod is there, or changed; the claims that it names never do."""
        claims = _claims_of(document)
        if not claims:
            return
        self._documents[uid] = document
        for claim in claims:
            self._by_claim.setdefault(claim, {})[uid] = None

    def remove(self, uid: PodUid) -> None:
        """A pod is gone."""
        document = self._documents.pop(uid, None)
        if document is None:
            return
        for claim in _claims_of(document):
            named_by = self._by_claim.get(claim, {})
            named_by.pop(uid, None)
            if not named_by:
                self._by_claim.pop(claim, None)

    def of(self, claims: Iterable[ClaimKey]) -> list[Document]:
        """The pods that name any of these claims, each once."""
        uids = dict.fromkeys(uid for claim in claims for uid in self._by_claim.get(claim, ()))
        return [self._documents[uid] for uid in uids]


def _claims_of(document: Document) -> set[ClaimKey]:
    namespace = document["metadata"]["namespace"]
    return {(namespace, claim) for claim in claims_of(document)}


# --- PodDisruptionBudgets ---


@dataclass(frozen=True, slots=True)
class Budget:
    """One PodDisruptionBudget: which pods it covers and how many of them may go now."""

    namespace: str
    selector: Selector | None
    allowed: int


def budget(document: Document) -> Budget:
    """Read a PodDisruptionBudget; one whose status was not computed yet allows nothing."""
    status: Mapping[str, Any] = document.get("status") or {}
    metadata = document["metadata"]
    current = status.get("observedGeneration") == metadata.get("generation")
    return Budget(
        metadata["namespace"],
        Selector.of((document.get("spec") or {}).get("selector")),
        int(status.get("disruptionsAllowed") or 0) if current else 0,
    )


Label = tuple[str, str]


class Budgets:
    """Those of one namespace. Nearly all name a label and its value: a pod is held against those of its own
    labels only, however many there are."""

    def __init__(self) -> None:
        self._by_name: dict[str, Budget] = {}
        self._by_label: dict[Label | None, dict[str, Budget]] = {}
        """By the first label that a selector names; None: those that name none."""

    def __bool__(self) -> bool:
        return bool(self._by_name)

    def put(self, name: str, now: Budget | None) -> tuple[Selector, ...]:
        """Enter a budget, or take it out; returns whose pods may be guarded otherwise.

        How many may go changes with each pod that becomes ready: only whether any may is news to them.
        """
        before = self._by_name.pop(name, None)
        if before is not None:
            place = _place(before)
            self._by_label[place].pop(name)
            if not self._by_label[place]:
                del self._by_label[place]
        if now is not None:
            self._by_name[name] = now
            self._by_label.setdefault(_place(now), {})[name] = now
        if before is not None and now is not None and _guards(before) == _guards(now):
            return ()
        return tuple(one.selector for one in (before, now) if one is not None and one.selector is not None)

    def forbids(self, labels: Mapping[str, str]) -> bool:
        """Whether no pod with these labels may go now.

        One of them says so, or several guard it: the API server evicts no pod then, whatever they allow.
        """
        guarding = [budget for _, budget in self._guarding(labels)]
        return len(guarding) > 1 or any(budget.allowed <= 0 for budget in guarding)

    def overdrawn(self, leaving: Iterable[Mapping[str, str]]) -> bool:
        """Whether one of them does not let all pods with these labels go at once."""
        going = Counter(name for labels in leaving for name, _ in self._guarding(labels))
        return any(count > self._by_name[name].allowed for name, count in going.items())

    def _guarding(self, labels: Mapping[str, str]) -> Iterator[tuple[str, Budget]]:
        for place in (None, *labels.items()):
            for name, one in self._by_label.get(place, {}).items():
                if one.selector is not None and one.selector.matches(labels):
                    yield name, one


def _place(one: Budget) -> Label | None:
    return one.selector.match_labels[0] if one.selector is not None and one.selector.match_labels else None


def _guards(one: Budget) -> tuple[Selector | None, bool]:
    return one.selector, one.allowed <= 0
