"""What a tenant tries, as a user and as an account, with the webhook and without: nothing comes through."""

from collections.abc import Iterator

import pytest
from attacks.ground import IDENTITIES, Ground, ground
from attacks.requests import Attack
from attacks.table import TRIED
from attacks.walls import LET_IN
from rigs.webhook import Rig

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def battle(webhook_rig: Rig) -> Iterator[Ground]:
    """Both tenants."""
    with ground(webhook_rig) as found:
        yield found


@pytest.fixture(scope="module", params=["up", "away"])
def webhook(request: pytest.FixtureRequest, battle: Ground) -> Iterator[str]:
    """The webhook answers, or is away."""
    if request.param == "up":
        yield "up"
    else:
        with battle.rig.webhook_down():
            yield "away"


@pytest.mark.parametrize("who", IDENTITIES)
@pytest.mark.parametrize("attack", TRIED, ids=lambda attack: f"row-{attack.row}")
def test_it_meets_its_wall_and_leaves_no_trace(
    attack: Attack, who: str, webhook: str, battle: Ground
) -> None:
    before = battle.traces()
    for number, one in enumerate(attack.tries):
        walls = one.wall if webhook == "up" else one.wall_without_webhook
        letter, said = battle.attempt(who, one)
        shown = f"row {attack.row}, request {number}: {one.method} {one.path}: {said}"
        assert letter in walls or ("=" in walls and letter == LET_IN), shown
        if webhook == "up":
            assert one.says in said, shown
    assert battle.traces() == before
