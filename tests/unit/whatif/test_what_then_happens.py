"""What is told of a gang, against what then happens to it."""

from collections import Counter

import pytest
from unit.whatif.lives import Life, life, name_of
from vc_egpu.report import snapshot_codec
from vc_egpu.whatif.outlook import Fit, Outlook, look

QUICK, ALL = 100, 1000
MOST_UNKNOWN = 0.05


def contradiction(lived: Life, told: Outlook) -> str:
    """What happened otherwise; empty: nothing."""
    asked_at = lived.world.now
    lived.begin()
    ran_at = lived.until_it_runs()
    if told.fit in {Fit.NEVER, Fit.UNKNOWN}:
        return f"it ran at {ran_at}" if ran_at is not None and told.fit is Fit.NEVER else ""
    if ran_at != told.at:
        return f"it ran at {ran_at}, not at {told.at}, asked at {asked_at}"
    if (told.fit is Fit.LATER) != (told.at != asked_at):
        return f"{told.fit} does not mean {told.at}"
    places = {name_of(key): (place.node, place.shares) for key, place in told.places.items()}
    if places != lived.places():
        return f"it lies at {lived.places()}, not at {places}"
    going = {entry.gang: {pod.uid for pod in entry.pods} for entry in told.going}
    if told.fit is not Fit.LATER and going != lived.evicted:
        return f"{lived.evicted} went, not {going}"
    return ""


def outcomes(seeds: range) -> Counter[Fit]:
    """How often each was told; fails on the first contradiction."""
    found: Counter[Fit] = Counter()
    for seed in seeds:
        lived = life(seed)
        saved = snapshot_codec.to_json(snapshot_codec.encode(lived.world.snapshot()))
        seen = snapshot_codec.from_json(saved)
        told = look(seen, lived.world.policy, lived.world.now, lived.question)
        assert snapshot_codec.to_json(snapshot_codec.encode(seen)) == saved, "it only looks"
        assert (wrong := contradiction(lived, told)) == "", f"seed {seed}, {lived.question.changes}: {wrong}"
        found[told.fit] += 1
    return found


def test_nothing_contradicts_it() -> None:
    found = outcomes(range(QUICK))
    assert found[Fit.UNKNOWN] <= MOST_UNKNOWN * QUICK, found
    assert min(found[fit] for fit in (Fit.NOW, Fit.ROOM, Fit.LATER, Fit.NEVER)) > 0, found


@pytest.mark.long
def test_nothing_contradicts_it_in_a_thousand_cases() -> None:
    found = outcomes(range(QUICK, QUICK + ALL))
    assert found[Fit.UNKNOWN] <= MOST_UNKNOWN * ALL, found


def test_as_many_more_fit_as_are_told() -> None:
    tried = 0
    for seed in range(24):
        lived = life(seed)
        told = look(lived.world.snapshot(), lived.world.policy, lived.world.now, lived.question)
        gang = lived.question.gang
        if told.fit is not Fit.NOW or told.more_is_bound or gang is None:
            continue
        tried += 1
        lived.begin()
        lived.settle()
        taken = lived.copies_that_fit()
        assert taken == told.more, f"seed {seed}: {taken} of {told.more}"
    assert tried > 3
