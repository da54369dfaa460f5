"""All containers of a pod: what holds for one of ``containers`` holds for a sidecar."""

import re
from pathlib import Path
from typing import Any

import pytest
from vc_egpu.volcano.api.containers import containers_of, is_sidecar, statuses_of
from vc_egpu.volcano.codec.pod_status import finished_at, start_error_of

ROOT = Path(__file__).parents[3]
PRE_START = "PreStartContainer check failed: rpc error: code = Unknown desc = NoPlan: pod ml/a has no plan"


def waiting(message: str) -> dict[str, Any]:
    return {"name": "c", "state": {"waiting": {"reason": "CreateContainerError", "message": message}}}


@pytest.mark.parametrize("key", ["containerStatuses", "initContainerStatuses"])
@pytest.mark.parametrize("message", [PRE_START, "CDI device injection failed: unresolvable CDI devices"])
def test_what_the_agent_keeps_from_starting_says_so_in_either_list(key: str, message: str) -> None:
    """A sidecar with a card was never rolled back: nothing read that its PreStartContainer failed."""
    other = {"name": "d", "state": {"waiting": {"reason": "PodInitializing"}}}
    status = {"containerStatuses": [other], "initContainerStatuses": [other]}
    assert start_error_of(status | {key: [other, waiting(message)]}) == message


def test_a_debug_container_keeps_no_pod_from_starting() -> None:
    assert start_error_of({"ephemeralContainerStatuses": [waiting(PRE_START)]}) == ""


def test_a_pod_ends_with_its_last_sidecar() -> None:
    """The kubelet ends sidecars once the containers proper are over."""

    def ended(at: str) -> list[dict[str, Any]]:
        return [{"state": {"terminated": {"exitCode": 0, "finishedAt": at}}}]

    status = {
        "phase": "Succeeded",
        "containerStatuses": ended("2026-01-01T00:00:10Z"),
        "initContainerStatuses": ended("2026-01-01T00:00:25Z"),
    }
    assert finished_at(status) == 1_767_225_625.0


def test_all_lists_are_read_and_what_is_none_is_passed_over() -> None:
    side, main = {"name": "side", "restartPolicy": "Always"}, {"name": "main"}
    assert containers_of({"containers": [main, None, 3], "initContainers": [side]}) == [side, main]
    assert containers_of({"containers": None, "initContainers": "x"}) == []
    assert [is_sidecar(one) for one in (side, main)] == [True, False]
    every = {"initContainerStatuses": [side], "containerStatuses": [main], "ephemeralContainerStatuses": [{}]}
    assert statuses_of(every) == [side, main]
    assert statuses_of(every, debug=True) == [side, main, {}]


ALONE = {
    "api/containers.py": "the one reader",
    "vc_egpu_node/api/pods.py": "asks of init containers the most, of containers the sum",
    "codec/pod_codec.py": "ports of ordinary init containers are free again once these have ended",
    "traces/facts.py": "a pod that runs: when its containers proper started",
    "podspec/sums.py": "sums count ordinary init containers by the greediest",
    "doctor/checkup.py": "the image of Volcano's controllers",
    "inqueue/enqueue.py": "plugins open ports in containers proper alone",
    "jobs/known/pods.py": "requests are kept by list, as the sums count them",
    "objects/pods.py": "Volcano mounts a Job's volumes into containers proper alone",
    "objects/requests.py": "sums count ordinary init containers by the greediest",
    "rules/defaults.py": "a pod needs a container proper",
    "rules/plugins.py": "Volcano's plugin pytorch serves containers proper alone",
    "rules/views.py": "a pod has begun once its containers proper have statuses",
    "suspension/helper.py": "the helper's own pod, with one container",
}
"""By the last parts of its path: why a module spells a list of containers itself."""


def test_every_other_module_asks_the_one_reader() -> None:
    """Five of them read the list of containers proper alone, and sidecars were not seen."""
    lists = "initContainers|initContainerStatuses|containers|containerStatuses"
    read = re.compile(rf'(get\(|\[)"({lists})"')
    found = {
        str(module.relative_to(ROOT))
        for package in ("vc-egpu/vc_egpu", "device-plugin/vc_egpu_node")
        for module in sorted((ROOT / package).rglob("*.py"))
        if read.search(module.read_text())
    }
    assert [name for name in sorted(found) if not name.endswith(tuple(ALONE))] == []
