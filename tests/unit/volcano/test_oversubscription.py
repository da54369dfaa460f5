"""Memory that may spill: from pods' and nodes' annotations into what a decision sees."""

from typing import Any

import pytest
from vc_egpu.core.model.cluster import Share
from vc_egpu.volcano.codec.cluster_codec import node
from vc_egpu.volcano.codec.pod_codec import pod
from vc_egpu.volcano.codec.share_codec import memory_limits
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import (
    AnnotationError,
    Cards,
    CardShare,
    ContainerRequest,
    NodeCards,
    Request,
)
from vc_egpu.volcano.words.model_table import ModelTable

TABLE = ModelTable.from_yaml("models: [{name: h20, products: [NVIDIA H20], memoryMiB: 98304}]")
GIB = 1024


def asking(
    *, oversubscribe: bool = True, whole: bool = False, limits: Any = None, **spec: Any
) -> dict[str, Any]:
    """A pod with one share of 60 GiB."""
    ask = ContainerRequest(model="h20", cards=2, memory_mib=60 * GIB, cores_percent=0, whole=whole)
    request = Request(containers={"main": ask}, oversubscribe=oversubscribe)
    container = {"name": "main", "resources": {"limits": limits or {}}}
    return {
        "metadata": {
            "name": "p",
            "namespace": "ns",
            "uid": "uid-p",
            "resourceVersion": "1",
            "annotations": {names.REQUEST: request.encode()},
            "labels": {names.MANAGED_LABEL: "true"},
        },
        "spec": {"containers": [container], **spec},
        "status": {},
    }


def test_an_ask_may_spill_only_where_it_says_so_and_shares_the_card() -> None:
    (ask,) = pod(asking(limits={"memory": "8Gi"}), TABLE).pod.shape.asks
    assert (ask.spill, ask.host_limit_mib) == (True, 8 * GIB)
    (ask,) = pod(asking(oversubscribe=False, limits={"memory": "8Gi"}), TABLE).pod.shape.asks
    assert (ask.spill, ask.host_limit_mib) == (False, None)
    (ask,) = pod(asking(whole=True), TABLE).pod.shape.asks
    assert not ask.spill, "a whole card has nobody beside it"


def test_the_smaller_of_container_and_pod_limit_counts() -> None:
    spec = asking(limits={"memory": "8Gi"}, resources={"limits": {"memory": "4Gi"}})["spec"]
    assert memory_limits(spec) == {"main": 4 * GIB}
    assert memory_limits(asking()["spec"]) == {}


def test_what_lies_on_the_card_is_read_back() -> None:
    share = CardShare(uuid="GPU-0", memory_mib=60 * GIB, cores=0, physical_mib=30 * GIB)
    document = asking()
    cards = Cards(pod_uid="uid-p", node="n1", plan_id="1-1", containers={"main": (share,)})
    document["metadata"]["annotations"][names.CARDS] = cards.encode()
    ((_, read),) = pod(document, TABLE).pod.shares
    assert read == Share(read.card, 60 * GIB, 0, physical_mib=30 * GIB)
    assert read.on_card_mib == 30 * GIB
    assert '"physicalMiB":30720' in cards.encode()
    plain = cards.model_copy(update={"containers": {"main": (CardShare(uuid="a", memory_mib=1, cores=0),)}})
    assert "physicalMiB" not in plain.encode(), "an older agent reads it as before"


@pytest.mark.parametrize("physical", [0, -1, 61 * GIB, "30720", 1.5])
def test_parts_that_cannot_be_are_refused(physical: Any) -> None:
    text = '{"podUid":"u","node":"n","planId":"1-1","containers":{"main":[{"uuid":"GPU-0","memoryMiB":61440,'
    with pytest.raises(AnnotationError):
        Cards.decode(text + f'"cores":0,"physicalMiB":{physical!r}' + "}]}}".replace("'", '"'))


def test_a_node_says_how_much_it_promises() -> None:
    def read(**said: Any) -> Any:
        text = NodeCards.model_construct(**said).encode()
        metadata = {"name": "n1", "annotations": {names.NODE_CARDS: text}}
        return node({"metadata": metadata, "spec": {}, "status": {}}, TABLE)

    found = read(memory_ratio=2.5, host_memory_mib=100_000)
    assert (found.memory_ratio, found.host_memory_mib, found.problem) == (2.5, 100_000, "")
    for garbage in ({"memory_ratio": 10.1}, {"host_memory_mib": -1}, {"host_memory_mib": 1 << 40}):
        assert "malformed" in read(**garbage).problem
