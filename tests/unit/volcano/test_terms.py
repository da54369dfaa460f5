"""Node terms that have to hold together, against each list held against each node by itself."""

import random
from itertools import product

import pytest
from vc_egpu.core.books.fit import accepting, accepts
from vc_egpu.core.model.cluster import Node, NodeName, PodShape, Requirement, Resources
from vc_egpu.volcano.podspec.node_terms import MOST_TERMS, Terms, TooManyTermsError, all_of

NODES = [
    Node(NodeName(f"n-{zone}-{disk}"), Resources(), labels={"zone": zone, "disk": disk})
    for zone, disk in product("abc", ("ssd", "hdd"))
]


def holds(node: Node, terms: Terms) -> bool:
    return accepts(node, PodShape(affinity_terms=terms))


def some_terms(draw: random.Random) -> Terms:
    def requirement() -> Requirement:
        key, values = draw.choice((("zone", "abc"), ("disk", ("ssd", "hdd"))))
        operator = draw.choice(("In", "In", "NotIn", "Exists", "DoesNotExist"))
        chosen = tuple(draw.sample(tuple(values), draw.randint(1, 2))) if "In" in operator else ()
        return Requirement(key, operator, chosen)

    return tuple(
        tuple(requirement() for _ in range(draw.randint(1, 2))) for _ in range(draw.choice((0, 1, 1, 2, 3)))
    )


@pytest.mark.parametrize("seed", range(200))
def test_a_node_takes_it_that_each_list_takes(seed: int) -> None:
    draw = random.Random(seed)
    own, others = some_terms(draw), [some_terms(draw) for _ in range(draw.randint(0, 4))]
    together = all_of(own, others)
    for node in NODES:
        assert holds(node, together) is all(holds(node, terms) for terms in (own, *others))
    found = accepting(NODES, PodShape(affinity_terms=together))
    assert found == {node.name for node in NODES if holds(node, together)}, "all at once as one by one"


def test_what_holds_nowhere_does_not_become_anywhere() -> None:
    one, another = (((Requirement("zone", "In", (zone,)),)) for zone in "ab")
    together = all_of((one,), [(another,)])
    assert together
    assert not any(holds(node, together) for node in NODES)


def test_there_is_a_bound() -> None:
    own = tuple((Requirement("a", "In", (str(i),)),) for i in range(MOST_TERMS + 1))
    assert len(all_of(own, [((Requirement("b", "Exists"),),)])) == len(own), "a pod's own are its own affair"
    with pytest.raises(TooManyTermsError, match="1024 alternatives"):
        all_of(own, [tuple((Requirement("b", "In", (str(i),)),) for i in range(2))])
