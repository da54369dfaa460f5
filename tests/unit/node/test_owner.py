"""Whose slots these are, as the kubelet lists them: one container's, all of them and no others, or none's."""

import pytest
from vc_egpu_node.kubelet.podresources import ContainerRef, Holder, UnknownOwnerError, owner

RES = "volcano.sh/vgpu-h20"
A, B = ContainerRef("ns", "a", "main"), ContainerRef("ns", "b", "main")


def holder(ref: ContainerRef, *ids: str, resource: str = RES) -> Holder:
    return Holder(ref, resource, frozenset(ids))


def test_the_owner_is_who_holds_exactly_these() -> None:
    others = [holder(B, "s3"), holder(B, "s1", "s2", resource="volcano.sh/gpu-h20")]
    assert owner([*others, holder(A, "s1", "s2")], RES, ["s2", "s1"]) == A


@pytest.mark.parametrize(
    ("holders", "text"),
    [
        ([], "lists no container with 1 slots"),
        ([holder(A, "s2")], "lists no container with 1 slots"),
        ([holder(A, "s1", "s2")], "under ns/a/main: no single owner"),
        ([holder(A, "s1"), holder(B, "s1")], "under ns/a/main, ns/b/main: no single owner"),
        ([holder(A, "s1"), holder(B, "s1", "s2")], "no single owner"),
        ([holder(B, "s1", "s2"), holder(A, "s1")], "no single owner"),
    ],
)
def test_in_doubt_nobody_is(holders: list[Holder], text: str) -> None:
    """Whoever were taken for the owner would get another one's cards."""
    with pytest.raises(UnknownOwnerError, match=text):
        owner(holders, RES, ["s1"])


def test_a_container_with_a_part_of_the_slots_is_not_their_owner() -> None:
    with pytest.raises(UnknownOwnerError, match="no single owner"):
        owner([holder(A, "s1")], RES, ["s1", "s2"])
