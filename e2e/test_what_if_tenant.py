"""What-if and views of two tenants on a real API server, each with the token of its own service account."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import urllib3
import yaml
from localcluster.api import wait_until
from outcomes.workload import shares
from rigs.foresight import OTHERS, OURS, Json, Town, gang_job, town

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
WORDS: Final = {OURS: (b"zebra", b"quagga", b"kwok"), OTHERS: (b"asking", b"heron", b"kwok")}
"""By tenant, what stands in names of the other one, and of nodes: no byte of an answer has it."""
PORT: Final = 19452
AT_ONCE: Final = 5


@dataclass
class Tenants:
    """The jobs API beside the stack, and a token of each tenant."""

    town: Town
    tokens: dict[str, str]

    def send(self, tenant: str, method: str, path: str, body: Json | None = None) -> tuple[int, bytes]:
        """Status and bytes of the answer."""
        headers = {"Authorization": f"Bearer {self.tokens[tenant]}", "Content-Type": "application/json"}
        answer = urllib3.request(
            method,
            f"http://127.0.0.1:{PORT}{path}",
            body=json.dumps(body).encode() if body is not None else None,
            headers=headers,
            timeout=30,
        )
        return answer.status, answer.data

    def ask(self, tenant: str, job: Json, **more: Any) -> tuple[int, bytes]:
        """What would happen to this Job."""
        return self.send(tenant, "POST", "/v1/what-if", {"job": job, **more})


def rights(tenant: str) -> list[Json]:
    """What a tenant's service account may: Jobs and pods of its namespace, and its queue."""
    subject = {"kind": "ServiceAccount", "name": "runner", "namespace": tenant}
    group = "rbac.authorization.k8s.io"
    rules = [
        {"apiGroups": ["batch.volcano.sh"], "resources": ["jobs"], "verbs": ["create", "get", "list"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
    ]
    queue = {
        "apiGroups": ["scheduling.volcano.sh"],
        "resources": ["queues"],
        "resourceNames": [tenant],
        "verbs": ["use"],
    }
    high = {
        "apiGroups": ["scheduling.k8s.io"],
        "resources": ["priorityclasses"],
        "resourceNames": ["egpu-high"],
        "verbs": ["use"],
    }
    within: Json = {"namespace": tenant}
    made: list[Json] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "runner", "namespace": tenant}}
    ]
    for kind, space, some in (("", within, rules), ("Cluster", {}, [queue, high])):
        metadata: Json = {**space, "name": f"tenant-{tenant}"}
        role = {"apiGroup": group, "kind": f"{kind}Role", "name": metadata["name"]}
        shared = {"apiVersion": f"{group}/v1", "metadata": metadata}
        made.append({**shared, "kind": role["kind"], "rules": some})
        made.append({**shared, "kind": f"{kind}RoleBinding", "roleRef": role, "subjects": [subject]})
    return made


@contextmanager
def jobs_api(here: Town) -> Iterator[None]:
    """As the component starts it, on this machine."""
    cluster = here.stack.cluster
    command = [
        str(Path(sys.executable).with_name("vc-egpu")), "jobs-api", "--plain-http", "--listen", "127.0.0.1",
        "--port", str(PORT), "--metrics-port", "0", "--server", cluster.server,
        "--ca-file", str(cluster.ca_certificate), "--leader", here.leader,
    ]  # fmt: skip
    process = subprocess.Popen(command)

    def answers() -> bool:
        try:
            return bool(
                urllib3.request("GET", f"http://127.0.0.1:{PORT}/healthz", retries=False).status == 200
            )
        except urllib3.exceptions.HTTPError:
            return False

    try:
        wait_until("the jobs API answers", answers, 60)
        yield
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture(scope="module")
def tenants() -> Iterator[Tenants]:
    with town("what-if-tenant") as here:
        tokens = {}
        for tenant in (OURS, OTHERS):
            here.stack.kit.kubectl("apply", "-f", "-", text_in=yaml.safe_dump_all(rights(tenant)))
            told = here.stack.kit.kubectl("create", "token", "runner", "-n", tenant)
            tokens[tenant] = told.stdout.strip()
        with jobs_api(here):
            here.until_runs(here.submit(gang_job("quagga", OTHERS, 4, shares(cards=4), "low")), 4)
            here.until_runs(here.submit(gang_job("heron", OURS, 1, shares(cards=4))), 1)
            here.settle()
            yield Tenants(here, tokens)


def test_each_sees_its_own_and_of_the_other_numbers(tenants: Tenants) -> None:
    for tenant, mine, others in ((OURS, 1, 4), (OTHERS, 4, 1)):
        status, body = tenants.send(tenant, "GET", f"/v1/view?namespaces={OURS},{OTHERS}")
        assert status == 200, body
        assert not [word for word in WORDS[tenant] if word in body], body
        found = json.loads(body)
        assert found["namespaces"] == [tenant]
        cards = [card for node in found["nodes"] for card in node["cards"]]
        assert len(cards) == 24
        assert sum(card["held"]["pods"] for card in cards) == 4 * mine
        assert sum(card["held_by_others"]["pods"] for card in cards) == 4 * others
    assert tenants.send(OURS, "GET", f"/v1/view?namespaces={OTHERS}")[0] == 403


def test_a_tenant_may_ask_for_its_own_namespace_alone(tenants: Tenants) -> None:
    status, body = tenants.ask(OTHERS, gang_job("next", OURS, 1, shares(cards=1)))
    assert status == 403, body


def test_what_is_said_to_a_tenant_comes_true(tenants: Tenants) -> None:
    """Three more members of class high need cards that the other tenant's low gang has."""
    job = gang_job("next", OURS, 3, shares(cards=4), "high")
    status, body = tenants.ask(OURS, job)
    assert status == 200, body
    assert not [word for word in WORDS[OURS] if word in body], body
    said = json.loads(body)
    assert (said["outcome"], said["going"]) == ("makes room", [])
    assert said["going_of_others"]["gangs"] == 1
    before = tenants.town.running()
    tenants.town.until_runs(tenants.town.submit(job), 3)
    after = tenants.town.running()
    assert [key for key in before if after.get(key) != before[key]] == [f"{OTHERS}/quagga"]
    status, body = tenants.ask(OURS, gang_job("more", OURS, 1, shares(cards=4), "high"))
    assert (status, json.loads(body)["outcome"]) == (200, "waits"), "its queue has 16 cards"
    assert not [word for word in WORDS[OURS] if word in body], body


def test_one_tenant_that_asks_often_leaves_questions_for_the_other(tenants: Tenants) -> None:
    began = time.monotonic()
    paths = [tenants.send(OURS, "GET", f"/v1/view?namespaces={OURS}")[0] for _ in range(2 * AT_ONCE)]
    took_s = time.monotonic() - began
    assert paths.count(200) <= AT_ONCE + took_s / 5 + 1, (paths, took_s)
    assert 429 in paths
    assert tenants.send(OTHERS, "GET", f"/v1/view?namespaces={OTHERS}")[0] == 200
