"""A cluster of any size for the page: nodes with cards, gangs that share them, queues, and some that wait."""

import random
from typing import Any

from unit.cli import documents as docs
from unit.page.cluster_api import ClusterApi
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import Cards, CardShare, ContainerRequest, NodeCard, Request

Json = dict[str, Any]
MODELS = {"h20": 98304, "a100": 81920, "l40s": 49152}
QUEUES = ("research", "serving", "vision", "speech")
NAMES = ("chat", "embed", "train", "finetune", "rank", "ocr", "draw", "eval")


def node(name: str, model: str, cards: int, *, random_: random.Random, held: dict[str, list[str]]) -> Json:
    """``held``: pods by card, as the agent would report them."""
    memory_mib = MODELS[model]
    entries = tuple(
        NodeCard(
            uuid=f"GPU-{name}-{index}",
            index=index,
            model=model,
            memory_mib=memory_mib,
            healthy=(healthy := random_.random() > 0.01),
            reason="" if healthy else "XID 79: the card fell off the bus",
            held=tuple(held.get(f"GPU-{name}-{index}", ())),
        )
        for index in range(cards)
    )
    return node_of(name, entries)


def node_of(name: str, entries: tuple[NodeCard, ...], **metadata: Any) -> Json:
    document = docs.node(name, *entries, **metadata)
    document["metadata"]["uid"] = f"uid-{name}"
    return document


def pod(
    name: str, owner: tuple[str, str], card: tuple[str, str] | None, share: tuple[str, int, int, str]
) -> Json:
    """``owner``: namespace and queue. ``card``: node and UUID. ``share``: model, MiB, cores and class."""
    namespace, queue = owner
    model, memory_mib, cores, share_class = share
    uid = f"uid-{namespace}-{name}"
    ask = ContainerRequest(model=model, cards=1, memory_mib=memory_mib, cores_percent=cores)
    group = name.rpartition("-")[0]
    annotations = {
        names.REQUEST: Request(containers={"main": ask}).encode(),
        names.GROUP_NAME: group,
        names.QUEUE_NAME: queue,
        names.PRIORITY: share_class,
    }
    spec: Json = {"containers": [{"name": "main"}]}
    if card is not None:
        where, uuid = card
        annotations[names.CARDS] = Cards(
            pod_uid=uid, node=where, plan_id="1-1", share_class=share_class,  # type: ignore[arg-type]
            containers={"main": (CardShare(uuid=uuid, memory_mib=memory_mib, cores=cores),)},
        ).encode()  # fmt: skip
        spec["nodeName"] = where
    else:
        spec["schedulingGates"] = [{"name": names.GATE}]
        del annotations[names.PRIORITY]
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {names.MANAGED_LABEL: "true"},
            "annotations": annotations,
        },
        "spec": spec,
        "status": {"phase": "Running" if card else "Pending"},
    }


def group(name: str, namespace: str, queue: str, said: Json, members: int = 1) -> Json:
    document = docs.group(name, queue, said=said, members=members)
    document["metadata"] |= {"namespace": namespace, "uid": f"uid-{namespace}-{name}"}
    return document


def event(name: str, about: str, told: tuple[str, str], at: str) -> Json:
    """``about``: namespace and name of a PodGroup. ``told``: reason and message."""
    namespace, _, group_name = about.partition("/")
    reason, message = told
    return {
        "metadata": {"name": name, "namespace": namespace},
        "reason": reason,
        "message": message,
        "type": "Warning" if reason in {"Preempted", "RolledBack"} else "Normal",
        "eventTime": at,
        "reportingComponent": "vc-egpu-admission",
        "involvedObject": {"kind": "PodGroup", "namespace": namespace, "name": group_name},
    }


def fill(api: ClusterApi, *, nodes: int, cards: int = 8, sharers: float = 0.7, seed: int = 7) -> int:
    """Put a cluster into the API; ``sharers`` is the mean number of pods on a card. Returns the pods."""
    random_ = random.Random(seed)
    pods = 0
    for number in range(nodes):
        model = random_.choices(list(MODELS), (5, 3, 2))[0]
        name = f"{model}-node-{number:04}"
        held: dict[str, list[str]] = {}
        for index in range(cards):
            card, room = f"GPU-{name}-{index}", 100
            for _ in range(_poisson(random_, sharers)):
                part = min(room, random_.choice((10, 20, 25, 50)))
                if part <= 0:
                    break
                room -= part
                queue = random_.choice(QUEUES)
                share_class = random_.choice(("high", "low", "unset"))
                pods += 1
                document = pod(
                    f"{random_.choice(NAMES)}-{pods // 4}-{pods}", (queue, queue), (name, card),
                    (model, MODELS[model] * part // 100, part // 2, share_class),
                )  # fmt: skip
                held.setdefault(card, []).append(document["metadata"]["uid"])
                api.put("pods", document, tell=False)
                key = document["metadata"]["annotations"][names.GROUP_NAME]
                if (queue, key) not in api.kinds["podgroups"]:
                    said = docs.verdict("Admitted", "all members have their cards")
                    api.put("podgroups", group(key, queue, queue, said), tell=False)
        api.put("nodes", node(name, model, cards, random_=random_, held=held), tell=False)
    _queues(api, nodes * cards)
    _waiting(api, max(3, nodes // 50))
    return pods


def _queues(api: ClusterApi, cards: int) -> None:
    for number, name in enumerate(QUEUES):
        document = docs.queue(name, h20=cards, h20_memory=cards * 98304 // 4, a100=cards // 2)
        document["spec"]["deserved"] = {"volcano.sh/vgpu-h20": cards // 4}
        if number == 0:
            document["spec"]["guarantee"] = {"resource": {"volcano.sh/vgpu-h20": cards // 8}}
        api.put("queues", document, tell=False)


def _waiting(api: ClusterApi, count: int) -> None:
    for number in range(count):
        queue, reason, message = (
            ("research", "WaitingForQuota", "asks for 4 vgpu-h20; queue research uses 60 of 62"),
            ("vision", "WaitingForCards", "2 of 8 members would find no card: needs 98304 MiB on h20"),
            ("speech", "WaitingForEviction", "1 gang of queue vision leaves 2 cards"),
        )[number % 3]
        name = f"queued-{number}"
        api.put("podgroups", group(name, queue, queue, docs.verdict(reason, message), 4), tell=False)
        api.put("pods", pod(f"{name}-0", (queue, queue), None, ("h20", 98304, 50, "unset")), tell=False)
        at = f"2026-01-01T00:{number % 60:02}:00.000000Z"
        told = ("Preempted", f"it made room for serving/chat-{number}") if number % 2 else (reason, message)
        api.put("events", event(f"event-{number}", f"{queue}/{name}", told, at), tell=False)


def _poisson(random_: random.Random, mean: float) -> int:
    count, left = 0, random_.expovariate(1.0)
    while left < mean:
        count += 1
        left += random_.expovariate(1.0)
    return count
