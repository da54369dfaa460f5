"""Every other second: what the driver sees of each container, what its pages say, and what is done about it.

The judgement is :mod:`.offences`; this module fetches, tells and, where the node's policy says so, kills. It
also repairs what containers did to their pages and learns what a context costs. And it tells libraries what
the driver shows beyond their count (:mod:`vc_egpu_node.isolation.unseen_memory`).
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from vc_egpu.volcano.words.annotations import CardShare
from vc_egpu.volcano.words.node_policy import WallPolicy

from vc_egpu_node.api.pods import PodView
from vc_egpu_node.cards.monitor import Observation
from vc_egpu_node.containers.cdi import Grant
from vc_egpu_node.containers.processes import ContainerOfProcess
from vc_egpu_node.isolation import accounts
from vc_egpu_node.isolation.accounts import Activity, ContextCost, Usage
from vc_egpu_node.isolation.control import Timings
from vc_egpu_node.isolation.lifecycle import Isolation
from vc_egpu_node.isolation.measured import MOST_GAP_NS, measured
from vc_egpu_node.isolation.pages import ACTIVITY, USAGE
from vc_egpu_node.isolation.unseen_memory import Beyond, Books, Process, Shown
from vc_egpu_node.wall import offences
from vc_egpu_node.wall.ended_processes import EndedProcesses
from vc_egpu_node.wall.offences import Action, Allowance, Finding, Offence, Seen
from vc_egpu_node.wall.owners_of_processes import MIB, OwnersOfProcesses

log = logging.getLogger(__name__)

LOOK_S: Final = 2.0
SAMPLE_S: Final = 0.1
IDLE_S: Final = 10.0
"""It turns so often though nothing is new, to show that it lives."""
TELL_AGAIN_S: Final = 300.0
PAGES: Final = "PagesPutRight"
"""Reason of the event about a container that damaged its own pages."""
Tell = Callable[[str, str, str, str, str], None]
"""(namespace, pod, UID, reason, sentence)."""


@dataclass(frozen=True, slots=True)
class Account:
    """What one container says of one card."""

    namespace: str
    pod: str
    container: str
    uuid: str
    charged_mib: int
    managed_mib: int
    activity: Activity
    beyond_mib: int = 0
    """What the driver shows beyond that, and the library was told of."""


@dataclass(frozen=True, slots=True)
class Look:
    """What one look found; replaced as a whole."""

    seen: tuple[Seen, ...] = ()
    usages: Mapping[str, Usage | None] = field(default_factory=dict)
    """By container with a page that can be read; None: it says nothing (yet)."""
    number: int = -1
    untold: frozenset[str] = frozenset()
    """Cards of which the driver told nothing this time, or that it does not list: who was seen there is from
    an earlier look."""


@dataclass(frozen=True, slots=True)
class _Pages:
    usage: Usage | None
    activity: tuple[Activity, ...]
    complete: bool
    """The usage page is there. A container cannot remove it: if it is gone, a program of the host removed
    it. A page that the container keeps from being read says nothing."""


class SecondWall:
    """Looks on a thread of its own, each time the monitor has read processes."""

    def __init__(
        self,
        *,
        grants: Callable[[], list[Grant]],
        pods: Callable[[], list[PodView] | None],
        isolation: Isolation,
        hosts: ContainerOfProcess,
        observation: Callable[[], Observation],
        policy: Callable[[], WallPolicy],
        timings: Callable[[], Timings],
        tell: Tell,
        count: Callable[[Offence, Action], None] = lambda _offence, _action: None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``pods``: None while they are not known yet; ``count`` counts what was found and done."""
        self._clock = clock
        self._let_in_s: dict[str, float] = {}
        """By container, on the monotonic clock: what is counted of it must not shrink when the other one is
        set back."""
        self._grants = grants
        self._pods = pods
        self._isolation = isolation
        self._hosts = hosts
        self._owners = OwnersOfProcesses(hosts)
        self._ended = EndedProcesses(hosts, monotonic)
        self._observation = observation
        self._policy = policy
        self._timings = timings
        self._tell = tell
        self._count = count
        self._strikes: dict[tuple[str, str, str], int] = {}
        self._told: dict[tuple[str, ...], float] = {}
        self._costs: dict[tuple[str, str], ContextCost] = {}
        self._books = Books(isolation.beyond)
        self._samples: dict[tuple[str, int, int], tuple[int, int]] = {}
        self._closed: frozenset[str] = frozenset()
        """Whose launches waited at the last look."""
        self._looks = -1
        self._measured_at_ns = 0
        self._due = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="second-wall", daemon=True)
        self.beat_s = time.monotonic()
        """When it last turned, once it is started."""
        self.accounts: tuple[Account, ...] = ()
        """As of the last look."""
        self.last = Look()
        self.after_look: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Begin to look."""
        self.beat_s = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stopping.set()
        self._due.set()
        if self._thread.is_alive():
            self._thread.join(5.0)

    def poke(self) -> None:
        """There is something new to look at."""
        self._due.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            due = self._due.wait(SAMPLE_S if self._samples else IDLE_S)
            self.beat_s = time.monotonic()
            try:
                if due:
                    self._due.clear()
                    self.look()
                else:
                    self.sample()
            except Exception:
                log.exception("a fault of ours in the second wall; looking again")

    def sample(self) -> None:
        """See which neighbours of higher class are active right now."""
        for (name, card, cards), (active, looked) in self._samples.items():
            found = self._activity(name, cards, 0.0)[card]
            self._samples[(name, card, cards)] = (active + found.active, looked + 1)

    def look(self) -> list[Finding]:
        """One look; what was proven by it. The same observation is looked at once. While the pods are not
        known, no process has an owner: pages are repaired and reported, and nothing counts as gone."""
        observation = self._observation()
        if observation.looks == self._looks:
            return []
        self._looks = observation.looks
        grants = self._grants()
        paged = self._isolation.paged
        pages = {one.name: self._read(one) for one in grants if one.name in paged}
        self._let_in_s = {name: at for name, at in self._let_in_s.items() if name in pages}
        views = self._pods()
        if views is None:
            told = {name: self._isolation.beyond(name) for name in pages}
            self.accounts = tuple(_accounts(grants, pages, told))
            return []
        usages = {name: page.usage for name, page in pages.items() if page.complete}
        seen, shown = self._owners.look(observation, grants, views, usages)
        usages = self._ended.without(usages, grants, shown)
        for name, places in self._ended.foreign.items():
            self._isolation.pages.give_up(name, places)
        pages |= {name: replace(pages[name], usage=usage) for name, usage in usages.items()}
        # A card that is not listed tells nothing either: the driver was away when this agent began.
        granted = {share.uuid for grant in grants for share in grant.shares}
        untold = observation.untold | granted - observation.processes.keys()
        limited = [one for one in grants if one.name in pages]
        away = self._away()
        self._books.look(limited, {k: v for k, v in usages.items() if k not in away}, shown, untold)
        self._learn(limited, pages, shown, untold)
        allowances = {
            one.name: self._allowance(one, grants, pages, seen, untold, away=one.name in away)
            for one in grants
        }
        beyond = {one.name: self._books.figures(one, allowances[one.name].memory_mib) for one in limited}
        self._isolation.tell_beyond(beyond, self._grants())
        self._tell_measured(limited, seen, untold)
        self._samples = dict.fromkeys(_watched(grants, pages), (0, 0))
        judged = offences.judge(seen, allowances, untold)
        self._strikes, proven = offences.strike(self._strikes, judged, untold)
        self.accounts = tuple(_accounts(grants, pages, beyond))
        self.last = Look(tuple(seen), usages, observation.looks, untold)
        for finding in proven:
            self._act(finding, grants)
        self._told = {key: at for key, at in self._told.items() if time.monotonic() - at < TELL_AGAIN_S}
        self.after_look()
        return proven

    # --- what is there -----------------------------------------------------------------------------

    def _read(self, grant: Grant) -> _Pages:
        for fault in self._isolation.mend(grant.name):
            # By page, not by sentence: that names a size, of which a container has any number.
            self._say(grant, PAGES, f"{grant.container}: {fault.text}", fault.page)
        usage = self._isolation.pages.read(USAGE, grant.name)
        now_s = time.monotonic()
        let_in_s = self._let_in_s.setdefault(grant.name, now_s - max(0.0, self._clock() - grant.granted_at_s))
        age_s = now_s - let_in_s
        cards = len(grant.shares)
        activity = self._activity(grant.name, cards, age_s)
        return _Pages(accounts.read_usage(usage, cards), activity, complete=usage is not None)

    def _activity(self, name: str, cards: int, age_s: float) -> tuple[Activity, ...]:
        timings = self._timings()
        data = self._isolation.pages.read(ACTIVITY, name)
        return accounts.read_activity(
            data,
            cards,
            age_s=age_s,
            now_ns=time.monotonic_ns(),  # after the page was read: a stamp in the future counts for nothing
            lease_ms=timings.lease_ms,
            hang_ms=timings.hang_ms,
        )

    def _tell_measured(self, limited: Iterable[Grant], seen: Iterable[Seen], untold: frozenset[str]) -> None:
        """What the driver counted since the last look, by container and card: libraries hold it against what
        they charged."""
        now_ns = time.monotonic_ns()
        passed_ns, self._measured_at_ns = now_ns - self._measured_at_ns, now_ns
        if passed_ns <= MOST_GAP_NS:
            percents = ((one.owner, one.uuid, one.sm_percent) for one in seen)
            self._isolation.tell_measured(measured(limited, percents, untold, passed_ns), now_ns)

    def _away(self) -> frozenset[str]:
        """Containers that are suspended, or were at the look before: the driver may have been asked before
        they were back. What they will have again is not gone."""
        before, self._closed = self._closed, self._isolation.closed
        return before | self._closed

    def _allowance(
        self,
        grant: Grant,
        grants: Iterable[Grant],
        pages: Mapping[str, _Pages],
        seen: Iterable[Seen],
        untold: frozenset[str],
        *,
        away: bool,
    ) -> Allowance:
        memory = {share.uuid: share.memory_mib for share in grant.shares}
        before = self._isolation.ceilings(grant.name) if grant.name in pages else {}
        after = {}
        for uuid, ceiling in before.items():
            granted = memory.get(uuid, 0)
            used = sum(one.memory_mib for one in seen if (one.owner, one.uuid) == (grant.name, uuid))
            memory[uuid] = ceiling if away or uuid in untold else offences.lowered(ceiling, granted, used)
            if memory[uuid] > granted:
                after[uuid] = memory[uuid]
        if after != before:
            self._isolation.keep_ceilings(grant.name, after)
        held: frozenset[str] = frozenset()
        if grant.share_class == "low" and not grant.unheld and grant.name in pages:
            samples = (self._samples.get(key, (0, 0)) for key in _higher(grant, grants, pages))
            if offences.held_through(samples):
                held = frozenset(memory)
        return Allowance(memory, whole=not grant.limited, held=held)

    def _learn(
        self, grants: list[Grant], pages: Mapping[str, _Pages], shown: Shown, untold: frozenset[str]
    ) -> None:
        """A context's cost, once for each container and card.

        The library could not reserve it for contexts that are there already, or only what one costs in
        another container. Their programs may have taken all that they were told is free, so it is not held
        against them. Only up to their grant, though: root in a container writes what it likes into its page.
        """
        costs: dict[tuple[str, str], ContextCost] = {}
        learnt = []
        for grant in grants:
            usage = pages[grant.name].usage
            for card, share in enumerate(grant.shares):
                key = (grant.name, share.uuid)
                if self._isolation.knows_context(*key):
                    continue
                costs[key] = self._costs.get(key) or ContextCost()
                if usage is None or share.uuid in untold:
                    continue
                used, charged = shown.get(key, {}), self._isolation.context_bytes(*key)
                cost, sure = costs[key].look(accounts.context_costs(usage, card, used, charged))
                if not cost:
                    continue
                early = [one for one in used if _has_context(usage, one, card)]
                self._forgive(grant.name, share, early, cost - charged)
                if sure:
                    self._isolation.learnt(*key, cost)
                    learnt.append(grant)
        self._costs = costs
        if learnt:
            self._isolation.refresh(self._grants(), learnt)

    def _forgive(self, name: str, share: CardShare, early: Collection[Process], over: int) -> None:
        """``over``: bytes that each of these contexts takes and that were not counted."""
        if over <= 0:
            return
        self._books.at_least((name, share.uuid), early, over)
        ceilings = self._isolation.ceilings(name)
        spared_mib = -(-min(len(early) * over, max(over, share.memory_mib * MIB)) // MIB)
        ceilings[share.uuid] = max(share.memory_mib + spared_mib, ceilings.get(share.uuid, 0))
        self._isolation.keep_ceilings(name, ceilings)

    # --- what is done about it ---------------------------------------------------------------------

    def _act(self, finding: Finding, grants: Iterable[Grant]) -> None:
        grant = next((one for one in grants if one.name == finding.owner), None)
        reason = finding.offence.value
        if grant is None:  # a container without cards of ours: never killed, since it is not ours
            namespace, pod, container, uid = finding.owner.split("/", 3)
            if self._fresh((finding.owner, reason, finding.uuid)):
                self._count(finding.offence, "reported")
                self._tell(namespace, pod, uid, reason, f"{container}: {finding.text}")
            return
        if self._policy() != "kill":
            if self._say(grant, reason, f"{grant.container}: {finding.text}", finding.uuid):
                self._count(finding.offence, "reported")
            return
        problems = {why for pid, start in finding.processes if (why := self._hosts.kill(pid, start))}
        action: Action = "failed" if problems else "killed"
        outcome = f"not killed: {'; '.join(sorted(problems))}" if problems else "killed by the node's policy"
        self._count(finding.offence, action)
        self._say(grant, reason, f"{grant.container}: {finding.text}; {outcome}", finding.uuid, action)

    def _say(self, grant: Grant, reason: str, text: str, *about: str) -> bool:
        """Once in a while for the same thing; whether it was said."""
        if not self._fresh((grant.name, reason, *(about or (text,)))):
            return False
        log.warning("%s/%s: %s: %s", grant.namespace, grant.pod, reason, text)
        self._tell(grant.namespace, grant.pod, grant.pod_uid, reason, text)
        return True

    def _fresh(self, key: tuple[str, ...]) -> bool:
        known = key in self._told
        if not known:
            self._told[key] = time.monotonic()
        return not known


def _has_context(usage: Usage, process: tuple[int, int], card: int) -> bool:
    slot = usage.slot_of(*process)
    return slot is not None and bool(slot.contexts >> card & 1)


def _higher(grant: Grant, grants: Iterable[Grant], pages: Mapping[str, _Pages]) -> list[tuple[str, int, int]]:
    """(container, index of the card, number of cards) of each high neighbour on a card of this pod."""
    everyone = list(grants)
    cards = {share.uuid for one in everyone if one.pod_uid == grant.pod_uid for share in one.shares}
    return [
        (other.name, index, len(other.shares))
        for other in everyone
        if other.share_class == "high" and other.name in pages and other.pod_uid != grant.pod_uid
        for index, share in enumerate(other.shares)
        if share.uuid in cards
    ]


def _watched(grants: Iterable[Grant], pages: Mapping[str, _Pages]) -> set[tuple[str, int, int]]:
    """Those of class high that a container of class low has to wait for."""
    everyone = list(grants)
    low = [one for one in everyone if one.share_class == "low" and one.name in pages]
    return {key for one in low for key in _higher(one, everyone, pages)}


def _accounts(
    grants: Iterable[Grant], pages: Mapping[str, _Pages], beyond: Mapping[str, Beyond]
) -> Iterable[Account]:
    for grant in sorted(grants, key=lambda one: one.granted_at_s):
        found = pages.get(grant.name)
        for card, share in enumerate(grant.shares if found is not None else ()):
            usage, activity = (found.usage, found.activity) if found is not None else (None, ())
            yield Account(
                grant.namespace,
                grant.pod,
                grant.container,
                share.uuid,
                charged_mib=usage.charged_bytes(card) // MIB if usage is not None else 0,
                managed_mib=usage.managed_bytes(card) // MIB if usage is not None else 0,
                activity=activity[card] if card < len(activity) else Activity(),
                beyond_mib=beyond[grant.name].on(card) // MIB if grant.name in beyond else 0,
            )
