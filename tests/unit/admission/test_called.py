"""What people call the gang that others make room for: they know no ``podgroup-<uid>``."""

from typing import Any

import pytest
from unit.admission.build import TABLE, added, group, pod
from vc_egpu.admission.state.gangs import called
from vc_egpu.admission.state.mirror import Mirror


def owner(kind: str, name: str) -> dict[str, Any]:
    return {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}


@pytest.mark.parametrize(
    ("made_by", "hashed", "expected"),
    [
        (owner("ReplicaSet", "chat-7d9"), "7d9", "Deployment default/chat"),
        (owner("ReplicaSet", "chat-7d9"), "", "ReplicaSet default/chat-7d9"),
        (owner("StatefulSet", "db"), "", "StatefulSet default/db"),
        (owner("Job", "train"), "", "Job default/train"),
        (owner("Pod", "shell"), "", "Pod default/shell"),
        (None, "", "gang default/g"),
    ],
)
@pytest.mark.parametrize("has_pods", [True, False])
def test_a_gang_is_called_by_what_makes_its_pods(
    made_by: dict[str, Any] | None, hashed: str, expected: str, *, has_pods: bool
) -> None:
    mirror, owners = Mirror(TABLE), [made_by] if made_by else []
    document = group()
    document["metadata"]["ownerReferences"] = owners
    mirror.apply("podgroups", added(document))
    if has_pods:
        member = pod(owners=owners)
        member["metadata"]["labels"] |= {"pod-template-hash": hashed} if hashed else {}
        mirror.apply("pods", added(member))
    elif hashed:
        expected = "ReplicaSet default/chat-7d9"
    assert called(mirror.groups["default/g"], mirror.members.get("default/g", {}).values()) == expected
