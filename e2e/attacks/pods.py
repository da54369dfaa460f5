"""Attempts by what a pod or a Job says."""

from typing import Final

from vc_egpu.kube.resources import PODS, VOLCANO_JOBS

from attacks.requests import (
    DOMAIN,
    GATED,
    GROUP,
    MINE,
    OTHERS,
    QUEUE,
    SHARE,
    Attack,
    Json,
    Try,
    act,
    container,
    create,
    job,
    patch,
    pod,
    tries,
)

_PRIVILEGED: Final = {"privileged": True}
_FORGED: Final = ("cards", "plan", "request", "suspend")
_CHANGED: Final = (*_FORGED, "pause", "group-unseen")
_HOST_PATHS: Final = ("/dev", "/var/lib/kubelet/device-plugins", "/var/run/cdi", "/var/lib/vc-egpu")
_BINDING: Final = {
    "apiVersion": "v1",
    "kind": "Binding",
    "metadata": {"name": "mine-0"},
    "target": {"name": "n1"},
}
_PLAIN: Final = {"spec": {"containers": [container()], "restartPolicy": "Never"}}
_OTHER_CARDS: Final = (
    *("nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "huawei.com/Ascend910", "hygon.com/dcunum"),
    "volcano.sh/vgpu-number",
)
_TWO_CARDS: Final = {"vgpu_h20": 2, "vgpu_memory": 64}
_LARGE: Final = {
    "name": "w",
    "replicas": 2049,
    "template": {"spec": {"containers": [container(limits=SHARE)], "restartPolicy": "Never"}},
}
_AMOUNTS: Final = ("-1", "1e30", "0.5", "99999999999999999999")


def _with_path(path: str, **limits: int) -> dict[str, object]:
    volumes = [{"name": "v", "hostPath": {"path": path}}]
    return pod(container(limits=limits), volumes=volumes)


def _forged(name: str) -> Try:
    body = pod(annotations={f"{DOMAIN}/{name}": "{}"})
    return create(PODS, body, "W", says="metadata.annotations")


def _low_job_with_high_template() -> dict[str, object]:
    template = {
        "metadata": {"annotations": {f"{DOMAIN}/priority": "high"}},
        "spec": {"containers": [container(limits=SHARE)], "restartPolicy": "Never"},
    }
    found = job(template=template)
    found["metadata"]["annotations"] = {f"{DOMAIN}/priority": "low"}
    return found


_ANYWHERE: Final[Json] = {"tolerations": [{"operator": "Exists"}]}
_NATIVE: Final[Json] = {**_ANYWHERE, "nodeSelector": {f"{DOMAIN}/card-mode": "native"}}
_LOW_PRIORITY: Final = {f"{DOMAIN}/priority": "high"}

ATTACKS: Final = (
    Attack(
        1,
        "a privileged pod with a share",
        tries([pod(container(limits=SHARE, securityContext=_PRIVILEGED))], "WS", says="privileged"),
    ),
    Attack(
        2,
        "the host's processes, IPC or network with a share",
        tries([pod(hostPID=True), pod(hostIPC=True), pod(hostNetwork=True)], "WS"),
    ),
    Attack(
        3,
        "host paths: devices, the kubelet's sockets, CDI folder, the agent's state",
        (
            *tries([_with_path(path, **SHARE) for path in _HOST_PATHS], "WS"),
            *tries([_with_path(path) for path in _HOST_PATHS], "S"),
        ),
    ),
    Attack(
        4,
        "RuntimeClass `nvidia` without a share",
        tries([pod(container(), runtimeClassName="nvidia")], "P", says="opens cards that nobody was given"),
    ),
    Attack(
        8,
        "forged cards, plan, request or order at creation",
        tuple(map(_forged, _FORGED)),
    ),
    Attack(
        9,
        "the same annotations patched onto a pod that is there",
        tuple(
            patch(PODS, "mine-0", {"metadata": {"annotations": {f"{DOMAIN}/{name}": "{}"}}}, "P")
            for name in _CHANGED
        ),
    ),
    Attack(
        10,
        "the gate lifted, or the managed label taken off",
        (
            patch(PODS, GATED, {"spec": {"schedulingGates": None}}, "P", says="lifted by the admission"),
            patch(PODS, "mine-0", {"metadata": {"labels": {f"{DOMAIN}/managed": None}}}, "P"),
        ),
    ),
    Attack(
        11,
        "a pod bound to a node: by its spec, by a Binding",
        (
            create(PODS, pod(nodeName="n1"), "W", says="spec.nodeName"),
            act(
                PODS.path(MINE, "mine-0", "binding"),
                {
                    "apiVersion": "v1",
                    "kind": "Binding",
                    "metadata": {"name": "mine-0"},
                    "target": {"name": "n1"},
                },
                "R",
            ),
        ),
    ),
    Attack(
        12,
        "a scheduler of its own",
        tries([pod(schedulerName="mallory-scheduler")], "W", says="spec.schedulerName"),
    ),
    Attack(
        17,
        "a class of the system, or one that evicts",
        tries(
            [pod(priorityClassName=name) for name in ("system-node-critical", "pushy")],
            "W",
            says="spec.priorityClassName",
        ),
    ),
    Attack(
        18,
        "`high` without the right; a `high` template under a `low` Job",
        (
            create(PODS, pod(annotations=_LOW_PRIORITY), "W", says='may not use priority "high"'),
            create(VOLCANO_JOBS, _low_job_with_high_template(), "W", says='may not use priority "high"'),
            create(PODS, pod(container(), priorityClassName=f"{DOMAIN.split('.')[0]}-high"), "Q"),
        ),
    ),
    Attack(
        20,
        "tolerations and selectors for a native or another's node",
        tries(
            [
                pod(container(limits={"gpu_h20": 1}), **_NATIVE),
                pod(container(limits={"vgpu_t4": 1, "vgpu_memory": 1024}), **_ANYWHERE),
                pod(container(limits={"vgpu_h20": 5, "vgpu_memory": 1024}), **_NATIVE),
            ],
            "W",
        ),
    ),
    Attack(
        21,
        "several containers above the cap together; cards of an init container",
        (
            create(PODS, pod(*(container(f"c{i}", _TWO_CARDS) for i in range(3))), "W"),
            create(PODS, pod(container(), initContainers=[container("i", SHARE)]), "W"),
        ),
    ),
    Attack(
        22,
        "cards of another plugin, with a share or instead",
        (
            *tries([pod(container(limits={name: 1})) for name in _OTHER_CARDS], "Q", says="exceeded quota"),
            *tries([pod(container(limits={**SHARE, "nvidia.com/gpu": 1}))], "WQ"),
        ),
    ),
    Attack(
        36,
        "thousands of Jobs, 100 KiB of annotations, a gang of 2,049",
        (
            create(VOLCANO_JOBS, job(template=_PLAIN), "Q", says="count/jobs.batch.volcano.sh"),
            create(PODS, pod(annotations={"a": "x" * 100_000}), "W", says="bytes in all"),
            create(VOLCANO_JOBS, job(tasks=[_LARGE]), "W", says="2049 members"),
        ),
    ),
    Attack(
        39,
        "a mirror pod's annotation, to pass for a static pod",
        (
            create(PODS, pod(annotations={"kubernetes.io/config.mirror": "x"}), "K", down="F"),
            create(PODS, pod(annotations={"kubernetes.io/config.mirror": "x"}, nodeName="n1"), "W"),
        ),
    ),
    Attack(
        45,
        "amounts that overflow, are negative, broken or in another unit",
        (
            *tries([pod(container(limits={"vgpu_h20": 1, "vgpu_memory": raw})) for raw in _AMOUNTS], "W"),
            *tries([pod(container(limits={"vgpu_h20": raw})) for raw in _AMOUNTS], "W"),
            create(PODS, pod(container(limits={"vgpu_h20": 1, "vgpu_memory": "4Gi"})), "W", says="4096"),
        ),
    ),
    Attack(
        46,
        "a template without totals and label, applied over the one that was admitted",
        (patch(VOLCANO_JOBS, "mine", {"spec": {"tasks": job()["spec"]["tasks"]}}, "="),),
    ),
    Attack(
        47,
        "a pod that joins a gang of another owner, by annotation and by owner",
        (
            create(PODS, pod(annotations={GROUP: "gang"}), "W", says="belongs to"),
            create(PODS, pod(annotations={GROUP: "train"}), "W", says="does not exist"),
        ),
    ),
    Attack(
        13,
        "the queue of another tenant: by a pod, a Job, the namespace",
        (
            create(PODS, pod(annotations={QUEUE: OTHERS}), "W", says="may not use queue"),
            create(VOLCANO_JOBS, job(queue=OTHERS), "W", says="may not use queue"),
            patch(VOLCANO_JOBS, "mine", {"spec": {"queue": OTHERS}}, "W", says="may not use queue"),
        ),
    ),
)
