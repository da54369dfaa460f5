"""From the first version that told the whole story to the present one, under load; then removal.

Both by the commands of docs/operator.md, on a cluster of its own.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml
from image.build import build as build_image
from localcluster import ClusterSpec, LocalCluster
from outcomes import disturb
from outcomes.busy import RESTART_ON_FAILURE, held, load
from outcomes.release import NoHistoryError, Release, image_of
from outcomes.submitter import Submitter
from outcomes.workload import Json, Task, job, shares
from outcomes.world import World, world
from stack.fakes import nvml_state
from stack.install import NAMESPACE, OVERLAY, Stack
from stack.kit import is_gated, is_running
from stack.removal import CLUSTER_WIDE, gated, listed, of_ours, remove
from vc_egpu.kube.resources import DAEMON_SETS, DEPLOYMENTS, NODES, VOLCANO_JOBS

FIRST: Final = "7c2385d25334400faf21aeaced3fc56f70d21a43"
"""The first version that passed the demo."""
pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """The first version, built."""
    try:
        return Release.build(FIRST, "0.1.0-first", tmp_path_factory.mktemp("release") / "first")
    except NoHistoryError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def old_stack(first: Release) -> Iterator[Stack]:
    """A cluster with the first version on it."""
    with LocalCluster.up(ClusterSpec(name="upgrade", images=(str(first.archive),)), print) as cluster:
        stack = Stack.of(cluster)
        for node in cluster.nodes:
            stack.put_cards(node, nvml_state(node.name, 4))
        cluster.kubectl("apply", "--server-side", "-k", str(first.overlay))
        stack.wait_ready({node.name: 4 for node in cluster.nodes})
        yield stack


def upgrade(stack: Stack) -> None:
    """As docs/operator.md says."""
    stack.kit.kubectl("delete", "priorityclass", "egpu-low", "--ignore-not-found")
    stack.kit.kubectl("apply", "--server-side", "-k", str(OVERLAY))
    for kind in ("deployment", "daemonset"):
        for name in stack.kit.kubectl("get", kind, "-n", NAMESPACE, "-o", "name").stdout.split():
            stack.kit.kubectl("rollout", "status", name, "-n", NAMESPACE, "--timeout=110s")


def test_upgrade_under_load_and_removal(old_stack: Stack, first: Release) -> None:
    with world(old_stack, "upgrade") as here:
        load(here)
        before, waiting = held(here), here.uids("large") | here.uids("capped")
        assert len(before) == 11
        assert waiting
        here.check()
        old_objects = of_ours(listed(here.stack, CLUSTER_WIDE))
        here.stack.cluster.import_image(build_image(print).archive)
        # Agents of the first version leave without a word, and kubelets refuse pods meanwhile: such Jobs
        # restart, on a busy machine more than three times.
        with Submitter(here, RESTART_ON_FAILURE, max_retry=20) as submitter:
            upgrade(here.stack)
            during = submitter.done
            here.until(
                "two more are done by the new version",
                "",
                lambda _: submitter.done > during + 1 or submitter.failures,
                180,
            )
        print(f"{during} Jobs were done during the upgrade")
        assert during
        assert not submitter.failures, "\n".join(submitter.failures)
        assert runs_the_present_image(here.stack, first)
        disturb.wait_all_well(here.stack)
        assert held(here) == before, "all shares are kept, and nobody was restarted"
        assert here.uids("large") | here.uids("capped") == waiting
        here.check()
        goes_on(here)
        check_nothing_is_left_over(here.stack, old_objects)
        removal(here)


def documents(stack: Stack, overlay: Path) -> list[Json]:
    return [
        found for found in yaml.safe_load_all(stack.kit.kubectl("kustomize", str(overlay)).stdout) if found
    ]


def runs_the_present_image(stack: Stack, first: Release) -> bool:
    workloads = {"Deployment", "DaemonSet"}
    old = {image_of(item) for item in documents(stack, first.overlay) if item["kind"] in workloads}
    found = {
        image_of(item)
        for resource in (DEPLOYMENTS, DAEMON_SETS)
        for item in stack.kit.api.list(resource, NAMESPACE).items
    }
    return len(old) == len(found) == 1 and old != found


def goes_on(here: World) -> None:
    """What waited under the first version is admitted by the present one; gangs of the first are victims."""
    retries = here.kit.api.get(VOLCANO_JOBS, "train", here.namespace)["status"].get("retryCount", 0)
    here.submit(job("urgent", Task(shares(60_000, 50), replicas=6, priority="high"), queue=here.queue))
    here.runs("urgent", 6)
    here.waits("train", "WaitingForCards")
    here.delete("vcjob", "urgent")
    here.runs("large", 5)  # before training of low priority
    here.delete("vcjob", "large")
    here.runs("train", 6)
    after = here.kit.api.get(VOLCANO_JOBS, "train", here.namespace)["status"].get("retryCount", 0)
    assert after == retries
    here.scale("web", 0)
    here.runs("capped", 2)
    here.check()


def check_nothing_is_left_over(stack: Stack, old: set[str]) -> None:
    """What the first version had and the present one has not would stay for ever: `apply` removes nothing."""
    present = {f"{item['kind']}/{item['metadata']['name']}" for item in documents(stack, OVERLAY)}
    own = {name for name in old if "upgrade" not in name}  # the test's own roles have its namespace's name
    assert own - present == set()


def removal(here: World) -> None:
    """A gang runs, one waits, a service runs: nothing of ours stays, and no pod is stuck."""
    here.delete("vcjob", "capped")
    here.scale("web", 2)
    here.runs("web", 2)
    here.submit(job("more", Task(shares(), replicas=9), queue=here.queue))
    here.waits("more", "WaitingForCards")
    assert any(map(is_gated, here.pods("more").values()))
    web = here.uids("web")
    done = remove(here.stack, "local")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert of_ours(listed(here.stack, CLUSTER_WIDE)) == set()
    assert f"Namespace/{NAMESPACE}" not in listed(here.stack, "namespaces")
    assert not [name for name in listed(here.stack, "crd") if "volcano.sh" in name]
    for node in here.kit.api.list(NODES).items:
        offered = node["status"]["allocatable"]
        assert {k: v for k, v in offered.items() if "volcano.sh" in k and str(v) != "0"} == {}
    assert gated(here.stack) == []
    here.until(
        "the Jobs' pods are gone, and the service's run on",
        "",
        lambda pods: (
            {found["metadata"]["uid"] for found in pods.values() if is_running(found)} >= web
            and not [name for name, found in pods.items() if found["metadata"].get("deletionTimestamp")]
        ),
    )
    assert here.uids("web") == web
    here.over = True
