"""The chart on a real cluster: installed, upgraded under load, changed, rolled back, removed."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from localcluster import ClusterSpec, LocalCluster, toolchain
from localcluster.errors import LocalClusterError
from outcomes import disturb
from outcomes.busy import RESTART_ON_FAILURE, held, load
from outcomes.release import NoHistoryError, Release, image_of
from outcomes.submitter import Submitter
from outcomes.workload import Task, job, shares
from outcomes.world import World, world
from stack.fakes import nvml_state
from stack.helm import CHART, HelmRelease
from stack.install import NAMESPACE, Stack, stack_images
from stack.kit import is_running
from stack.removal import CLUSTER_WIDE, gated, left_on_hosts, listed, of_ours
from vc_egpu.kube.resources import DAEMON_SETS, DEPLOYMENTS, NODES, VOLCANO_JOBS
from vc_egpu.volcano.words import names

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(1500)]
CRDS: Final = {
    "CustomResourceDefinition/commands.bus.volcano.sh",
    "CustomResourceDefinition/hypernodes.topology.volcano.sh",
    "CustomResourceDefinition/jobs.batch.volcano.sh",
    "CustomResourceDefinition/podgroups.scheduling.volcano.sh",
    "CustomResourceDefinition/queues.scheduling.volcano.sh",
}
"""These stay on purpose: with them would go all Jobs and Queues of all tenants."""
JOBS: Final = ("train", "infer", "large", "capped")
OLD_TAG: Final = "0.1.0-before"


@pytest.fixture(scope="module", autouse=True)
def _helm() -> None:
    try:
        toolchain.program("helm")
    except LocalClusterError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """The commit before the present one: its image and its chart."""
    try:
        return Release.build("HEAD~1", OLD_TAG, tmp_path_factory.mktemp("release") / "before")
    except NoHistoryError as error:
        pytest.skip(f"no commit before this one in a shallow clone: {error}")


@contextmanager
def cluster_of(name: str, images: tuple[str, ...], folder: Path) -> Iterator[HelmRelease]:
    """Two nodes with four fake cards each, and nothing of ours on the cluster yet."""
    with LocalCluster.up(ClusterSpec(name=name, images=images), print) as cluster:
        stack = Stack.of(cluster)
        for node in cluster.nodes:
            stack.put_cards(node, nvml_state(node.name, 4))
        yield HelmRelease(stack, folder / "helm")


def ready(release: HelmRelease) -> None:
    release.stack.wait_ready({node.name: 4 for node in release.stack.cluster.nodes})


def images(stack: Stack) -> set[str]:
    """The images that our workloads name."""
    return {
        image_of(item)
        for resource in (DEPLOYMENTS, DAEMON_SETS)
        for item in stack.kit.api.list(resource, NAMESPACE).items
    }


@contextmanager
def nobody_notices(here: World) -> Iterator[None]:
    """Small Jobs go on, all running pods keep their cards, and what waits is the same."""
    before, waiting = held(here), here.uids("large") | here.uids("capped")
    with Submitter(here, RESTART_ON_FAILURE, max_retry=20) as submitter:
        yield
        during = submitter.done
        here.until(
            "two more are done afterwards",
            "",
            lambda _: submitter.done > during + 1 or submitter.failures,
            180,
        )
    assert not submitter.failures, "\n".join(submitter.failures)
    disturb.wait_all_well(here.stack)
    assert held(here) == before, "all shares are kept, and nobody was restarted"
    assert here.uids("large") | here.uids("capped") == waiting
    here.check()


def admission_arguments(stack: Stack) -> list[str]:
    found = stack.kit.api.get(DEPLOYMENTS, "vc-egpu-admission", NAMESPACE)
    arguments: list[str] = found["spec"]["template"]["spec"]["containers"][0]["args"]
    return arguments


def test_upgrade_from_the_commit_before_and_removal(before: Release, tmp_path: Path) -> None:
    both = (str(before.archive), *stack_images())
    with cluster_of("helm-up", both, tmp_path) as release:
        release.install(before.folder / "manifests/helm/vc-egpu", f"--set=image.tag={OLD_TAG}")
        ready(release)
        old = images(release.stack)
        with world(release.stack, "helm-up") as here:
            load(here)
            assert len(held(here)) == 11
            with nobody_notices(here):
                release.upgrade(CHART, "--set=image.tag=0.1.0")
            assert images(here.stack).isdisjoint(old)
            assert [one["status"] for one in release.history()] == ["superseded", "deployed"]
            kept = of_ours(listed(here.stack, CLUSTER_WIDE))
            assert kept <= release.objects(), "Helm takes what the new chart has no more"
            removal(here, release)


def test_values_change_and_change_back_and_it_is_installed_again(tmp_path: Path) -> None:
    with cluster_of("helm", stack_images(), tmp_path) as release:
        release.install(CHART)
        ready(release)
        told = json.loads(release.stack.egpu("doctor", "-o", "json"))
        assert told["verdict"] != "fail", told["findings"]  # it warns of nodes without limits
        with world(release.stack, "helm") as here:
            load(here)
            with nobody_notices(here):
                release.upgrade(CHART, "--set=nodeEmptying=true", "--set=closedRuntimeClass=true")
                assert "--defrag-empty-nodes" in admission_arguments(here.stack)
                release.rollback(1)
            assert "--defrag-empty-nodes" not in admission_arguments(here.stack)
            assert not {name for name in listed(here.stack, "clusterroles") if "node-emptying" in name}
            removal(here, release)
            # The same release again: it takes the CRDs over, and finds what runs.
            kept = held(here)
            release.install(CHART)
            ready(release)
            here.over = False
            assert held(here) == kept
            here.submit(job("again", Task(shares(1000, 1), replicas=2), queue=here.queue))
            here.runs("again", 2)
            # Nodes were cleaned, so no agent has files of what runs since before. It counts all the same.
            here.check(containers=False)
            for kind, name in (*(("vcjob", one) for one in JOBS), ("deployment", "web"), ("pod", "alone")):
                here.delete(kind, name)


def removal(here: World, release: HelmRelease) -> None:
    """What runs goes on, nothing waits at our gate, and only what is named stays."""
    running = {found["metadata"]["uid"] for found in here.pods().values() if is_running(found)}
    assert running
    done = release.remove()
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    here.over = True
    stack = here.stack
    assert of_ours(listed(stack, CLUSTER_WIDE)) == set()
    assert f"Namespace/{NAMESPACE}" not in listed(stack, "namespaces")
    assert {name for name in listed(stack, "crd") if "volcano.sh" in name} == CRDS
    told = done.stdout + done.stderr
    assert all(name.rpartition("/")[2] in told for name in CRDS), "Helm names what it keeps"
    assert gated(stack) == []
    assert left_on_hosts(stack) == []
    for node in here.kit.api.list(NODES).items:
        metadata: dict[str, Any] = node["metadata"]
        assert names.NODE_CARDS not in (metadata.get("annotations") or {})
        assert not [label for label in metadata["labels"] if "egpu.volcano.sh" in label]
    assert here.kit.api.get(VOLCANO_JOBS, "train", here.namespace), "tenants' Jobs stay with their CRD"
    after = {found["metadata"]["uid"] for found in here.pods().values() if is_running(found)}
    assert running <= after, "what ran goes on"
    with pytest.raises(AssertionError, match="not found"):
        release.run("status", "vc-egpu")
