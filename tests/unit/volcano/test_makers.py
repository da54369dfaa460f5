"""Who made an object, also where strangers wrote what says so."""

from typing import Any

import pytest
from vc_egpu.volcano.codec import cluster_codec
from vc_egpu.volcano.words.makers import called, controller_of, deployment_behind

OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "chat-7d9", "uid": "u", "controller": True}


def owned(*references: Any) -> dict[str, Any]:
    return {"metadata": {"ownerReferences": list(references)}}


@pytest.mark.parametrize(
    "references",
    [
        (OWNER,),
        ({**OWNER, "controller": False, "uid": "other"}, OWNER),
        ("garbage", None, 7, [OWNER], OWNER),
        ({**OWNER, "controller": "true", "uid": "other"}, {**OWNER, "controller": 1, "uid": "other"}, OWNER),
    ],
)
def test_the_controller_is_the_reference_that_says_so(references: tuple[Any, ...]) -> None:
    assert controller_of(owned(*references)) == OWNER
    found = cluster_codec.owner_of(owned(*references)["metadata"])
    assert found is not None
    assert found.uid == "u"


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"metadata": None},
        {"metadata": []},
        {"metadata": "text"},
        {"metadata": {"ownerReferences": None}},
        {"metadata": {"ownerReferences": "text"}},
        {"metadata": {"ownerReferences": {"controller": True}}},
        owned(),
        owned({**OWNER, "controller": None}),
    ],
)
def test_without_such_a_reference_there_is_none(document: dict[str, Any]) -> None:
    assert controller_of(document) == {}
    assert cluster_codec.owner_of(document.get("metadata") or {}) is None


@pytest.mark.parametrize(
    ("kind", "name", "hashed", "expected"),
    [
        ("ReplicaSet", "chat-7d9", "7d9", "Deployment infer/chat"),
        ("ReplicaSet", "chat-7d9", "", "ReplicaSet infer/chat-7d9"),
        ("ReplicaSet", "chat-7d9", "d9", "ReplicaSet infer/chat-7d9"),
        ("ReplicaSet", "7d9", "7d9", "ReplicaSet infer/7d9"),
        ("StatefulSet", "db", "7d9", "StatefulSet infer/db"),
        ("Job", "train", "", "Job infer/train"),
        ("Pod", "shell", "", "Pod infer/shell"),
    ],
)
def test_what_people_call_a_gang(kind: str, name: str, hashed: str, expected: str) -> None:
    labels = {"pod-template-hash": hashed} if hashed else {}
    assert called("infer", kind, name, labels) == expected
    assert bool(deployment_behind(kind, name, labels)) == expected.startswith("Deployment")
