"""What a refusal by the scheduler says about the next try: how densely members go, and whether others go."""

from typing import Final

import pytest
from unit.admission.build import TABLE, Json, added, deleted, group, let_go, node, pod, queue
from vc_egpu.admission.recovery.rollback import PATIENCE_S, Watchlist, judge
from vc_egpu.admission.recovery.rolling import RollBacks
from vc_egpu.admission.state import backoffs
from vc_egpu.admission.state.backoffs import RolledBack
from vc_egpu.admission.state.gangs import plan_for
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.admission.telling.reports import Reports
from vc_egpu.core.model.causes import Cause
from vc_egpu.core.model.cluster import CardId, MemberPlacement, NodeName, PodUid, Share
from vc_egpu.core.model.plan import Admission, Eviction
from vc_egpu.volcano.codec import plans
from vc_egpu.volcano.codec.plans import PlannedMember, PlanRecord
from vc_egpu.volcano.words import names

KEY: Final = "default/g"
N1: Final = frozenset({NodeName("n1")})


def record(*, costly: bool, created: float = 100.0) -> PlanRecord:
    place = MemberPlacement(NodeName("n1"), (("main", Share(CardId("GPU-n1-0"), 30000, 30)),))
    members = {f"w/{at}": PlannedMember(place, PodUid(f"pod-{at}")) for at in range(2)}
    return PlanRecord("5-1", "group-g", "ready", members, created=created, costly=costly)


def world(*, bound: bool, plan: PlanRecord | None, note: str = "") -> Mirror:
    """Two members that were let go to one node, the plan that said so, and the note of a roll-back."""
    mirror = Mirror(TABLE)
    mirror.apply("queues", added(queue()))
    mirror.apply("nodes", added(node()))
    annotations = {names.ROLLED_BACK: note} if note else {}
    if plan is not None:
        annotations[names.PLAN] = plans.encode(plan, mirror.nodes)
    mirror.apply("podgroups", added(group(annotations=annotations)))
    for at in range(2):
        mirror.apply("pods", added(let_go(member(at), "5-1", bound=bound)))
    return mirror


def member(at: int) -> Json:
    return pod(f"g-w-{at}", index=at, uid=f"pod-{at}")


def refused(mirror: Mirror, before: str = "") -> RolledBack:
    """The note that stands on the PodGroup once the scheduler has not bound its members."""
    watchlist = Watchlist()
    for found in mirror.pods.values():
        watchlist.note(found, 0.0)
    found_group = mirror.groups[KEY]
    back = judge(found_group.decoded.gang, mirror.members[KEY], watchlist, PATIENCE_S)
    assert back is not None
    rolling = RollBacks(mirror, Reports(_Silent(), _Silent()))  # type: ignore[arg-type]
    rolling.begin(KEY, found_group, back, 1000.0)
    under_way = rolling.get(KEY)
    assert under_way is not None
    return backoffs.decode(under_way.record)


class _Silent:
    def event(self, *_: object) -> None:
        """Nobody listens."""


def test_each_refusal_by_the_scheduler_halves_what_goes_to_one_node() -> None:
    note, seen = RolledBack(), []
    for packed in (8, 4, 8, 1, 1):
        note = note.again(note.until, N1, "not bound", packed=packed)
        seen.append(backoffs.decode(backoffs.encode(note)).most)
    assert seen == [4, 2, 1, 1, 1]
    kept = note.again(note.until, N1, "the kubelet refused it")
    assert kept.most == 1, "another kind of refusal says nothing about it"
    later = note.again(note.at + backoffs.FORGET_S + 1, N1, "not bound", packed=8)
    assert later.most == 4, "after an hour it begins once more"


def test_the_first_refusal_says_how_many_were_on_the_node() -> None:
    note = refused(world(bound=False, plan=record(costly=False)))
    assert (note.most, note.nodes, note.spared) == (1, N1, 0.0)


def test_who_cost_others_their_place_takes_free_room_from_then_on() -> None:
    note = refused(world(bound=False, plan=record(costly=True)))
    assert note.spared == 1000.0
    again = note.again(note.at + 2 * backoffs.FORGET_S, N1, "not bound", packed=1)
    assert again.spared == 1000.0, "time alone is no answer"
    text = backoffs.encode(note)
    mirror = world(bound=False, plan=None, note=text)
    gang = mirror.snapshot().gangs[KEY]
    assert (gang.most_per_node, gang.blocked_nodes, gang.spares_since) == (1, N1, 1000.0)
    mirror.open_nodes(note.nodes_until + 1)
    gang = mirror.snapshot().gangs[KEY]
    assert (gang.most_per_node, gang.blocked_nodes, gang.spares_since) == (0, frozenset(), 1000.0)


@pytest.mark.parametrize("created", [900.0, 1100.0])
def test_a_later_plan_that_was_bound_is_the_answer(created: float) -> None:
    note = backoffs.encode(RolledBack().again(1000.0, N1, "not bound", packed=1, costly=True))
    mirror = world(bound=False, plan=record(costly=False, created=created), note=note)
    assert mirror.snapshot().gangs[KEY].spares_since == 1000.0, "the scheduler may still refuse it"
    for at in range(2):
        mirror.apply("pods", added(let_go(member(at), "5-1", bound=True)))
    assert mirror.snapshot().gangs[KEY].spares_since == (0.0 if created > 1000.0 else 1000.0)


def test_a_plan_remembers_its_victims_when_it_is_ready_and_through_a_restart() -> None:
    mirror = world(bound=False, plan=None)
    admission = Admission(
        KEY, {}, (Eviction("default/low", frozenset({PodUid("v")}), whole=True, cause=Cause.PRIORITY),)
    )
    written = plan_for(admission, mirror.groups[KEY], {}, "5-2", 0.0)
    assert written.costly
    assert plans.decode(plans.encode(written.ready(), mirror.nodes), mirror.nodes).costly


@pytest.mark.parametrize("bound", [True, False])
def test_replicas_that_have_not_arrived_yet_are_in_debt(bound: bool) -> None:
    """A plan for the next replica takes the place of the one that had its price."""
    mirror = world(bound=bound, plan=record(costly=True))
    written = plan_for(Admission(KEY, {}), mirror.groups[KEY], mirror.members[KEY], "5-2", 0.0)
    assert written.costly is not bound


def test_a_note_of_an_earlier_version_bounds_nothing() -> None:
    note = backoffs.decode('{"version":1,"count":1,"at":1000,"until":1010,"nodes":["n1"],"why":"not bound"}')
    assert (note.most, note.spared, note.nodes) == (0, 0.0, N1)


def test_who_is_gone_is_on_no_node() -> None:
    mirror = world(bound=False, plan=record(costly=False))
    mirror.apply("pods", deleted(member(1)))
    assert refused(mirror).most == 1
