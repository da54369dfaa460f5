"""What the loop looks at next, and why. One part wakes another in no other way.

Three questions are asked again and again:

- What is the next step for this gang? It costs little, and is asked for each gang to which something
  happened (:meth:`Agenda.look_at`).
- What does a decision say? It is asked for the gangs for which a decision may come out differently now
  (:meth:`Agenda.try_again`), or for all of them (:meth:`Agenda.try_all`). :class:`Why` lists the reasons.
- Does a plan still hold? Nodes under a plan changed (:meth:`Agenda.review`): no gate of the plan falls before
  a decision has looked at it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from enum import Enum

from vc_egpu.core.model.cluster import NodeName


class Why(Enum):
    """Why a decision may come out differently: for one gang, or for all."""

    # --- for one gang ----------------------------------------------------------------------------
    MEMBER = "a member came, went, or asks for something else"
    GROUP = "its PodGroup came, went, or asks for something else"
    TEMPLATE = "the pods that its Job will have are known, or changed"
    PLAN_SENT = "the write of its plan ended: the plan is not there, or waits for its victims"
    PLAN_DONE = "its plan is carried out, and other members still wait"
    NODES_OPEN = "nodes that refused it are open to it again"
    UNREVIEWED = "a node under its plan changed: a decision looks at the plan before a gate falls"
    SETTLED = "it is known now which of its gates fell, and a decision waits for that"
    PASSED_OVER = "a write to its PodGroup ended that failed, took its plan, or kept a decision waiting"
    RETRY = "something failed for it, and its back-off is over"
    VICTIMS_STAY = "an order to evict, for it or of it, failed"
    VICTIMS_RUN = "pods run now that may have to go for it"
    SAYS_IT_WAITS = "a member has its cards, says that it waits, and no verdict is known"

    # --- for all gangs ---------------------------------------------------------------------------
    FIRST_LISTS = "this leader begins"
    ROOM = "a pod is gone, over, smaller, or may be evicted now"
    NEIGHBOUR = (
        "a pod is on its node, or told to go, near which others want to be, or with which they are spread"
    )
    GROUP_GONE = "a gang is gone"
    PLAN_GONE = "a plan was taken away, replaced, or could not be written"
    MOVE = "a gang claims other cards, has come to them, or stays"
    NODE = "a node came, went, or changed"
    HELD = "the agent of a node holds other shares"
    QUEUE = "a queue came, went, or has other limits"
    SWITCH = "the operator's switches changed"
    STAYS = "a suspension is given up: its pods keep their cards"
    REVIEW = "time passes: holds and back-offs run out"
    FAULT = "the last decision failed"


@dataclass(frozen=True, slots=True)
class Question:
    """What one decision is about."""

    tried: Mapping[str, Why]
    """Gangs that are tried again by name."""
    all_for: Why | None
    """Why all gangs are tried; None: only those with a name here."""

    @property
    def only(self) -> Set[str] | None:
        """The gangs that the decision is limited to; None: it is about all of them."""
        return self.tried.keys() if self.all_for is None else None

    def __str__(self) -> str:
        """For the log: how many gangs are tried for which reason."""
        counts = Counter(self.tried.values())
        named = [f"{count} gangs: {why.value}" for why, count in counts.items()]
        every = [] if self.all_for is None else [f"all gangs: {self.all_for.value}"]
        return "; ".join((*every, *named))


class Agenda:
    """Filled by all parts, emptied by the loop. One thread owns it."""

    def __init__(self) -> None:
        self._looks: set[str] = set()
        self._tries: dict[str, Why] = {}
        self._all_for: Why | None = None
        self._unreviewed: set[NodeName] = set()

    # --- what others ask for ---------------------------------------------------------------------

    def look_at(self, *gangs: str) -> None:
        """Something happened to these gangs: ask for their next step."""
        self._looks.update(gangs)

    def try_again(self, gang: str, why: Why) -> None:
        """A decision may come out differently for this gang."""
        self._tries.setdefault(gang, why)

    def try_all(self, why: Why) -> None:
        """A decision may come out differently for any gang."""
        if self._all_for is None:
            self._all_for = why

    def victims_run(self, waiting: Iterable[str]) -> None:
        """A gang that may have to go is on its way as a whole: those that wait for cards are tried again.

        A decision evicts no pod that is still gated. While the gang's gates were standing, another one could
        therefore find no victim in it; now it may. ``waiting``: high gangs, if a low one is on its way, and
        gangs whose queue takes back.
        """
        for gang in waiting:
            self.try_again(gang, Why.VICTIMS_RUN)

    def review(self, nodes: Iterable[NodeName]) -> None:
        """These nodes changed, or what is planned there."""
        self._unreviewed.update(nodes)

    # --- what the loop takes ---------------------------------------------------------------------

    def take_looks(self) -> set[str]:
        """The gangs to look at; none is left."""
        looks, self._looks = self._looks, set()
        return looks

    @property
    def wants_decision(self) -> bool:
        """Whether a decision may come out differently for any gang."""
        return self._all_for is not None or bool(self._tries)

    def take_question(self) -> Question:
        """What the next decision is about; nothing of it is left."""
        question = Question(self._tries, self._all_for)
        self._tries, self._all_for = {}, None
        return question

    def is_unreviewed(self, nodes: Iterable[NodeName | None]) -> bool:
        """Whether one of these nodes changed since a decision looked at the plans in force."""
        return not self._unreviewed.isdisjoint(nodes)

    def reviewed(self) -> None:
        """A decision has looked at the plans in force."""
        self._unreviewed.clear()

    # --- what can be seen ------------------------------------------------------------------------

    @property
    def looks(self) -> Set[str]:
        """The gangs to look at."""
        return frozenset(self._looks)

    @property
    def tries(self) -> Mapping[str, Why]:
        """The gangs to try again by name, each with the first reason."""
        return dict(self._tries)

    @property
    def all_for(self) -> Why | None:
        """Why all gangs are tried again; None: they are not."""
        return self._all_for

    @property
    def unreviewed(self) -> Set[NodeName]:
        """Nodes that changed since a decision looked at the plans in force."""
        return frozenset(self._unreviewed)
