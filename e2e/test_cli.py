"""`kubectl egpu` and the image, on the shared stack."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from stack.install import NAMESPACE, Stack
from stack.kit import condition, phase
from vc_egpu.kube.resources import POD_GROUPS, QUEUES
from vc_egpu.volcano.words.names import CONDITION_ADMITTED

EXAMPLES = Path(__file__).resolve().parents[1] / "manifests" / "examples"
STORY = "cap-waits"
PLACE = f"ex-{STORY}"
pytestmark = pytest.mark.cluster


@pytest.fixture
def tenants(stack: Stack) -> Iterator[Stack]:
    """The namespace and queue of one example, without its Jobs."""
    folder = str(EXAMPLES / STORY)
    stack.kit.kubectl("apply", "-k", folder, "-l", "egpu-example/step=0")
    try:
        yield stack
    finally:
        stack.egpu("stop-admitting", "--all", "--undo")
        stack.kit.kubectl("delete", "-k", folder, "--ignore-not-found", "--timeout=90s", check=False)


def submit(stack: Stack) -> None:
    stack.kit.kubectl("apply", "-k", str(EXAMPLES / STORY), "-l", "egpu-example/step=1")


def all_run(stack: Stack) -> None:
    stack.kit.pods_until("all run", PLACE, lambda pods: [phase(p) for p in pods.values()] == ["Running"] * 4)


def test_stop_admitting_holds_everything_until_undone(tenants: Stack) -> None:
    tenants.egpu("stop-admitting", "--all")
    submit(tenants)

    def held(groups: dict[str, dict[str, object]]) -> bool:
        said = [condition(group, CONDITION_ADMITTED) for group in groups.values()]
        return bool(said) and all(one is not None and "stopped" in one["message"] for one in said)

    tenants.kit.until("the gang waits for the operator", POD_GROUPS, held, namespace=PLACE)
    assert "stopped by the operator" in tenants.egpu("why", "train-a", "-n", PLACE)
    tenants.egpu("stop-admitting", "--all", "--undo")
    all_run(tenants)


def test_a_closed_queue_takes_nothing_and_opens_again(tenants: Stack) -> None:
    queue = f"{PLACE}-research"
    submit(tenants)
    all_run(tenants)
    told = json.loads(tenants.egpu("stop-admitting", queue, "-n", PLACE, "-o", "json"))
    assert [(one["queue"], one["done"]) for one in told] == [(queue, True)]
    refused = tenants.kit.kubectl(
        "apply", "-k", str(EXAMPLES / STORY), "-l", "egpu-example/step=2", check=False
    )
    assert refused.returncode != 0
    assert "clos" in refused.stderr.lower()
    all_run(tenants)  # what ran goes on
    tenants.egpu("stop-admitting", queue, "--undo", "-n", PLACE)
    tenants.kit.until(
        "the queue is open",
        QUEUES,
        lambda queues: (queues[queue].get("status") or {}).get("state") == "Open",
    )


def test_reports_count_in_the_same_units(tenants: Stack) -> None:
    submit(tenants)
    all_run(tenants)
    shares = [
        share
        for card in json.loads(tenants.egpu("cards", "-o", "json"))["cards"]
        for share in card["sharers"]
        if share["pod"].startswith(f"{PLACE}/")
    ]
    assert [(share["memory_mib"], share["cores_percent"]) for share in shares] == [(49152, 50)] * 4
    (row,) = json.loads(tenants.egpu("queues", f"{PLACE}-research", "-o", "json"))["queues"]
    used = {amount["resource"]: (amount["used"], amount["cap"]) for amount in row["amounts"]}
    assert used == {
        "volcano.sh/vgpu-h20": (4, 6),
        "volcano.sh/vgpu-h20-memory": (4 * 49152, 6 * 98304),
        "volcano.sh/vgpu-h20-cores": (200, 600),
    }
    assert row["admitted"] == 1


def test_a_misspelt_job_gets_the_near_name(tenants: Stack) -> None:
    submit(tenants)
    all_run(tenants)
    with pytest.raises(AssertionError, match="did you mean train-a"):
        tenants.egpu("why", "trian-a", "-n", PLACE)


EVERY_MODULE = """
import importlib, os, pkgutil, sys
import vc_egpu, vc_egpu_node
assert os.getuid() == 65532, os.getuid()
assert not os.path.exists('/bin/sh')
names = [m.name for p in (vc_egpu, vc_egpu_node) for m in pkgutil.walk_packages(p.__path__, p.__name__ + '.')]
for name in names:
    if not name.endswith('__main__'):
        importlib.import_module(name)
try:
    open('/usr/written', 'w')
except OSError:
    print(len(names))
"""


def test_the_image_holds_what_every_module_imports(stack: Stack) -> None:
    """And runs it without root, without a shell, and without writing to its file system."""
    done = stack.kit.kubectl(
        "exec", "-n", NAMESPACE, "deployment/vc-egpu-webhook", "--", "python3", "-I", "-c", EVERY_MODULE
    )
    assert int(done.stdout) > 50
