"""Cards in turns at the door: what is taken, what is refused by name, what has no effect and is said."""

from dataclasses import replace
from typing import Any

import pytest
from unit.webhook.test_limits_of_nodes import BARE, PLAIN, STRETCHED, offers, told
from unit.webhook.world import Json, container, context, create, patched, pod
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import Request
from vc_egpu.webhook.protocol.decision import Decision
from vc_egpu.webhook.reviews.pods import review_pod

SWAP = {names.OVERSUBSCRIBE: "swap"}
WHOLE = container(vgpu_h20=1, vgpu_memory_percentage=100)


def judged(obj: Json, **annotations: str) -> Decision:
    said = {**SWAP, **{f"{names.DOMAIN}/{key}": value for key, value in annotations.items()}}
    known = replace(context(unnamed_model_unlimited=True), offers=offers({"h20": STRETCHED}))
    return review_pod(create(pod(obj, annotations=said)), known)


def test_a_share_of_the_whole_memory_takes_turns() -> None:
    decision = judged(WHOLE)
    assert decision.allowed, decision.message
    assert not decision.warnings
    made = patched(pod(WHOLE, annotations=SWAP), decision)
    request = Request.decode(made["metadata"]["annotations"][names.REQUEST])
    assert (request.swap, request.oversubscribe) == (True, False)
    limits = made["spec"]["containers"][0]["resources"]["limits"]
    assert limits["volcano.sh/vgpu-h20-memory"] in (98304, "98304"), "caps count it in full"


@pytest.mark.parametrize(
    ("obj", "annotations", "words"),
    [
        (WHOLE, {"priority": "low"}, "low pods are suspended for others without it"),
        (WHOLE, {"oversubscribe": "often"}, "it must be one of true, false, swap"),
        (container(vgpu_h20=1), {}, "names none of the memory of a h20"),
        (container(vgpu_h20=1, vgpu_memory=1000), {}, "names 1000 MiB of the memory of a h20"),
        (
            container(vgpu_h20=1, vgpu_memory_percentage=100, vgpu_cores=50),
            {},
            "asks for 50 cores. In its turn it has all",
        ),
        (container(gpu_h20=1), {}, "the memory of whole cards cannot spill"),
    ],
    ids=["low", "no word", "the model alone", "a part", "cores", "native"],
)
def test_what_cannot_take_turns_is_refused(obj: Json, annotations: dict[str, Any], words: str) -> None:
    decision = judged(obj, **annotations)
    assert not decision.allowed
    assert words in decision.message
    assert names.OVERSUBSCRIBE in decision.message


def test_where_nobody_takes_turns_it_is_said() -> None:
    obj = pod(WHOLE, annotations=SWAP)
    assert any("its card is for it alone" in text for text in told(obj, {"h20": PLAIN}))
    assert any("nobody can be made to wait for a turn" in text for text in told(obj, {"h20": BARE}))
    assert not told(obj, {"h20": STRETCHED})
