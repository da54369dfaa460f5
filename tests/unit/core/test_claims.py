"""Claims: what is booked for gangs that are not there, and which gangs need not mind it."""

import pytest
from unit.core import make
from vc_egpu.core.books.index import Index
from vc_egpu.core.books.state import fresh_index
from vc_egpu.core.model.cluster import MemberPlacement, NodeName, PlanInForce, ShareClass
from vc_egpu.core.model.policy import Policy
from vc_egpu.core.trial.claims import Claim, ClaimKind
from vc_egpu.core.trial.trial import Trial

HALF = make.shape(make.H20_MIB // 2, 25)


def index() -> Index:
    """One gang with a plan in force that is not carried out, and two that wait."""
    place = make.placed(make.pods("g", 1, HALF)[0], "n1/0")
    member = MemberPlacement(NodeName("n1"), place.shares)
    planned = make.gang("g", plan=PlanInForce("1-1", {"w/0": member}, created=90.0))
    others = [make.gang("high", share_class=ShareClass.HIGH), make.gang("low", share_class=ShareClass.LOW)]
    return fresh_index(make.snapshot([make.node("n1", 2)], [planned, *others], make.pods("g", 1, HALF)))


def trial() -> Trial:
    return Trial(index(), Policy(), 100.0)


def plan(tried: Trial) -> Claim:
    ((_, claim),) = tried.claims.plans()
    return claim


def made(tried: Trial, kind: ClaimKind, *, yields_to: ShareClass | None = None) -> Claim:
    """The same bookings once more, for another reason."""
    claim = Claim("low", kind, plan(tried).bookings, 95.0, yields_to)
    tried.claims.add(claim)
    return claim


def test_a_plan_in_force_is_a_claim() -> None:
    claim = plan(trial())
    assert (claim.gang, claim.kind, claim.since, claim.yields_to) == ("g", ClaimKind.PLAN, 90.0, None)
    assert (claim.cards, claim.memory_mib, claim.cores_percent) == (1, make.H20_MIB // 2, 25)


@pytest.mark.parametrize("kind", [ClaimKind.PLAN, ClaimKind.REPLACEMENT])
def test_the_ledger_is_as_before_once_a_claim_was_looked_away_from(kind: ClaimKind) -> None:
    tried = trial()
    before = tried.ledger.memory_used.copy()
    claim = plan(tried) if kind is ClaimKind.PLAN else made(tried, kind)
    if kind is ClaimKind.PLAN:
        with tried.without([claim]):
            assert int(tried.ledger.memory_used.sum()) == 0
    else:
        with tried.with_claims([claim]):
            assert int(tried.ledger.memory_used.sum()) == 2 * int(before.sum())
    assert (tried.ledger.memory_used == before).all()


def test_a_replacement_is_for_its_own_gang() -> None:
    tried = trial()
    claim = made(tried, ClaimKind.REPLACEMENT)
    against = tried.claims.against
    assert against(ClaimKind.REPLACEMENT, tried.index.view("low")) == []
    assert against(ClaimKind.REPLACEMENT, tried.index.view("high")) == [claim]
    assert tried.claims.take(ClaimKind.REPLACEMENT, "low") == [claim]
    assert tried.claims.of(ClaimKind.REPLACEMENT) == []


def test_a_standby_yields_to_high_priority_and_not_to_new_members_of_its_gang() -> None:
    tried = trial()
    claim = made(tried, ClaimKind.STANDBY, yields_to=ShareClass.HIGH)
    against = tried.claims.against
    assert against(ClaimKind.STANDBY, tried.index.view("high")) == []
    assert against(ClaimKind.STANDBY, tried.index.view("low")) == [claim]
