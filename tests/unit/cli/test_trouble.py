"""`kubectl egpu why` on what is wrong below running members."""

from unit.cli import documents as docs
from vc_egpu.cli.views import links, trouble, why
from vc_egpu.core.model.cluster import OUT_OF_SERVICE
from vc_egpu.volcano.swapping.notes import NodeSwaps, PodSwap
from vc_egpu.volcano.words.annotations import Cards, CardShare
from vc_egpu.volcano.words.names import CARDS, NODE_SWAPS

POD = docs.pod("train-w-0", group="train-1", cards={"GPU-a": (1024, 25)})


def of(node: docs.Json, *pods: docs.Json) -> list[str]:
    return trouble.notes(pods or (POD,), {"n1": node})


def test_nothing_is_said_about_what_is_in_order() -> None:
    assert of(docs.node("n1", docs.card("GPU-a"))) == []


def test_nothing_is_said_to_who_may_not_see_nodes() -> None:
    assert trouble.notes((POD,), None) == []
    (note,) = trouble.notes((POD,), {})
    assert "node n1 is gone" in note


def test_a_silent_node_holds_its_cards() -> None:
    (note,) = of(docs.node("n1", docs.card("GPU-a"), ready="Unknown"))
    assert "node n1 is not ready" in note
    assert "the cards of train-w-0 stay held" in note
    assert "out-of-service" in note


def test_a_node_out_of_service_is_left() -> None:
    node = docs.node("n1", docs.card("GPU-a"), ready="Unknown")
    node["spec"]["taints"] = [{"key": OUT_OF_SERVICE, "effect": "NoExecute"}]
    (note,) = of(node)
    assert note == "node n1 is out of service: train-w-0 will be removed and placed again"


def test_a_node_that_is_gone() -> None:
    (note,) = trouble.notes((POD,), {"n2": docs.node("n2")})
    assert note.startswith("node n1 is gone")


def test_an_ill_card_names_who_is_on_it() -> None:
    ill = docs.card("GPU-a", healthy=False, reason="XID 79")
    (note,) = of(docs.node("n1", ill, docs.card("GPU-b", 1, healthy=False)))
    assert note.startswith("card GPU-a of node n1 is ill (XID 79): it takes nothing new, and train-w-0")


def test_members_that_are_done_or_wait_have_no_trouble() -> None:
    node = docs.node("n1", docs.card("GPU-a"), ready="Unknown")
    done = docs.pod("done", group="train-1", cards={"GPU-a": (1, 0)}, phase="Succeeded")
    assert of(node, done, docs.pod("gated", group="train-1", gated=True)) == []


def test_why_shows_it_as_a_note() -> None:
    node = docs.node("n1", docs.card("GPU-a"), ready="Unknown")
    (story,) = why.stories(
        "train",
        "ml",
        groups=[docs.group("train-1", "research", job="train")],
        pods=[POD],
        queues={},
        nodes={"n1": node},
    )
    assert any("node n1 is not ready" in note for note in story.notes)


def test_the_set_of_a_member_with_several_cards_is_told() -> None:
    node = docs.node(
        "n1",
        docs.card("GPU-a", switch_links=18, link_mb_s=25_000),
        docs.card("GPU-b", 1, switch_links=18, link_mb_s=25_000),
    )
    pair = docs.pod("pair", cards={"GPU-a": (1024, 25), "GPU-b": (1024, 25)})
    assert links.notes([pair, POD], {"n1": node}) == [
        "pair has cards 0, 1 of n1: NV18 at worst, 450 GB/s; ring 450 GB/s"
    ]
    assert links.notes([pair], None) == []
    assert links.notes([pair], {}) == []
    silent = docs.node("n1", docs.card("GPU-a"), docs.card("GPU-b", 1))
    assert links.notes([pair], {"n1": silent}) == [], "an older agent tells of no links"


def test_shares_that_nothing_holds_are_told_of() -> None:
    bare = docs.card("GPU-a", isolation="none")
    (note,) = of(docs.node("n1", bare))
    assert note.startswith("nothing keeps train-w-0 to the granted memory on node n1")
    assert of(docs.node("n1", docs.card("GPU-a", isolation="driver"))) == []
    whole = docs.pod("whole", group="train-1", cards={"GPU-a": (docs.MEMORY_MIB, 100)}, native=True)
    assert of(docs.node("n1", bare), whole) == []


def test_who_falls_with_whom_under_mps_is_told() -> None:
    held = docs.card("GPU-a", held=["uid-1", "uid-2", "uid-train-w-0"])
    node = docs.node("n1", held, compute="mps", mps_namespace="a")
    (note,) = of(node)
    assert note == (
        "train-w-0 and 2 other pods share an MPS server on card GPU-a of node n1: a fault of one program "
        "there ends the programs of all of them"
    )
    assert of(docs.node("n1", held, compute="timeslice")) == []


def test_a_low_gang_of_several_pods_is_told_its_weaker_promise() -> None:
    def low(name: str, pods: int | None) -> docs.Json:
        made = docs.pod(name, group="train-1", cards={"GPU-a": (1, 0)}, share_class="low")
        said = made["metadata"]["annotations"]
        said[CARDS] = Cards.decode(said[CARDS]).model_copy(update={"gang_pods": pods}).encode()
        return made

    (note,) = trouble.unheld([low("a", 2), low("b", 2)])
    assert note.startswith("2 pods of class low run at once: none of their launches is held")
    assert trouble.unheld([low("a", None)]) == trouble.unheld([]) == []
    assert trouble.unheld([docs.pod("high", cards={"GPU-a": (1, 0)}, share_class="high")]) == []
    assert trouble.unheld([docs.pod("waits", gated=True)]) == []


def test_pods_that_take_a_card_in_turns_are_told_whose_turn_it_is() -> None:
    def turns(name: str) -> docs.Json:
        made = docs.pod(name, group="train-1", cards={"GPU-a": (1024, 0)})
        said = made["metadata"]["annotations"]
        share = CardShare(uuid="GPU-a", memory_mib=1024, cores=0, physical_mib=512, swap=True)
        cards = Cards.decode(said[CARDS])
        name_of = next(iter(cards.containers))
        said[CARDS] = cards.model_copy(update={"containers": {name_of: (share,)}}).encode()
        return made

    day, night = turns("day"), turns("night")
    uid = Cards.decode(night["metadata"]["annotations"][CARDS]).pod_uid
    reason = "ns/day works on the card, and both want it: they take turns of 60 s"
    away = PodSwap(place="away", host_mib=900, reason=reason)
    said = NodeSwaps(pods={uid: away}).encode()
    node = docs.node("n1", docs.card("GPU-a"), annotations={NODE_SWAPS: said})
    (note,) = trouble.turns([night], {"n1": node})
    assert note.endswith(f"waits for its turn on its card (900 MiB of it lie on the host): {reason}")
    said = NodeSwaps(pods={uid: away.model_copy(update={"reason": ""})}).encode()
    node = docs.node("n1", docs.card("GPU-a"), annotations={NODE_SWAPS: said})
    (note,) = trouble.turns([night], {"n1": node})
    assert "idles while others may have its card" in note
    garbled = docs.node("n1", docs.card("GPU-a"), annotations={NODE_SWAPS: "{"})
    for nodes in (None, {}, {"n1": garbled}):
        assert "its node does not say whose turn it is" in trouble.turns([day], nodes)[0]
    assert trouble.turns([POD], {"n1": node}) == []
