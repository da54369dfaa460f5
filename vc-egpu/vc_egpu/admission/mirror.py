"""The cluster as this leader sees it: watch events and its own writes in, the decision's state out.

One thread owns a mirror. Own writes are entered at once: a plan when its write is sent (:meth:`Mirror.book`),
and what the API server answered as soon as it did (:meth:`Mirror.apply`), so that a decision never waits for
the watch. An older version of an object never replaces a newer one, whichever way it comes.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from vc_egpu.admission import backoffs, owners
from vc_egpu.admission.budgets import Budget, budget, forbids
from vc_egpu.core.cluster import (
    FULL_CORES_PERCENT,
    Card,
    CardId,
    Gang,
    Node,
    NodeName,
    PlanInForce,
    PodPhase,
    PodShape,
    PodUid,
    QueueName,
    Share,
    ShareClass,
    Snapshot,
)
from vc_egpu.core.state import ClusterState
from vc_egpu.kube.watch import Change, ChangeKind
from vc_egpu.volcano import codec, plans, pod_codec
from vc_egpu.volcano.annotations import AnnotationError
from vc_egpu.volcano.codec import DecodedGroup, Document, Terms
from vc_egpu.volcano.model_table import ModelTable
from vc_egpu.volcano.plans import PlanRecord
from vc_egpu.volcano.pod_codec import DecodedPod

LOAD_ORDER: Final = (
    "persistentvolumes",
    "persistentvolumeclaims",
    "poddisruptionbudgets",
    "nodes",
    "queues",
    "pods",
    "podgroups",
    "jobs",
    "configmaps",
)
"""Nodes before plans that name their cards, pods before plans that name them."""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Group:
    """A PodGroup, the plan that stands on it, and the plan that is being written."""

    decoded: DecodedGroup
    plan: PlanRecord | None = None
    plan_problem: str = ""
    booked: PlanRecord | None = None
    outstanding: set[str] = field(default_factory=set)
    """Keys of planned members that have not been carried out."""

    @property
    def effective(self) -> PlanRecord | None:
        """The plan that counts."""
        return self.booked or self.plan


class Mirror:
    """See the module.

    ``dirty`` collects gangs that something happened to, ``tries`` those for which a decision may come out
    differently now; ``freed`` says that it may for any gang. The loop reads and resets all three.
    """

    def __init__(self, table: ModelTable) -> None:
        self.state = ClusterState({model.name: model.memory_mib for model in table.models})
        self.table = table
        self.groups: dict[str, Group] = {}
        self.pods: dict[PodUid, DecodedPod] = {}
        self.members: dict[str, dict[PodUid, DecodedPod]] = {}
        self.nodes: dict[NodeName, Node] = {}
        self._node_documents: dict[NodeName, Document] = {}
        self.held: dict[NodeName, Mapping[CardId, tuple[PodUid, ...]]] = {}
        self.templates: dict[str, tuple[tuple[str, int, PodShape], ...]] = {}
        """Of gangs whose pods nobody makes until they are enqueued."""
        self.jobs: dict[tuple[str, str], Document] = {}
        self.switches: Mapping[str, str] = {}
        self.dirty: set[str] = set()
        self.tries: set[str] = set()
        self.waiting: set[str] = set()
        """Gangs whose plan waits for its victims."""
        self.shielded: dict[PodUid, float] = {}
        """Pods that could not be evicted lately: no victims until the (wall clock) instant."""
        self.freed = False
        self.revision = 0
        self._versions: dict[tuple[str, str], int] = {}
        self._budgets: dict[str, dict[str, Budget]] = {}
        self._claims: dict[tuple[str, str], str] = {}
        self._volumes: dict[str, Terms] = {}
        self._claimants: dict[PodUid, Document] = {}
        self._shares: dict[PodUid, dict[CardId, Share]] = {}
        self._appliers = {
            "nodes": self._node,
            "pods": self._pod,
            "podgroups": self._group,
            "queues": self._queue,
            "poddisruptionbudgets": self._budget,
            "persistentvolumeclaims": self._claim,
            "persistentvolumes": self._volume,
            "configmaps": self._switch,
            "jobs": self._job,
        }

    def apply(self, plural: str, change: Change) -> None:
        """Enter one change. What cannot be read is logged and left out; it never raises."""
        metadata = change.object.get("metadata") or {}
        identity = (plural, str(metadata.get("uid")))
        deleted = change.kind is ChangeKind.DELETED
        try:
            version = int(metadata.get("resourceVersion") or 0)
            if deleted:
                self._versions.pop(identity, None)
            elif self._versions.get(identity, -1) >= version:
                return
            else:
                self._versions[identity] = version
            self._appliers[plural](change.object, deleted)
            self.revision += 1
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            where = f"{metadata.get('namespace') or ''}/{metadata.get('name')}"
            logger.warning("%s %s cannot be read and is left out: %r", plural, where, error)

    def snapshot(self) -> Snapshot:
        """This moment, for a decision."""
        return self.state.snapshot(self.revision)

    def settle_all(self) -> None:
        """After a first load: books that were kept while other kinds were still missing are kept again."""
        for key, group in self.groups.items():
            self._refresh(key, group)
            self.dirty.add(key)

    def set_template(self, key: str, template: tuple[tuple[str, int, PodShape], ...]) -> None:
        """Plan this gang from its template (or, with an empty one, from its pods again)."""
        if self.templates.get(key, ()) == template:
            return
        self.templates[key] = template
        if not template:
            del self.templates[key]
        self._refresh(key, self.groups[key])
        self.tries.add(key)

    # --- own writes ------------------------------------------------------------------------------

    def book(self, key: str, plan: PlanRecord) -> None:
        """A plan is about to be written; it counts from now on."""
        group = self.groups[key]
        group.booked = plan
        self._refresh(key, group)

    def unbook(self, key: str) -> None:
        """The write is over, well or badly: what stands on the PodGroup counts again."""
        group = self.groups.get(key)
        if group is not None and group.booked is not None:
            stands = group.plan is not None and group.plan.plan_id == group.booked.plan_id
            group.booked = None
            self._refresh(key, group)
            self.dirty.add(key)
            if not stands or key in self.waiting:
                # A written waiting plan is looked at once more before anybody is evicted for it.
                self.tries.add(key)
            self.freed = self.freed or not stands

    # --- questions -------------------------------------------------------------------------------

    def held_uids(self) -> frozenset[PodUid]:
        """Pods whose shares some agent still holds."""
        return frozenset(uid for cards in self.held.values() for uids in cards.values() for uid in uids)

    def share_class(self, key: str) -> ShareClass:
        """The class of a gang as the decision knows it."""
        group = self.groups[key]
        return self._gang(group, self.members.get(key, {}).values()).share_class

    # --- one applier per kind --------------------------------------------------------------------

    def _node(self, document: Document, deleted: bool) -> None:  # noqa: FBT001 - the appliers' common form
        name = NodeName(document["metadata"]["name"])
        before = self.nodes.get(name)
        seen = self._node_documents.get(name)
        if deleted:
            self._node_documents.pop(name, None)
            self.nodes.pop(name, None)
            self.held.pop(name, None)
            self.state.remove_node(name)
            self.freed = True
            self._reread_plans(name)
            return
        self._node_documents[name] = document
        if seen is not None and codec.says_the_same(seen, document):
            return
        node = codec.node(document, self.table)
        held = codec.held_by_agent(document)
        if node != before:
            self.nodes[name] = node
            self.state.put_node(node)
            self.freed = True
            if before is None or before.cards != node.cards:
                self._reread_plans(name)
        if held != self.held.get(name, {}):
            self.held[name] = held
            self.state.set_held(name, tuple(self._held_shares(node, held)))
            self.freed = True

    def _held_shares(
        self, node: Node, held: Mapping[CardId, tuple[PodUid, ...]]
    ) -> Iterable[tuple[PodUid, Share]]:
        cards: dict[CardId, Card] = {card.uuid: card for card in node.cards}
        for card, uids in held.items():
            for uid in uids:
                known = self._shares.get(uid, {}).get(card)
                if known is not None:
                    yield uid, known
                elif card in cards:
                    # Nobody knows any more how much it was: the whole card is the safe answer.
                    yield uid, Share(card, cards[card].memory_mib, FULL_CORES_PERCENT, whole=True)

    def _pod(self, document: Document, deleted: bool) -> None:  # noqa: FBT001
        uid = PodUid(document["metadata"]["uid"])
        before = self.pods.get(uid)
        if deleted:
            self._claimants.pop(uid, None)
            if before is None:
                return
            del self.pods[uid]
            self.state.remove_pod(uid)
            self._settle(before, None)
            return
        if any("persistentVolumeClaim" in volume for volume in document["spec"].get("volumes") or ()):
            self._claimants[uid] = document
        decoded = pod_codec.pod(document, self.table, self._claim_terms, before)
        if not decoded.managed:
            self._foreign(decoded, before)
            return
        decoded = self._protect(self._with_plan(decoded))
        self.pods[uid] = decoded
        if decoded.pod.shares:
            self._shares[uid] = {share.card: share for _, share in decoded.pod.shares}
        if decoded.problem and decoded.pod.phase is PodPhase.GATED:
            # It is no member of anything until this is put right; its condition will say so.
            self.state.remove_pod(uid)
        else:
            self.state.put_pod(decoded.pod)
        self._settle(before, decoded)

    def _foreign(self, decoded: DecodedPod, before: DecodedPod | None) -> None:
        """Somebody else's pod: only what it takes from its node matters, while it takes it."""
        uid = decoded.pod.uid
        over = decoded.pod.phase in {PodPhase.SUCCEEDED, PodPhase.FAILED}
        if decoded.pod.node is None or over:
            if before is not None:
                del self.pods[uid]
                self.state.remove_pod(uid)
                self.freed = True
            return
        self.pods[uid] = decoded
        self.state.put_pod(decoded.pod)

    def _with_plan(self, decoded: DecodedPod) -> DecodedPod:
        """A member without cards carries no annotation: being ungated is its plan id."""
        pod = decoded.pod
        if pod.shape.asks or decoded.gated or pod.gang is None:
            return decoded
        group = self.groups.get(pod.gang)
        plan = group.effective if group is not None else None
        if plan is None or not any(member.uid == pod.uid for member in plan.members.values()):
            return decoded
        return replace(decoded, pod=replace(pod, plan_id=plan.plan_id))

    def shield(self, uids: Iterable[PodUid], until: float) -> None:
        """These pods are no victims until then (wall clock); :meth:`unshield` has to be called later."""
        for uid in uids:
            self.shielded[uid] = until
            self._protect_again(uid)

    def unshield(self, now: float) -> None:
        """Pods whose time is over may be victims again."""
        for uid in [uid for uid, until in self.shielded.items() if until <= now]:
            del self.shielded[uid]
            self._protect_again(uid)

    def _protect_again(self, uid: PodUid) -> None:
        decoded = self.pods.get(uid)
        fresh = self._protect(decoded) if decoded is not None and decoded.managed else decoded
        if decoded is not None and fresh is not None and fresh is not decoded:
            self.pods[uid] = fresh
            self.state.put_pod(fresh.pod)
            self._settle(decoded, fresh)

    def _protect(self, decoded: DecodedPod) -> DecodedPod:
        budgets = self._budgets.get(decoded.pod.namespace)
        protected = (
            not owners.may_be_victim(decoded.owner)
            or decoded.pod.uid in self.shielded
            or (bool(budgets) and forbids(budgets or {}, decoded.labels))
        )
        if protected is decoded.pod.protected:
            return decoded
        return replace(decoded, pod=replace(decoded.pod, protected=protected))

    def _settle(self, before: DecodedPod | None, now: DecodedPod | None) -> None:
        """Keep the gang's books after one of its pods changed."""
        some = now or before
        if some is None or not some.managed or some.pod.gang is None:
            self.freed = self.freed or now is None
            return
        key = some.pod.gang
        members = self.members.setdefault(key, {})
        if now is None:
            members.pop(some.pod.uid, None)
            if not members:
                del self.members[key]
        else:
            members[some.pod.uid] = now
        self.dirty.add(key)
        if before is None or now is None or _may_help(before, now):
            self.tries.add(key)
        self.freed = self.freed or _frees(before, now)
        group = self.groups.get(key)
        if group is None:
            return
        refresh = (
            before is None
            or now is None
            or (before.share_class, before.priority_value) != (now.share_class, now.priority_value)
        )
        if group.outstanding and (now is None or now.pod.phase is not PodPhase.GATED):
            plan = group.effective
            done = [k for k in group.outstanding if plan is not None and plan.members[k].uid == some.pod.uid]
            group.outstanding.difference_update(done)
            refresh = refresh or not group.outstanding or (bool(done) and now is None)
            if not group.outstanding and any(m.pod.phase is PodPhase.GATED for m in members.values()):
                self.tries.add(key)
        if refresh:
            self._refresh(key, group)

    def _group(self, document: Document, deleted: bool) -> None:  # noqa: FBT001
        metadata = document["metadata"]
        key = f"{metadata['namespace']}/{metadata['name']}"
        known = self.groups.get(key)
        self.dirty.add(key)
        if deleted:
            self.tries.add(key)
            if known is not None and known.decoded.gang.uid == metadata["uid"]:
                del self.groups[key]
                self.waiting.discard(key)
                self.templates.pop(key, None)
                self.state.remove_gang(key)
                self.freed = True
            return
        decoded = codec.group(document)
        if known is None or known.decoded.gang.uid != decoded.gang.uid:
            known = Group(decoded)
            self.tries.add(key)
        before, known.decoded = known.decoded, decoded
        if before.gang != decoded.gang or before.rolled_back != decoded.rolled_back:
            self.tries.add(key)
        self.groups[key] = known
        if known.plan is None or before.plan_text != decoded.plan_text:
            self._read_plan(known)
            if before.plan_text and before.plan_text != decoded.plan_text:
                self.freed = True
                self.tries.add(key)
        self._refresh(key, known)

    def _queue(self, document: Document, deleted: bool) -> None:  # noqa: FBT001
        self.freed = True
        if deleted:
            self.state.remove_queue(QueueName(document["metadata"]["name"]))
        else:
            self.state.put_queue(codec.queue(document))

    def _budget(self, document: Document, deleted: bool) -> None:  # noqa: FBT001
        metadata = document["metadata"]
        budgets = self._budgets.setdefault(metadata["namespace"], {})
        if deleted:
            budgets.pop(metadata["name"], None)
        else:
            budgets[metadata["name"]] = budget(document)
        for uid, decoded in list(self.pods.items()):
            if decoded.managed and decoded.pod.namespace == metadata["namespace"]:
                self._protect_again(uid)

    def _claim(self, document: Document, deleted: bool) -> None:  # noqa: FBT001
        metadata = document["metadata"]
        key = (metadata["namespace"], metadata["name"])
        volume = (document.get("spec") or {}).get("volumeName") or ""
        if deleted:
            self._claims.pop(key, None)
        elif volume != self._claims.get(key, ""):
            self._claims[key] = volume
            self._reread_claimants()

    def _volume(self, document: Document, deleted: bool) -> None:  # noqa: FBT001
        name = document["metadata"]["name"]
        if deleted:
            self._volumes.pop(name, None)
            return
        affinity = (document.get("spec") or {}).get("nodeAffinity") or {}
        terms = codec.node_terms(affinity.get("required"))
        if terms != self._volumes.get(name, ()):
            self._volumes[name] = terms
            self._reread_claimants()

    def _switch(self, document: Document, deleted: bool) -> None:  # noqa: FBT001
        self.switches = {} if deleted else dict(document.get("data") or {})
        self.freed = True

    def _job(self, document: Document, deleted: bool) -> None:  # noqa: FBT001
        metadata = document["metadata"]
        key = (metadata["namespace"], metadata["name"])
        if deleted:
            self.jobs.pop(key, None)
        else:
            self.jobs[key] = document
        self.dirty.add(f"{key[0]}/{key[1]}-{metadata['uid']}")

    # --- reading again ---------------------------------------------------------------------------

    def _claim_terms(self, namespace: str, claim: str) -> Terms:
        return self._volumes.get(self._claims.get((namespace, claim), ""), ())

    def _reread_claimants(self) -> None:
        for document in list(self._claimants.values()):
            self._pod(document, deleted=False)

    def _reread_plans(self, node: NodeName) -> None:
        """A node's cards changed, came or went: plans that are not carried out may mean others now."""
        for key, group in self.groups.items():
            plan = group.plan
            if plan is None or not (group.outstanding or plan.lost):
                continue
            if plan.lost or any(member.placement.node == node for member in plan.members.values()):
                self._read_plan(group)
                self._refresh(key, group)
                self.dirty.add(key)

    def _read_plan(self, group: Group) -> None:
        group.plan, group.plan_problem = None, ""
        text = group.decoded.plan_text
        if not text:
            return
        try:
            plan = plans.decode(text, self.nodes)
        except AnnotationError as error:
            group.plan_problem = f"malformed: {error}"
            return
        if plan.group_uid != group.decoded.gang.uid:
            group.plan_problem = f"made for another PodGroup ({plan.group_uid})"
            return
        group.plan = plan

    def _refresh(self, key: str, group: Group) -> None:
        """Enter the gang with what its members and its plan say now."""
        members = self.members.get(key, {}).values()
        plan = group.effective
        group.outstanding = set()
        if plan is not None:
            group.outstanding = {k for k, member in plan.members.items() if self._is_outstanding(member.uid)}
        waits = group.booked is None and group.plan is not None and group.plan.state == "waiting"
        (self.waiting.add if waits and group.outstanding else self.waiting.discard)(key)
        self.state.put_gang(self._gang(group, members))

    def _is_outstanding(self, uid: PodUid) -> bool:
        if uid == plans.NO_UID:
            return True
        pod = self.pods.get(uid)
        return pod is not None and pod.pod.phase is PodPhase.GATED

    def _gang(self, group: Group, members: Iterable[DecodedPod]) -> Gang:
        live = [m for m in members if m.pod.phase not in {PodPhase.SUCCEEDED, PodPhase.FAILED}]
        classes = {m.share_class for m in live if m.share_class is not None}
        # The door refuses two classes in one gang; should they meet here, nobody gets the higher one.
        share_class = min(classes) if classes else group.decoded.gang.share_class
        retry = backoffs.decode(group.decoded.rolled_back)
        plan = group.effective
        in_force = None
        if plan is not None and group.outstanding:
            in_force = PlanInForce(
                plan_id=plan.plan_id,
                members={k: plan.members[k].placement for k in group.outstanding},
                victims=plan.victims,
                created=plan.created,
            )
        return replace(
            group.decoded.gang,
            share_class=ShareClass(share_class),
            priority_value=max((m.priority_value for m in live), default=0),
            plan=in_force,
            blocked_nodes=retry.nodes,
            not_before=retry.until,
            template=self.templates.get(group.decoded.gang.key, ()),
        )


def _may_help(before: DecodedPod, now: DecodedPod) -> bool:
    """Whether a decision may come out differently; a pod that goes where its plan says helps nobody."""
    if (before.pod.phase, now.pod.phase) == (PodPhase.GATED, PodPhase.PLACED):
        return False
    return (
        before.pod.phase is not now.pod.phase
        or before.problem != now.problem
        or before.share_class != now.share_class
        or before.pod.other_gates != now.pod.other_gates
        or before.pod.shape != now.pod.shape
        or before.pod.protected != now.pod.protected
    )


def _frees(before: DecodedPod | None, now: DecodedPod | None) -> bool:
    """Whether room came back: the pod is gone, over, or may be evicted now."""
    if before is None:
        return False
    if now is None:
        return True
    over = {PodPhase.SUCCEEDED, PodPhase.FAILED}
    return (now.pod.phase in over and before.pod.phase not in over) or (
        before.pod.protected and not now.pod.protected
    )
