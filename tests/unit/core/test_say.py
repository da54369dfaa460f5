"""The sentences for what a decision found out, where no story shows them."""

import typing

import pytest
from vc_egpu.core.model import findings
from vc_egpu.core.model.cluster import NodeName, QueueName
from vc_egpu.core.model.findings import Finding, NodeResource, Spared
from vc_egpu.core.model.reasons import Reason, Verdict
from vc_egpu.core.waiting import say

QUEUE = QueueName("research")
TWO = findings.Request(2, (findings.CardRequest("h20", 2, 1024, 25, native=False, whole=False),))
SHORT = findings.Shortage(TWO, QUEUE, 2, 1, cards=findings.CardSupply("h20", 1, 3, None))
HOST = findings.HostMemoryLack(30, 20)
CONTAINER = findings.ContainerLack("main", 30, 10)
ONE_OF_EACH: list[Finding] = [
    findings.OverCap(TWO, findings.Limit(QUEUE, "cpu", 3, 2, 4)),
    findings.NoQueue(QUEUE),
    findings.Closed(QUEUE, QUEUE),
    findings.MissingMembers(1, 2),
    findings.TooLarge(5, 4),
    findings.ForeignGate(1, ("example.org/hold",)),
    findings.BackOff(20),
    findings.Behind(QUEUE, "ns/first"),
    findings.Suspended(1, 2),
    findings.NoModel("h20", native=True),
    findings.NoEnvironment(
        "driver>=550",
        5,
        (
            findings.NodesWithout(4, "driver>=550", "driver", ("535.1", "535.2")),
            findings.NodesWithout(1, "driver>=550", "driver", ()),
        ),
    ),
    SHORT,
    findings.RoomSoon(TWO, QUEUE, 2),
    findings.MakingRoom(("low",), 2, (), 0, 2),
    findings.Remade("h20", 2),
    findings.NoOption((("h20", SHORT), ("t4", findings.NoModel("t4", native=False)))),
    findings.GivenUp("1-1", "the queue research is closed"),
    findings.Placed(2),
    findings.AboveMinimum(2, 1, SHORT),
]


def test_every_finding_has_a_sentence_and_goes_with_its_verdict() -> None:
    assert {type(finding) for finding in ONE_OF_EACH} == set(typing.get_args(Finding))
    for finding in ONE_OF_EACH:
        verdict = say.verdict(finding)
        assert verdict.message
        assert verdict.numbers
        assert verdict.finding is finding


def test_verdicts_are_equal_by_what_users_see() -> None:
    told = say.verdict(findings.TooLarge(5, 4))
    numbers = {"members": 5, "limit": 4}
    assert told == Verdict(Reason.EXCEEDS_CAP, "has 5 members; a gang may have 4 at most", numbers)


def beyond(*lacks: findings.Lack) -> str:
    """The end of the sentence on what is short where cards are not."""
    found = findings.Shortage(TWO, QUEUE, 2, 1, cards=SHORT.cards, beyond=findings.Beyond(2, lacks))
    return say.verdict(found).message.partition("Cards for 2 are free, but ")[2]


@pytest.mark.parametrize(
    ("lacks", "text"),
    [
        ((), "their nodes lack room for all of it at once"),
        (
            (findings.NodeLack(NodeResource.CPU), findings.NodeLack(NodeResource.PORT, "80")),
            "their nodes lack cpu, host port 80",
        ),
        ((HOST,), "their nodes lack host memory (a member may spill 30 MiB, 20 MiB are left)"),
        ((CONTAINER,), "the container main may spill 30 MiB with a memory limit of 10 MiB"),
        (
            (findings.NodeLack(NodeResource.DISK), CONTAINER),
            "their nodes lack disk, and the container main may spill 30 MiB with a memory limit of 10 MiB",
        ),
    ],
)
def test_what_is_short_where_cards_are_not(lacks: tuple[findings.Lack, ...], text: str) -> None:
    assert beyond(*lacks) == text


def test_each_detail_is_a_sentence_of_its_own() -> None:
    found = findings.Shortage(
        TWO,
        QUEUE,
        wanted=2,
        free=1,
        cards=findings.CardSupply("h20", 1, 3, findings.NamedCards(4, 1, uses=True, avoids=True)),
        shut=(findings.ShutNode(NodeName("n2"), "cordoned"),),
        shut_more=2,
        standby=findings.Standby(2, 512, 25, 1, ("a", "b"), 60.0),
        no_victims=findings.NoVictims(Spared.COMING_BACK, ("c", "d")),
    )
    verdict = say.verdict(found)
    assert verdict.message.split(". ") == [
        "asks for 2 shares of h20 (1024 MiB, 25 cores each); 1 of 2 members would find a place now on 1 node "
        "with h20",
        "There, use-cards and avoid-cards leave 1 of 4 cards",
        "Nodes with room that do not take it: n2 (cordoned) and 2 more",
        "2 would fit, but 512 MiB and 25 cores on 1 card are on standby for a, b, suspended for more than "
        "60 s",
        "No pod is evicted now, because c, d can be suspended again once back on their cards",
    ]
    assert verdict.numbers == {
        "asked": 2,
        "free": 1,
        "queue": "research",
        "free_cards_only": 3,
        "kept_mib": 512,
        "kept_cores": 25,
        "kept_cards": 1,
        "kept_for": "a, b",
    }


@pytest.mark.parametrize(
    ("silent", "text"),
    [
        (("n1",), "Node n1 is silent: its pods are gone once it is back, is deleted, or is tainted"),
        (
            ("n1", "n2"),
            "Nodes n1, n2 are silent: their pods are gone once they are back, are deleted, or are tainted",
        ),
    ],
)
def test_what_frees_the_members_of_silent_nodes(silent: tuple[str, ...], text: str) -> None:
    nodes = tuple(map(NodeName, ("n1", "n2")))
    leaving = findings.Leaving(2, nodes, tuple(map(NodeName, silent)))
    verdict = say.verdict(findings.MissingMembers(0, 2, "w", leaving))
    head = "0 of 2 members of task w are there; 2 are still leaving n1, n2"
    assert verdict.message == f"{head}. {text} node.kubernetes.io/out-of-service"
    assert verdict.numbers == {"have": 0, "need": 2, "task": "w", "leaving": 2}
