"""A new tenant from nothing to its first running Job: one command, and one ``kubectl apply``."""

import time
import uuid

import pytest
import yaml
from outcomes.tenants import ROLES, Person
from outcomes.workload import Task, job, shares
from stack.install import Stack
from stack.kit import is_running
from vc_egpu.kube.resources import NAMESPACES
from vc_egpu.kube.wire.errors import NotFound
from vc_egpu.tenants import document, live

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
READY_S = 60.0
"""The machine may be busy; what it took is printed."""


def left(stack: Stack, name: str) -> list[str]:
    """What there still is of the tenant."""
    head = {"apiVersion": document.API_VERSION, "kind": document.KIND, "metadata": {"name": name}}
    (tenant,) = document.read(yaml.safe_dump(head))
    return [" ".join(key) for key in live.read(stack.kit.api, tenant, ()).objects]


def test_the_first_job_of_a_new_tenant(stack: Stack) -> None:
    """Its roles are there, as on each cluster of the operator's. At the end nothing of it is left."""
    stack.kit.apply(*yaml.safe_load_all(ROLES.read_text()))
    name = f"newcomer-{uuid.uuid4().hex[:4]}"
    began_s = time.monotonic()
    stack.egpu("tenant", "add", name, "--model", "h20=2")
    made_s = time.monotonic()
    try:
        member = Person(stack, name, f"{name}-alice", f"{name}:ml-team")
        text = yaml.safe_dump(job("first", Task(shares(20_480, 50), replicas=2), queue=name))
        done = member.kubectl("apply", "-f", "-", text_in=text)
        assert done.returncode == 0, done.stderr
        stack.kit.pods_until(
            "both members run",
            name,
            lambda pods: len(pods) == 2 and all(map(is_running, pods.values())),
            timeout_s=READY_S,
        )
        ran_s = time.monotonic()
        print(f"tenant add: {made_s - began_s:.1f} s; the Job runs after {ran_s - made_s:.1f} s more")
    finally:
        stack.egpu("tenant", "remove", name, "--evict")
    assert left(stack, name) == []
    with pytest.raises(NotFound):
        stack.kit.api.get(NAMESPACES, name)
