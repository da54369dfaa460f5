"""The cluster as this leader sees it: watch events and its own writes in, the decision's state out.

One thread owns a mirror. Own writes are entered at once: a plan when it is sent (:meth:`Mirror.book`), and
what the API server answers (:meth:`Mirror.apply`). A decision never waits for the watch. An older version of
an object never replaces a newer one, whichever way it comes.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from vc_egpu.admission.intake.versions import Versions
from vc_egpu.admission.kept.usual_work import UsualWork
from vc_egpu.admission.resizing.known import Resizes
from vc_egpu.admission.state import backoffs, gangs, owners
from vc_egpu.admission.state.agenda import Agenda, Why
from vc_egpu.admission.state.answers import Answers
from vc_egpu.admission.state.backoffs import RolledBack
from vc_egpu.admission.state.gangs import NO_TEMPLATE, Group, Template
from vc_egpu.admission.state.inventory import Inventory
from vc_egpu.admission.state.refusals import Refusals
from vc_egpu.admission.state.rules import RulesAtWork
from vc_egpu.admission.state.surroundings import ClaimKey, Surroundings
from vc_egpu.admission.state.tally import Tally
from vc_egpu.core.books.state import ClusterState
from vc_egpu.core.model import finish_times
from vc_egpu.core.model.cluster import Instant, NodeName, PodPhase, PodUid, QueueName, Reservation, Snapshot
from vc_egpu.core.model.gangs import OVER
from vc_egpu.core.profiles.table import Wants
from vc_egpu.kube.watch import Change, ChangeKind
from vc_egpu.volcano.codec import cluster_codec, plans, pod_codec
from vc_egpu.volcano.codec.cluster_codec import Document
from vc_egpu.volcano.codec.plans import PlanRecord
from vc_egpu.volcano.codec.pod_codec import DecodedPod
from vc_egpu.volcano.podspec.neighbours import NO_RULES
from vc_egpu.volcano.podspec.selectors import Selection
from vc_egpu.volcano.words.model_table import ModelTable

LOAD_ORDER: Final = (
    "hypernodes",
    "runtimeclasses",
    "persistentvolumes",
    "persistentvolumeclaims",
    "poddisruptionbudgets",
    "namespaces",
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
class Ends:
    """Pods that are over, with the moment at which that counts for this leader.

    The rule is in :mod:`vc_egpu.core.model.finish_times`. The loop says what time it is, and when its first
    lists are taken in.
    """

    now: Instant | None = None
    """The time of what is taken in now; None: it is not known, and what nodes write counts."""
    first_lists: bool = True
    """What comes is how things stood when this leader came, not what happens."""

    def enter(self, decoded: DecodedPod, before: DecodedPod | None) -> DecodedPod:
        """The pod with that moment as its end. It ends once: ``before``, an earlier reading, may have it."""
        written = decoded.pod.finished
        if written is None or self.now is None:
            return decoded
        known = before.pod.finished if before is not None else None
        if known is None:
            known = (finish_times.read if self.first_lists else finish_times.seen)(written, self.now)
        return decoded if known == written else replace(decoded, pod=replace(decoded.pod, finished=known))


class Mirror:
    """See the module.

    What has to be looked at because of a change goes on the ``agenda``. ``levels``: labels that name the
    levels of the network, the nearest one first.
    """

    def __init__(self, table: ModelTable, levels: Sequence[str] = ()) -> None:
        self.table, self.state = table, ClusterState({model.name: model.memory_mib for model in table.models})
        self.groups: dict[str, Group] = {}
        self.pods: dict[PodUid, DecodedPod] = {}
        self._in_namespace: dict[str, dict[PodUid, None]] = {}
        self.members: dict[str, dict[PodUid, DecodedPod]] = {}
        self.tallies: dict[str, Tally] = {}
        """What the living members of each gang say, counted."""
        self.agenda, self.rules = Agenda(), RulesAtWork()
        self.inventory = Inventory(self.state, table, self.agenda, levels)
        self.nodes, self.around = self.inventory.nodes, Surroundings()
        self.ends, self.usual = Ends(), UsualWork()
        self.answers, self.resizes, self.refusals = Answers(), Resizes(), Refusals()
        self.templates: dict[str, Template] = {}
        """By gang, where no pod is made until the gang is enqueued."""
        self.waiting: set[str] = set()
        """Gangs whose plan waits for its victims."""
        self.shielded: dict[PodUid, float] = {}
        """Pods that could not be evicted lately: no victims until then, on the conductor's clock."""
        self._shut: dict[str, RolledBack] = {}
        """Gangs for which nodes are left out, and the note that says so."""
        self.revision, self._versions = 0, Versions()
        self._appliers = {
            "hypernodes": self._hypernode,
            "nodes": self._node,
            "pods": self._pod,
            "podgroups": self._group,
            "queues": self._queue,
            "poddisruptionbudgets": self._budget,
            "persistentvolumeclaims": self._claim,
            "persistentvolumes": self._volume,
            "configmaps": self._switch,
            "jobs": self._job,
            "runtimeclasses": self.around.put_runtime_class,
            "namespaces": self._namespace,
        }

    def apply(self, plural: str, change: Change) -> None:
        """Enter one change. What cannot be read is logged and left out; it never raises."""
        metadata = change.object.get("metadata") or {}
        identity = (plural, str(metadata.get("uid")))
        deleted = change.kind is ChangeKind.DELETED
        try:
            if not self._versions.is_news(identity, change):
                return
            self._appliers[plural](change.object, deleted=deleted)
            self.revision += 1
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            where = f"{metadata.get('namespace') or ''}/{metadata.get('name')}"
            logger.warning("%s %s cannot be read and is left out: %r", plural, where, error)

    def snapshot(self) -> Snapshot:
        """This moment, for a decision."""
        return self.state.snapshot(self.revision)

    def settle_all(self) -> None:
        """After a first load: books that were kept while other kinds were still missing are kept again."""
        self.inventory.settle_network()
        for key, group in self.groups.items():
            self._refresh(key, group)
            self.agenda.look_at(key)
        for uid in [uid for uid, decoded in self.pods.items() if not decoded.pod.shape.asks]:
            self._enter_again(uid)
        for name in self.nodes:
            self._set_held(name)

    def set_template(self, key: str, template: Template) -> None:
        """Plan this gang from its template (or, with the empty one, from its pods again)."""
        if self.templates.get(key, NO_TEMPLATE) != template:
            self.templates[key] = template
            self._refresh(key, self.groups[key])
            self.agenda.try_again(key, Why.TEMPLATE)

    # --- own writes ------------------------------------------------------------------------------

    def book(self, key: str, plan: PlanRecord, choice: str = "") -> None:
        """A plan is about to be written, and a choice with it; both count from now on."""
        group = self.groups[key]
        group.booked, group.choosing = plan, choice
        self._refresh(key, group)

    def unbook(self, key: str) -> None:
        """The write is over, well or badly: what stands on the PodGroup counts again."""
        group = self.groups.get(key)
        if group is not None and group.booked is not None:
            stands = group.plan is not None and group.plan.plan_id == group.booked.plan_id
            group.booked, group.choosing = None, ""
            self._refresh(key, group)
            self.agenda.look_at(key)
            if not stands or key in self.waiting:
                # A written waiting plan is looked at once more before any pod is evicted for it.
                self.agenda.try_again(key, Why.PLAN_SENT)
            if not stands:
                self.agenda.try_all(Why.PLAN_GONE)

    def reserve(self, key: str, reservation: Reservation | None) -> None:
        """What a decision says of a gang's place in the line; it counts from now on."""
        group = self.groups.get(key)
        if group is not None:
            group.reserve(reservation)
            self._refresh(key, group)

    def read_claim_again(self, key: str) -> None:
        """The write of a claim failed: what stands on the PodGroup counts again, and its place."""
        group = self.groups.get(key)
        if group is not None:
            group.read_claim(self.nodes, group.first_since)
            self._refresh(key, group)

    def assume_bound(self, document: Document) -> None:
        """Our Binding made this of a pod, and no answer shows it. What the watch tells later counts more."""
        known = self.pods.get(PodUid(document["metadata"]["uid"]))
        if known is not None and known.resource_version == document["metadata"]["resourceVersion"]:
            self._pod(document, deleted=False)
            self.revision += 1

    # --- one applier per kind --------------------------------------------------------------------

    def _node(self, document: Document, *, deleted: bool) -> None:
        name = NodeName(document["metadata"]["name"])
        if deleted:
            self.inventory.remove(name, self.pods)
            self.enter_again(self.answers.remove(name))
            self.resizes.remove(name)
            self.agenda.try_all(Why.NODE)
            self._reread_plans(name)
            return
        news = self.inventory.put(document)
        if news.node:
            self.agenda.try_all(Why.NODE)
        if news.cards:
            self._reread_plans(name)
        if news.held:
            self._set_held(name)
        if news.offers:
            self._reread_crowded()
        self.enter_again(self.answers.put(document))
        told = (self.pods.get(uid) for uid in self.resizes.put(document))
        self.agenda.look_at(*(pod.pod.gang for pod in told if pod is not None and pod.pod.gang is not None))

    def _hypernode(self, document: Document, *, deleted: bool) -> None:
        if self.inventory.network.put(document, deleted=deleted):
            self.agenda.try_all(Why.NODE)

    def _set_held(self, name: NodeName) -> None:
        if self.inventory.set_held(name, self.pods):
            self.agenda.try_all(Why.HELD)

    def _pod(self, document: Document, *, deleted: bool) -> None:
        uid = PodUid(document["metadata"]["uid"])
        before = self.pods.get(uid)
        if deleted:
            self.around.claimants.remove(uid)
            if before is None:
                return
            self._drop(uid)
            self.state.remove_pod(uid)
            self.usual.change(before.pod if before.managed else None, None, self.ends.now)
            self.answers.gone(uid)
            self.resizes.gone(uid)
            self.refusals.gone(uid)
            self._note_rules(before, None)
            if self.inventory.holdings.gone(before) and before.pod.node is not None:
                self._set_held(before.pod.node)
            self._settle(before, None)
            return
        self.around.claimants.put(uid, document)
        offered = self.inventory.offered
        decoded = pod_codec.pod(document, self.table, self.around.claim_terms, before, offered)
        if not decoded.managed:
            self._foreign(self.rules.enter(decoded), before)
            return
        if before is not None and decoded.annotation_bytes < before.annotation_bytes:
            self.refusals.gone(uid)
        decoded = self.ends.enter(decoded, before)
        self._note_rules(before, decoded)
        self._enter(self._known(decoded), before)

    def _keep(self, decoded: DecodedPod) -> None:
        self.pods[decoded.pod.uid] = decoded
        self._in_namespace.setdefault(decoded.pod.namespace, {})[decoded.pod.uid] = None

    def _drop(self, uid: PodUid) -> None:
        namespace = self.pods.pop(uid).pod.namespace
        self._in_namespace[namespace].pop(uid, None)
        if not self._in_namespace[namespace]:
            del self._in_namespace[namespace]

    def _enter(self, decoded: DecodedPod, before: DecodedPod | None) -> None:
        uid = decoded.pod.uid
        self._keep(decoded)
        self.usual.change(before.pod if before and before.managed else None, decoded.pod, self.ends.now)
        self.around.runs.change(before, decoded, self.ends.now, self.inventory.uses.of(decoded.pod.node, uid))
        self.inventory.holdings.remember(decoded)
        if decoded.problem and decoded.pod.phase is PodPhase.GATED:
            # It is no member of anything until this is put right; its condition will say so.
            self.state.remove_pod(uid)
        else:
            self.state.put_pod(decoded.pod)
        if gangs.draws(before, decoded):
            self.agenda.try_all(Why.NEIGHBOUR)
        if before is not None and before.managed and before.pod.gang != decoded.pod.gang:
            self._settle(before, None)
            before = None
        self._settle(before, decoded)

    def _foreign(self, decoded: DecodedPod, before: DecodedPod | None) -> None:
        """A pod that is not ours: only what it takes from its node matters, while it takes it."""
        uid = decoded.pod.uid
        if decoded.pod.node is not None and decoded.pod.phase not in OVER:
            if gangs.frees(before, decoded):
                self.agenda.try_all(Why.ROOM)
            if gangs.draws(before, decoded):
                self.agenda.try_all(Why.NEIGHBOUR)
            self._keep(decoded)
            self.state.put_pod(decoded.pod)
            self._note_rules(before, decoded)
        elif before is not None:
            self._drop(uid)
            self.state.remove_pod(uid)
            self._note_rules(before, None)
            self.agenda.try_all(Why.ROOM)
        if before is not None and before.managed:
            self._settle(before, None)

    def shield(self, uids: Collection[PodUid], until: float) -> None:
        """These pods are no victims until then (conductor's clock); :meth:`unshield` ends that."""
        self.shielded.update(dict.fromkeys(uids, until))
        self.enter_again(uids)

    def unshield(self, clock: float) -> None:
        """Pods whose time is over may be victims again."""
        over = [uid for uid, until in self.shielded.items() if until <= clock]
        for uid in over:
            del self.shielded[uid]
        self.enter_again(over)

    def refuse_pod(self, uid: PodUid, why: str, clock: float) -> None:
        """The API server does not let us give this pod its cards: it is no member for a while."""
        if uid in self.pods:
            self.refusals.note_pod(uid, why, clock)
            self._enter_again(uid)

    def bar(self, key: str, why: str, clock: float, now: Instant) -> None:
        """This PodGroup takes no plan: the gang waits for a while, and others get what it would have got."""
        group = self.groups.get(key)
        if group is not None:
            self.refusals.note_gang(key, why, clock, now)
            self._refresh(key, group)
            self.agenda.try_all(Why.PLAN_GONE)

    def try_refused_again(self, clock: float) -> None:
        """What was refused long enough ago may be written again."""
        pods, keys = self.refusals.over(clock)
        self.enter_again(pods)
        for key in keys:
            group = self.groups.get(key)
            if group is not None:
                self._refresh(key, group)
                self.agenda.try_again(key, Why.RETRY)

    def open_nodes(self, now: Instant) -> None:
        """Nodes that refused a gang long enough ago are left out for it no longer."""
        for key in [key for key, note in self._shut.items() if not note.shuts(now)]:
            del self._shut[key]
            group = self.groups.get(key)
            if group is not None:
                group.opened = group.decoded.rolled_back
                self._refresh(key, group)
                self.agenda.try_again(key, Why.NODES_OPEN)

    def enter_again(self, uids: Iterable[PodUid]) -> None:
        """What other objects say about these pods may have changed."""
        for uid in uids:
            self._enter_again(uid)

    def _enter_again(self, uid: PodUid) -> None:
        decoded = self.pods.get(uid)
        if decoded is not None and decoded.managed:
            fresh = self._known(decoded)
            if fresh is not decoded:
                self._enter(fresh, decoded)
        elif decoded is not None:
            fresh = self.rules.enter(decoded)
            if fresh is not decoded:
                self.pods[uid] = fresh
                self.state.put_pod(fresh.pod)
                self.agenda.try_all(Why.NEIGHBOUR)

    def _known(self, decoded: DecodedPod) -> DecodedPod:
        """The pod with what other objects say about it."""
        refused = self.refusals.of_pod(decoded.pod.uid)
        planned = gangs.as_planned(decoded, self.groups.get(decoded.pod.gang or ""), refused)
        return self._protect(self.resizes.enter(self.answers.enter(self.rules.enter(planned))))

    def _note_rules(self, before: DecodedPod | None, now: DecodedPod | None) -> None:
        """The rules between pods that a pod carries. News of them may be news of its neighbours."""
        some = now or before
        if some is None:
            return
        words = now.words if now is not None and now.pod.phase not in OVER else None
        for rule in self.rules.put(some.pod.uid, words.rules if words is not None else NO_RULES):
            self.enter_again([uid for uid in self._selected(rule) if uid != some.pod.uid])

    def _selected(self, rule: Selection) -> Iterator[PodUid]:
        """The pods that a rule selects, quickly: a rule comes with each gang."""
        label, named = rule.label, rule.namespaces
        for namespace in self._in_namespace if named is None else named:
            for uid in self._in_namespace.get(namespace, ()):
                labels = self.pods[uid].labels
                quick = label is None or labels.get(label[0]) == label[1]
                if quick and self.rules.selects(rule, labels, namespace):
                    yield uid

    def _namespace(self, document: Document, *, deleted: bool) -> None:
        name, labels = document["metadata"]["name"], document["metadata"].get("labels") or {}
        if self.rules.put_namespace(name, None if deleted else labels):
            self.enter_again(list(self._in_namespace.get(name, ())))

    def _protect(self, decoded: DecodedPod) -> DecodedPod:
        forbids = self.around.forbids(decoded.pod.namespace, decoded.labels)
        protected, bare = decoded.pod.uid in self.shielded or forbids, not owners.may_be_victim(decoded.owner)
        if (protected, bare) == (decoded.pod.protected, decoded.pod.bare):
            return decoded
        return replace(decoded, pod=replace(decoded.pod, protected=protected, bare=bare))

    def _settle(self, before: DecodedPod | None, now: DecodedPod | None) -> None:
        """Keep the gang's books after one of its pods changed."""
        some = now or before
        if some is None or not some.managed or some.pod.gang is None:
            if now is None:
                self.agenda.try_all(Why.ROOM)
            return
        key = some.pod.gang
        members = self.members.setdefault(key, {})
        tally = self.tallies.setdefault(key, Tally())
        tally.change(members.get(some.pod.uid), now)
        if now is not None:
            members[some.pod.uid] = now
        else:
            members.pop(some.pod.uid, None)
        if not members:
            del self.members[key], self.tallies[key]
        self.agenda.look_at(key)
        group = self.groups.get(key)
        self._note_labels(key, now)
        if before is None and now is not None and gangs.is_one_more(now, group, members):
            return
        if before is None or now is None or gangs.may_help(before, now):
            self.agenda.try_again(key, Why.MEMBER)
        if gangs.frees(before, now):
            self.agenda.try_all(Why.ROOM)
        if group is None:
            return
        self.agenda.review(gangs.to_review(before, now, group))
        template, known = self.templates.get(key, NO_TEMPLATE), self.state.gang(key)
        refresh = known is None or gangs.is_another(group, tally, template, known)
        refresh = refresh or (known is not None and gangs.may_spare(group, known, now))
        if group.outstanding and (now is None or now.pod.phase is not PodPhase.GATED):
            done = gangs.planned_as(group, some.pod.uid)
            group.outstanding.difference_update(done)
            refresh = refresh or not group.outstanding or (bool(done) and now is None)
            if not group.outstanding and any(m.pod.phase is PodPhase.GATED for m in members.values()):
                self.agenda.try_again(key, Why.PLAN_DONE)
        if refresh:
            self._refresh(key, group)

    def _group(self, document: Document, *, deleted: bool) -> None:
        metadata = document["metadata"]
        key = f"{metadata['namespace']}/{metadata['name']}"
        known = self.groups.get(key)
        self.agenda.look_at(key)
        if deleted:
            self.agenda.try_again(key, Why.GROUP)
            if known is not None and known.decoded.gang.uid == metadata["uid"]:
                del self.groups[key]
                self.waiting.discard(key)
                self.templates.pop(key, None)
                self.refusals.forget(key)
                self.state.remove_gang(key)
                self.agenda.try_all(Why.GROUP_GONE)
            return
        decoded = cluster_codec.group(document)
        if known is None or known.decoded.gang.uid != decoded.gang.uid:
            known = Group(decoded)
            self.refusals.forget(key)
            self.agenda.try_again(key, Why.GROUP)
        before, known.decoded = known.decoded, decoded
        if decoded.annotation_bytes < before.annotation_bytes:
            self.refusals.forget(key)
        if before.gang != decoded.gang or before.rolled_back != decoded.rolled_back:
            self.agenda.try_again(key, Why.GROUP)
        self.groups[key] = known
        if before is decoded or before.subgroups != decoded.subgroups:
            some, members = bool(decoded.subgroups), self.members.get(key, {}).items()
            self.enter_again([uid for uid, m in members if some or m.group_unseen or m.pod.subgroup])
        if decoded.rolled_back != known.opened:
            self._shut[key] = backoffs.decode(decoded.rolled_back)
        if known.plan is None or before.plan_text != decoded.plan_text:
            known.read_plan(self.nodes)
            if before.plan_text and before.plan_text != decoded.plan_text:
                self.agenda.try_all(Why.PLAN_GONE)
                self.agenda.try_again(key, Why.PLAN_GONE)
        if before.reserved != decoded.reserved or before is decoded:
            known.read_claim(self.nodes)
        if before.moved != decoded.moved or before is decoded:
            known.read_move(self.nodes)
            if before is not decoded:
                self.agenda.try_all(Why.MOVE)
        self._refresh(key, known)

    def _queue(self, document: Document, *, deleted: bool) -> None:
        if not deleted:
            # Schedulers count into a queue's status all the time: that alone changes no decision.
            if self.state.put_queue(cluster_codec.queue(document)):
                self.agenda.try_all(Why.QUEUE)
            return
        self.agenda.try_all(Why.QUEUE)
        self.state.remove_queue(QueueName(document["metadata"]["name"]))

    def _budget(self, document: Document, *, deleted: bool) -> None:
        selectors = self.around.put_budget(document, deleted=deleted)
        within = f"{document['metadata']['namespace']}/"
        for key in [key for key in self.members if selectors and key.startswith(within)]:
            members = self.members[key].items()
            self.enter_again([uid for uid, m in members if any(one.matches(m.labels) for one in selectors)])

    def _claim(self, document: Document, *, deleted: bool) -> None:
        if self.around.put_claim(document, deleted=deleted):
            self._reread([(document["metadata"]["namespace"], document["metadata"]["name"])])

    def _volume(self, document: Document, *, deleted: bool) -> None:
        if self.around.put_volume(document, deleted=deleted):
            self._reread(self.around.claims_on(document["metadata"]["name"]))

    def _switch(self, document: Document, *, deleted: bool) -> None:
        self.around.put_switches(document, deleted=deleted)
        self.agenda.try_all(Why.SWITCH)

    def _job(self, document: Document, *, deleted: bool) -> None:
        self.agenda.look_at(self.around.put_job(document, deleted=deleted))

    # --- reading again ---------------------------------------------------------------------------

    def _reread(self, claims: Iterable[ClaimKey]) -> None:
        for document in self.around.claimants.of(claims):
            self._pod(document, deleted=False)

    def _reread_crowded(self) -> None:
        """A node offers something new: of it, too, pods may take that name very many resources."""
        crowded = [
            pod for pod in self.pods.values() if pod.words is not None and pod.words.offered is not None
        ]
        for pod in crowded:
            self._pod(pod.source, deleted=False)

    def _reread_plans(self, node: NodeName) -> None:
        """A node's cards changed, came or went: plans that are not carried out may mean others now."""
        for key, group in self.groups.items():
            if group.claim is not None and any(m.node == node for m in group.claim.members.values()):
                group.read_claim(self.nodes, group.claim.since)
                self._refresh(key, group)
            plan = group.plan
            if plan is None or not (group.outstanding or plan.lost):
                continue
            if plan.lost or any(member.placement.node == node for member in plan.members.values()):
                group.read_plan(self.nodes)
                self._refresh(key, group)
                self.agenda.look_at(key)

    def _refresh(self, key: str, group: Group) -> None:
        """Enter the gang with what its members and its plan say now."""
        members = self.members.get(key, {})
        plan = group.effective
        planned = plan.members.items() if plan is not None else ()
        group.outstanding = {k for k, member in planned if _is_outstanding(member.uid, members)}
        (self.waiting.add if group.waits else self.waiting.discard)(key)
        template = self.templates.get(key, NO_TEMPLATE)
        group.ours = group.ours or bool(members) or plan is not None or bool(template.rows)
        if group.ours or group.decoded.asks:
            traits = gangs.traits_of(group, members, self.around.asked, self.around.runs)
            gang = gangs.gang_of(group, members, self.tallies.get(key, Tally()), template, traits)
            if barred := self.refusals.gangs.get(key):
                gang = replace(gang, not_before=max(gang.not_before, barred.not_before))
            self.agenda.review(gangs.planned_otherwise(self.state.gang(key), gang))
            self.state.put_gang(gang)
        else:
            self.state.remove_gang(key)

    def _note_labels(self, key: str, now: DecodedPod | None) -> None:
        """Rules of placement may ask for labels that this member is the first to carry."""
        group = self.groups.get(key)
        if group and gangs.may_have_other_traits(self.state.gang(key), now, self.around.asked):
            self._refresh(key, group)

    def take_profiles(self, asked: Wants) -> None:
        """Another table of placement is in force, whose rules ask this of gangs."""
        if self.around.ask(asked):
            for key, group in self.groups.items():
                self._refresh(key, group)


def _is_outstanding(uid: PodUid, members: Mapping[PodUid, DecodedPod]) -> bool:
    return uid == plans.NO_UID or (uid in members and members[uid].pod.phase is PodPhase.GATED)
