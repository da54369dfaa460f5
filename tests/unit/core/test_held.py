"""Shares that agents report: who asks for those that nobody lives for need not look at all others."""

from typing import Any

from vc_egpu.core.books.agent_reports import HeldShares
from vc_egpu.core.books.ledger import Ledger
from vc_egpu.core.model.cluster import CardId, NodeName, PodUid, Share


class Living(dict[PodUid, int]):
    """Counts how often it is asked."""

    asked = 0

    def __contains__(self, uid: Any) -> bool:
        self.asked += 1
        return super().__contains__(uid)


def share(uid: str) -> tuple[PodUid, Share]:
    return PodUid(uid), Share(CardId("card"), 30000, 30)


def test_orphans_are_found_without_a_look_at_what_all_nodes_hold() -> None:
    """Each decision asks for them: beside 5,000 nodes with 16 shares each that took 15 ms."""
    living = Living({PodUid(f"p{number}"): 0 for number in range(1000)})
    held = HeldShares(Ledger(), living)
    for number in range(1000):
        held.report(NodeName(f"n{number}"), (share(f"p{number}"),))
    living.asked = 0
    assert list(held.orphans()) == []
    assert living.asked == 0

    del living[PodUid("p7")]
    held.pod_changed(PodUid("p7"))
    assert list(held.orphans()) == [(NodeName("n7"), *share("p7"))]
    held.report(NodeName("n7"), (share("p7"), share("p8")))
    assert list(held.orphans()) == [(NodeName("n7"), *share("p7"))]
    living[PodUid("p7")] = 0
    held.pod_changed(PodUid("p7"))
    assert list(held.orphans()) == []
    del living[PodUid("p8")]
    held.pod_changed(PodUid("p8"))
    assert {node for node, _, _ in held.orphans()} == {"n7", "n8"}
    held.report(NodeName("n8"), ())
    held.report(NodeName("n7"), ())
    assert list(held.orphans()) == []
