"""What is to keep containers apart, as a pod asks for it: from the annotation to a condition on its node."""

from typing import Any

import pytest
from unit.webhook.world import context
from vc_egpu.core.environments import backends
from vc_egpu.core.environments.needs import is_met, lacking
from vc_egpu.volcano.needs.nodes import environment
from vc_egpu.volcano.needs.pods import needs_in, read
from vc_egpu.volcano.podspec.slices import SliceAskError, cut_of
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import NodeCard, NodeCards

SPEC: dict[str, Any] = {"containers": []}
TABLE = context().settings.environments


def node(*words: str, **more: Any) -> NodeCards:
    cards = tuple(
        NodeCard(uuid=f"GPU-{at}", index=at, model="h20", memory_mib=98304, isolation=word, **more)
        for at, word in enumerate(words)
    )
    return NodeCards(cards=cards)


def goes_to(asked: str, *words: str, **annotations: str) -> bool:
    said = {names.ISOLATION: asked, **annotations} if asked else annotations
    return is_met(needs_in(read(said, SPEC, TABLE).needs), environment(node(*words), {}))


@pytest.mark.parametrize(
    ("asked", "there"),
    [
        ("", {"library", "driver", "hardware", "vendor-file", "none"}),
        ("any", {"library", "driver", "hardware", "vendor-file", "none"}),
        ("library", {"library", "driver"}),
        ("driver", {"driver"}),
        ("hardware", {"library", "driver", "hardware", "vendor-file", "none"}),
        ("vendor-file", {"vendor-file"}),
        ("none", {"none"}),
    ],
)
def test_which_nodes_an_ask_may_go_to(asked: str, there: set[str]) -> None:
    """``hardware`` makes a slice of the ask, and slices lie on cards that have a place for them."""
    assert {word for word in backends.BACKENDS if goes_to(asked, word)} == there


def test_a_node_of_several_kinds_is_of_none_of_them() -> None:
    assert not goes_to("driver", "driver", "none")
    assert goes_to("library", "driver", "library")


def test_cards_that_are_not_offered_do_not_count() -> None:
    cards = node("driver", "none").cards
    idle = NodeCards(cards=(cards[0], cards[1].model_copy(update={"offered": False})))
    assert ("isolation", ("driver",)) in environment(idle, {})
    off = NodeCards(cards=tuple(one.model_copy(update={"offered": False}) for one in cards))
    assert ("isolation", ("driver", "none")) in environment(off, {})
    assert "isolation" not in dict(environment(NodeCards(), {}))


def test_it_comes_on_top_of_what_the_program_needs() -> None:
    said = {names.ISOLATION: "driver", names.NEEDS: "cuda>=12.4"}
    needs = needs_in(read(said, SPEC, TABLE).needs)
    assert needs.text == f"cuda>=12.4, {names.ISOLATION}: driver"
    old = environment(node("library").model_copy(update={"cuda_version": "12.8"}), {})
    (want,) = lacking(needs, old)
    assert (want.fact, want.needed, want.has) == ("isolation", "isolation==driver", "library")
    assert is_met(needs, environment(node("driver").model_copy(update={"cuda_version": "12.8"}), {}))


def test_it_comes_on_top_of_what_containers_say() -> None:
    spec = {"containers": [{"name": "a", "env": [{"name": "NVIDIA_REQUIRE_CUDA", "value": "cuda>=12.4"}]}]}
    needs = needs_in(read({names.ISOLATION: "driver"}, spec, TABLE).needs)
    assert needs.presumed
    assert not is_met(needs, environment(node("library"), {}))
    assert is_met(needs, environment(node("driver"), {}))


def test_a_long_text_stays_within_its_limit() -> None:
    long = ",".join(["cuda>=12.4" + " " * 22] * 15)
    assert 480 < len(long) <= 512
    needs = read({names.ISOLATION: "driver", names.NEEDS: long}, SPEC, TABLE).needs
    assert needs is not None
    assert len(needs.text) <= 512


def test_a_slice_that_is_named_needs_no_other_word() -> None:
    assert goes_to("library", "hardware", **{names.SLICE: "1g.10gb"})
    for word in ("driver", "none"):
        with pytest.raises(SliceAskError, match="leave one of the two out"):
            cut_of({names.ISOLATION: word, names.SLICE: "1g.10gb"})


@pytest.mark.parametrize("word", ["wood", "Library", "MPS", "library,driver"])
def test_an_unknown_word_is_refused_with_those_that_are_known(word: str) -> None:
    with pytest.raises(SliceAskError) as raised:
        cut_of({names.ISOLATION: word})
    assert str(raised.value) == (
        f"{names.ISOLATION} is {word!r}, it must be library, driver, hardware, vendor-file, none, mps or any"
    )


def test_every_word_has_its_place() -> None:
    assert backends.RESIZABLE == backends.HELD == {"library", "driver"}
    assert [backends.said(word) for word in backends.BACKENDS] != list(backends.BACKENDS)
    assert backends.said("of-a-later-version") == "of-a-later-version"
