"""A tenant's document: what is refused, with which path, and what a document says by itself."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from vc_egpu.tenants.document import API_VERSION, DocumentError, Tenant, parse_document, read

HEAD = f"apiVersion: {API_VERSION}\nkind: Tenant\nmetadata: {{name: research}}\n"
OTHER = HEAD.replace("research", "b")


def refusal(spec: str, head: str = HEAD) -> str:
    with pytest.raises(DocumentError) as raised:
        read(f"{head}spec: {spec}\n", "research.yaml")
    return str(raised.value)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("{model: {}}", "spec.model: there is no such field; did you mean models?"),
        (
            "{models: {h20: {shares: -1}}}",
            "spec.models.h20.shares: Input should be greater",
        ),
        ("{models: {h20: {shares: 1.5}}}", "spec.models.h20.shares:"),
        ("{models: {h20: {shares: true}}}", "spec.models.h20.shares:"),
        ("{models: {h20: {shares: '4'}}}", "spec.models.h20.shares:"),
        ("{models: {h20: {memoryMib: 4}}}", "did you mean memoryMiB?"),
        ("{models: {H20: {shares: 1}}}", "spec.models.H20:"),
        ("{models: {h20: {shares: 1, deserved: {shares: 2}}}}", "deserved.shares: 2 is above the cap of 1"),
        (
            "{models: {h20: {shares: 1, cards: 1, guarantee: {cards: 2}}}}",
            "guarantee.cards: 2 is above",
        ),
        ("{quota: {cpu: 4x}}", "spec.quota.cpu: '4x' is not a quantity"),
        ("{quota: {memory: -1Gi}}", "spec.quota.memory: -1Gi is below 0"),
        ("{quota: {memory: 1e30}}", "spec.quota.memory:"),
        ("{containers: {cpu: {request: 2, max: 1}}}", "spec.containers.cpu: request 2 is above max 1"),
        (
            "{containers: {nvidia.com/gpu: {request: 1}}}",
            "spec.containers.nvidia.com/gpu: there is no",
        ),
        ("{network: {profile: closed}}", "spec.network.profile: Input should be 'isolated'"),
        ("{network: {to: [10.0.0.1/8]}}", "spec.network.to.0: is no range of addresses"),
        ("{parent: research}", "spec.parent: 'research' is the tenant's own queue"),
        ("{queue: root}", "spec.queue: is a queue of Volcano's own"),
        ("{namespace: kube-system}", "spec.namespace: is a namespace of the system's"),
        ("{groups: {team: ['system:authenticated']}}", "spec.groups.team.0: is no group of one tenant's"),
        (
            "{limits: {maxCards: 2}}",
            "spec.limits.maxCards: there is no such field; did you",
        ),
        ("{limits: {maxCardsPerPod: 0}}", "spec.limits.maxCardsPerPod:"),
        ("{highPods: many}", "spec.highPods:"),
        ("[]", "spec:"),
    ],
)
def test_a_fault_is_refused_with_its_path(spec: str, said: str) -> None:
    assert said in refusal(spec)
    assert refusal(spec).startswith("research.yaml: spec")


@pytest.mark.parametrize(
    "name",
    [
        *("", "Vision", "a/b", "-a", "a-", "9a", "a b", "a&b", "default", "root", "a" * 41),
        *("kube-system", "kube-public", "openshift-x", "vc-egpu-system", "volcano-system"),
    ],
)
def test_a_bad_name_is_refused(name: str) -> None:
    with pytest.raises(DocumentError):
        parse_document({"apiVersion": API_VERSION, "kind": "Tenant", "metadata": {"name": name}})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "there is no document in it"),
        ("a: [", "not YAML"),
        ("- 1", "is no document"),
        ("kind: Queue\napiVersion: v1", "is 'v1 Queue', not egpu.volcano.sh/v1 Tenant"),
        (f"{HEAD}---\n{HEAD}", "have one name, 'research'"),
        (
            f"{HEAD}---\n{HEAD.replace('research', 'b')}spec: {{queue: research}}\n",
            "have one queue, 'research'",
        ),
    ],
)
def test_what_is_no_tenant_is_refused(text: str, said: str) -> None:
    with pytest.raises(DocumentError, match="file") as raised:
        read(text, "file")
    assert said in str(raised.value)


def test_all_faults_are_told_at_once() -> None:
    lines = refusal("{models: {h20: {shares: -1}}, quota: {cpu: x}, weight: 0}").splitlines()
    assert [line.split(": ")[1] for line in lines] == [
        "spec.models.h20.shares",
        "spec.weight",
        "spec.quota.cpu",
    ]


def test_a_name_alone_is_a_tenant_with_its_own_queue_namespace_and_groups() -> None:
    (tenant,) = read(HEAD)
    assert (tenant.namespace, tenant.queue, tenant.team, tenant.admins) == (
        "research",
        "research",
        ("research:ml-team",),
        ("research:admin",),
    )
    assert tenant.document()["spec"] == {}


@given(
    shares=st.integers(0, 10**6),
    cores=st.none() | st.integers(0, 10**6),
    high=st.integers(0, 50),
    profile=st.sampled_from(["isolated", "internet", "open"]),
    cpu=st.sampled_from([None, "4", "1500m", "1k"]),
)
def test_what_is_written_down_is_read_again(
    shares: int, cores: int | None, high: int, profile: str, cpu: str | None
) -> None:
    spec = {
        "models": {"h20": {"shares": shares, "cores": cores}},
        "highPods": high,
        "network": {"profile": profile},
        "quota": {"cpu": cpu},
    }
    raw = {"apiVersion": API_VERSION, "kind": "Tenant", "metadata": {"name": "a"}, "spec": spec}
    tenant = parse_document(raw)
    assert parse_document(tenant.document()) == tenant
    assert parse_document(yaml.safe_load(tenant.encode())) == tenant


def test_tools_may_write_more_metadata() -> None:
    (tenant,) = read(HEAD.replace("{name: research}", "{name: research, labels: {team: a}}"))
    assert isinstance(tenant, Tenant)
