"""HyperNodes: whose member a node is, and what becomes of those that are wrong."""

import random
import time
from typing import Any

import pytest
from vc_egpu.core.topology.network import Domain
from vc_egpu.volcano.api.hypernode import HyperNode as Typed
from vc_egpu.volcano.network.hypernodes import Pattern, Tree, read

Json = dict[str, Any]


def exact(name: str, kind: str = "Node") -> Json:
    return {"type": kind, "selector": {"exactMatch": {"name": name}}}


def pattern(text: str) -> Json:
    return {"type": "Node", "selector": {"regexMatch": {"pattern": text}}}


def labels(**values: str) -> Json:
    return {"type": "Node", "selector": {"labelMatch": {"matchLabels": values}}}


def hyper(name: str, tier: Any, *members: Json, level: str = "") -> Json:
    named = {"tierName": level} if level else {}
    return {"metadata": {"name": name}, "spec": {"tier": tier, "members": [*members], **named}}


def tree(*documents: Json) -> Tree:
    return Tree([read(document) for document in documents])


def names(found: Tree, node: str, **its: str) -> list[str]:
    return [domain.name for domain in found.domains_of(node, its)]


def test_members_by_name_by_pattern_and_by_labels() -> None:
    found = tree(
        hyper("r1", 1, exact("n1"), level="rack"),
        hyper("r2", 1, pattern("^n2[0-9]$")),
        hyper("r3", 1, labels(rack="three")),
        hyper("b1", 2, exact("r1", "HyperNode"), exact("r2", "HyperNode")),
        hyper("z1", 7, exact("b1", "HyperNode"), exact("r3", "HyperNode"), exact("lonely")),
    )
    assert found.domains_of("n1", {}) == (Domain(1, "r1", "rack"), Domain(2, "b1"), Domain(7, "z1"))
    assert names(found, "n25") == ["r2", "b1", "z1"]
    assert names(found, "n2") == []
    assert names(found, "x", rack="three") == ["r3", "z1"]
    assert names(found, "lonely") == ["z1"]
    assert not found.problems


def test_expressions_of_labels_count_all_together() -> None:
    member = {
        "type": "Node",
        "selector": {
            "labelMatch": {
                "matchLabels": {"pool": "gpu"},
                "matchExpressions": [
                    {"key": "rack", "operator": "In", "values": ["a", "b"]},
                    {"key": "broken", "operator": "DoesNotExist"},
                ],
            }
        },
    }
    found = tree(hyper("r", 1, member))
    assert names(found, "n", pool="gpu", rack="a") == ["r"]
    assert names(found, "n", pool="gpu", rack="a", broken="yes") == []
    assert names(found, "n", pool="gpu", rack="c") == []


@pytest.mark.parametrize(
    "members",
    [
        ({"type": "Node"},),
        ({"type": "Node", "selector": {}},),
        ({"type": "Pod", "selector": {"exactMatch": {"name": "n1"}}},),
        (pattern("("),),
        (pattern("a" * 2000),),
        (labels(),),
        (
            {
                "type": "Node",
                "selector": {"labelMatch": {"matchExpressions": [{"key": "a", "operator": "Gt"}]}},
            },
        ),
        ({"type": "HyperNode", "selector": {"regexMatch": {"pattern": "r.*"}}},),
        ("n1",),
        (None,),
    ],
)
def test_a_member_that_cannot_be_read_is_named_and_left_out(members: tuple[Any, ...]) -> None:
    found = tree(hyper("r", 1, *members, exact("good")))
    (problem,) = found.problems["r"]
    assert problem.startswith("spec.members[0] is left out")
    assert names(found, "good") == ["r"]
    assert names(found, "n1") == []


@pytest.mark.parametrize(
    "document", [{}, {"spec": {}}, hyper("r", "one"), {"spec": {"tier": 1}, "metadata": {}}]
)
def test_what_has_no_name_or_no_tier_is_no_hypernode(document: Json) -> None:
    with pytest.raises((KeyError, TypeError)):
        read(document)


def test_hypernodes_in_a_circle_are_left_out_and_named() -> None:
    found = tree(
        hyper("a", 1, exact("b", "HyperNode"), exact("n1")),
        hyper("b", 2, exact("a", "HyperNode"), exact("n2")),
        hyper("self", 1, exact("self", "HyperNode"), exact("n3")),
        hyper("good", 1, exact("n4")),
        hyper("above", 3, exact("b", "HyperNode"), exact("good", "HyperNode")),
    )
    assert found.problems == {
        "a": ("it is left out: it is a member of itself, with b",),
        "b": ("it is left out: it is a member of itself, with a",),
        "self": ("it is left out: it is a member of itself, with itself",),
        "above": ("its member b is left out",),
    }
    assert [names(found, name) for name in ("n1", "n2", "n3", "n4")] == [[], [], [], ["good", "above"]]


def test_an_unknown_member_is_named_and_others_stay() -> None:
    found = tree(
        hyper("r", 1, exact("n1")), hyper("b", 2, exact("r", "HyperNode"), exact("gone", "HyperNode"))
    )
    assert found.problems == {"b": ("its member gone is not there",)}
    assert names(found, "n1") == ["r", "b"]
    assert found.unknown_nodes({}) == {"r": ("n1",)}
    assert not found.unknown_nodes({"n1": None})


def test_a_member_of_no_lower_tier_or_of_two_is_named() -> None:
    found = tree(
        hyper("r", 2, exact("n1")),
        hyper("same", 2, exact("r", "HyperNode")),
        hyper("b1", 3, exact("r", "HyperNode")),
        hyper("b2", 3, exact("r", "HyperNode")),
    )
    assert found.problems == {
        "same": ("its member r is left out: its tier 2 is not below tier 2",),
        "b2": ("its member r is left out: it is one of b1 already",),
    }
    assert names(found, "n1") == ["r", "b1"]


def test_a_node_is_in_one_domain_of_each_tier() -> None:
    found = tree(
        hyper("r2", 1, pattern("n")), hyper("r1", 1, exact("n1")), hyper("b", 2, exact("r2", "HyperNode"))
    )
    assert names(found, "n1") == ["r1", "b"]
    assert names(found, "n2") == ["r2", "b"]


def test_a_pattern_takes_no_longer_for_a_hostile_name() -> None:
    found = Pattern("^(a+)+$")
    began = time.process_time()
    assert not found.matches("a" * 250 + "b")
    assert found.matches("aaa")
    assert time.process_time() - began < 1


def test_thousands_in_a_chain_or_in_pairs_end() -> None:
    chain = [hyper(f"h{at}", at, exact(f"h{at - 1}", "HyperNode")) for at in range(1, 3000)]
    found = tree(*chain, hyper("h0", 0, exact("n1")))
    assert len(names(found, "n1")) == 3000
    pairs = [hyper(f"p{at}", 1, exact(f"p{at ^ 1}", "HyperNode"), exact(f"n{at}")) for at in range(400)]
    assert len(tree(*pairs).problems) == 400


def test_the_order_in_which_they_come_makes_no_difference() -> None:
    rng = random.Random(7)
    documents = [
        hyper(
            f"h{at}",
            rng.randint(0, 3),
            exact(f"n{rng.randint(0, 5)}"),
            pattern(f"n{rng.randint(0, 5)}"),
            exact(f"h{rng.randint(0, 9)}", "HyperNode"),
        )
        for at in range(10)
    ]
    first = tree(*documents)
    for _ in range(20):
        rng.shuffle(documents)
        other = tree(*documents)
        assert other.problems == first.problems
        assert [names(other, f"n{at}") for at in range(6)] == [names(first, f"n{at}") for at in range(6)]


def test_the_typed_object_writes_back_what_it_read() -> None:
    document = {
        "apiVersion": "topology.volcano.sh/v1alpha1",
        "kind": "HyperNode",
        **hyper("r", 1, exact("n1"), pattern("n.*"), labels(rack="a"), level="rack"),
        "status": {"nodeCount": 3, "conditions": [{"type": "Ready", "later": True}]},
    }
    assert Typed.parse(document).document() == document
