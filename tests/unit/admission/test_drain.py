"""Before removal nobody is left waiting for an admission controller that is not there any more."""

from pathlib import Path

import pytest
from unit.admission.build import let_go, pod
from unit.admission.stage import PLAN_ID, PODS
from unit.kube.tiny_api import tiny_api
from vc_egpu.admission.drain import drain
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.volcano.codec.suspension import SuspendOrder
from vc_egpu.volcano.words import names


def test_gates_are_lifted_and_suspended_pods_told_to_come_back(tmp_path: Path) -> None:
    with tiny_api() as server:
        api = ApiConnection.connect(server.kubeconfig(tmp_path))
        server.put(f"{PODS}/waits", pod("waits", uid="waits"))
        order = SuspendOrder(pod_uid="away", plan_id="4-2").encode()
        away = let_go(pod("away", uid="away", annotations={names.SUSPEND: order}), PLAN_ID, bound=True)
        server.put(f"{PODS}/away", away)
        bare = let_go(pod("bare", uid="bare", annotations={names.SUSPEND: order}), PLAN_ID, bound=True)
        del bare["metadata"]["labels"], bare["metadata"]["annotations"][names.REQUEST]
        server.put(f"{PODS}/bare", bare)  # somebody took our marks off it
        listed = {"metadata": {"resourceVersion": "1"}, "items": list(server.objects.values())}
        server.script.append((200, listed, {}))
        assert drain(api) == 0
        assert "schedulingGates" not in server.objects[f"{PODS}/waits"]["spec"]
        for name in ("away", "bare"):
            assert names.SUSPEND not in server.objects[f"{PODS}/{name}"]["metadata"]["annotations"]
        assert names.CARDS in server.objects[f"{PODS}/away"]["metadata"]["annotations"]
        api.close()


DIRECT = {"schedulerName": names.SCHEDULER_DIRECT, "schedulingGates": []}


@pytest.mark.parametrize("direct_only", [False, True])
def test_what_only_we_could_bind_is_made_again_and_bare_pods_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, direct_only: bool
) -> None:
    """For an earlier version gates stay, and orders: it knows these."""
    with tiny_api() as server:
        api = ApiConnection.connect(server.kubeconfig(tmp_path))
        order = SuspendOrder(pod_uid="away", plan_id="4-2").encode()
        for name, more in (
            ("gated", {}),
            ("ours", {"spec": DIRECT}),
            ("alone", {"spec": DIRECT, "owners": []}),
            ("away", {"annotations": {names.SUSPEND: order}}),
        ):
            document = pod(name, uid=name, **more)
            away = let_go(document, PLAN_ID, bound=True) if name == "away" else document
            server.put(f"{PODS}/{name}", away)
        bound = pod("bound", uid="bound", spec={**DIRECT, "nodeName": "n1"})
        server.put(f"{PODS}/bound", bound)
        listed = {"metadata": {"resourceVersion": "1"}, "items": list(server.objects.values())}
        server.script.append((200, listed, {}))
        assert drain(api, direct_only=direct_only) == 1
        assert f"{PODS}/ours" not in server.objects
        assert {f"{PODS}/alone", f"{PODS}/bound"} <= set(server.objects)
        assert "default/alone" in caplog.text
        assert ("schedulingGates" in server.objects[f"{PODS}/gated"]["spec"]) is direct_only
        assert (names.SUSPEND in server.objects[f"{PODS}/away"]["metadata"]["annotations"]) is direct_only
        api.close()
