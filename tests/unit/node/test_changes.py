"""What may change while a container runs, and what it cannot become."""

from typing import Any

import pytest
from unit.node.granted import grant
from vc_egpu.volcano.words.annotations import Cards, CardShare
from vc_egpu_node.isolation.live_limits import NotChangeableError, wanted


def cards(**changes: Any) -> Cards:
    values = {
        "pod_uid": "uid-a",
        "node": "n",
        "plan_id": "2-7",
        "containers": {"main": (CardShare(uuid="GPU-1", memory_mib=5, cores=6),
                                CardShare(uuid="GPU-0", memory_mib=7, cores=8))},
        **changes,
    }  # fmt: skip
    return Cards(**values)


RUNNING = grant("a", ("GPU-0", 1000, 20), ("GPU-1", 1000, 20))


def test_other_limits_on_the_same_cards() -> None:
    ((before, after),) = wanted([RUNNING], cards(share_class="low", core_policy="soft"), "uid-a", "n")
    assert before == RUNNING
    assert [(s.uuid, s.memory_mib, s.cores) for s in after.shares] == [("GPU-0", 7, 8), ("GPU-1", 5, 6)]
    assert (after.share_class, after.core_policy, after.epoch) == ("low", "soft", 2)
    assert wanted([after], cards(share_class="low", core_policy="soft"), "uid-a", "n") == []


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"pod_uid": "other"}, "names pod UID other"),
        ({"node": "m"}, "on m"),
        ({"native": True}, "native became True"),
        ({"plan_id": "x"}, "planId 'x'"),
        ({"containers": {}}, "cards cannot change"),
        ({"containers": {"main": (CardShare(uuid="GPU-2", memory_mib=1, cores=1),)}}, "cards cannot change"),
        ({"containers": {"main": (CardShare(uuid="GPU-0", memory_mib=1, cores=1),
                                  CardShare(uuid="GPU-1", memory_mib=1, cores=1),
                                  CardShare(uuid="GPU-1", memory_mib=2, cores=1))}}, "cards cannot change"),
    ],
)  # fmt: skip
def test_what_a_running_container_cannot_become(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(NotChangeableError, match=text):
        wanted([RUNNING], cards(**changes), "uid-a", "n")
