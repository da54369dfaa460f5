"""Waiting, applying and reading, for tests that tell a story on a real cluster."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import orjson
import yaml
from localcluster.patience import stretched
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.resources import NODES, PODS, Resource
from vc_egpu.kube.wire.errors import Gone, KubeError, Temporary
from vc_egpu.volcano.api.containers import statuses_of, waiting_of
from vc_egpu.volcano.podspec.way import waits_for_us
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import Cards

Json = dict[str, Any]
T = TypeVar("T")
_SLICE_S = 5.0
"""A watch is opened again at least this often, so that a deadline is noticed."""


class StoryError(AssertionError):
    """What should have happened did not; the text says what was seen instead."""


@dataclass(frozen=True)
class Kit:
    """One administrator's view of one cluster."""

    api: ApiConnection
    kubectl: Callable[..., Any]
    """``LocalCluster.kubectl``."""

    def until(
        self,
        what: str,
        resource: Resource,
        check: Callable[[dict[str, Json]], T | None],
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        timeout_s: float = 60.0,
    ) -> T:
        """Watch objects until ``check`` (name to object) returns something true; returns it.

        Raises :class:`StoryError` with the last state when ``timeout_s`` passes; VC_EGPU_PATIENCE makes it
        longer.
        """
        timeout_s = stretched(timeout_s)
        deadline = time.monotonic() + timeout_s
        objects: dict[str, Json] = {}
        while time.monotonic() < deadline:
            try:
                for objects in self._states(resource, namespace, label_selector, deadline):
                    found = check(objects)
                    if found:
                        return found
            except (Gone, Temporary):
                continue
        trouble = "".join(f"; node {said}" for said in self._nodes_in_trouble())
        raise StoryError(f"{what}: not within {timeout_s:.0f} s; last seen: {_brief(objects)}{trouble}")

    def _nodes_in_trouble(self) -> list[str]:
        """What keeps pods off nodes is the machine's doing, and no object of the story tells of it."""
        try:
            nodes = self.api.list(NODES).items
        except KubeError as error:
            return [f"states are unknown: {error}"]
        return [said for node in nodes if (said := troubles(node))]

    def _states(
        self, resource: Resource, namespace: str | None, label_selector: str | None, deadline: float
    ) -> Iterable[dict[str, Json]]:
        listed = self.api.list(resource, namespace, label_selector=label_selector)
        objects = {_key(item, namespace): item for item in listed.items}
        yield objects
        remaining_s = max(1.0, min(_SLICE_S, deadline - time.monotonic()))
        query: dict[str, str | int | bool | None] = {
            "watch": True,
            "resourceVersion": listed.resource_version,
            "labelSelector": label_selector,
            "timeoutSeconds": int(remaining_s),
        }
        stream = self.api.stream(resource.path(namespace), query, idle_timeout_s=remaining_s + 5)
        try:
            for line in stream.lines():
                event = _event(line)
                if event["type"] == "ERROR":
                    return
                key = _key(event["object"], namespace)
                if event["type"] == "DELETED":
                    objects.pop(key, None)
                else:
                    objects[key] = event["object"]
                yield objects
        finally:
            stream.close()

    def pods_until(
        self, what: str, namespace: str, check: Callable[[dict[str, Json]], T | None], timeout_s: float = 60.0
    ) -> T:
        """:meth:`until` on the pods of one namespace."""
        return self.until(what, PODS, check, namespace=namespace, timeout_s=timeout_s)

    def apply(self, *documents: Json | Path | str) -> str:
        """``kubectl apply`` of documents, YAML texts or files; what kubectl printed."""
        texts = [_text(document) for document in documents]
        done = self.kubectl("apply", "-f", "-", text_in="\n---\n".join(texts))
        return str(done.stdout)

    def refused(self, document: Json | str) -> str:
        """Apply what must be refused; returns the refusal. Raises :class:`StoryError` if it was taken."""
        done = self.kubectl("apply", "-f", "-", text_in=_text(document), check=False)
        if done.returncode == 0:
            raise StoryError(f"was accepted but should have been refused: {_text(document)}")
        return str(done.stderr)


def phase(pod: Json) -> str:
    """A pod's phase."""
    return str((pod.get("status") or {}).get("phase", ""))


def running(pods: dict[str, Json], prefix: str = "") -> list[str]:
    """Names of running pods that are not on their way out."""
    return [name for name, pod in pods.items() if name.startswith(prefix) and is_running(pod)]


def is_running(pod: Json) -> bool:
    """Runs, and is not on its way out."""
    return phase(pod) == "Running" and not pod["metadata"].get("deletionTimestamp")


def is_gated(pod: Json) -> bool:
    """It waits for us: our gate is on it, or nothing else binds it."""
    return waits_for_us(pod["spec"])


def cards_of(pod: Json) -> list[str]:
    """UUIDs of a pod's cards, one entry per share; none before it is admitted."""
    text = (pod["metadata"].get("annotations") or {}).get(names.CARDS)
    if text is None:
        return []
    return [share.uuid for shares in Cards.decode(text).containers.values() for share in shares]


def condition(obj: Json, kind: str) -> Json | None:
    """One condition of an object's status, or None."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((c for c in conditions if c.get("type") == kind), None)


def troubles(node: Json) -> str:
    """Conditions of a node that keep pods off it, with what they say; empty for one that takes pods."""
    said = [
        f"{found['type']}={found['status']} ({found.get('message') or found.get('reason')})"
        for found in (node.get("status") or {}).get("conditions") or ()
        if (found["status"] == "True") != (found["type"] == "Ready")
        if found["type"] in ("Ready", "DiskPressure", "MemoryPressure", "PIDPressure")
    ]
    return f"{node['metadata']['name']}: {', '.join(said)}" if said else ""


def is_true(obj: Json, kind: str) -> bool:
    """Whether an object's status has this condition, and as true."""
    found = condition(obj, kind)
    return found is not None and found.get("status") == "True"


def _text(document: Json | Path | str) -> str:
    if isinstance(document, Path):
        return document.read_text()
    return document if isinstance(document, str) else yaml.safe_dump(document)


def _key(obj: Json, namespace: str | None) -> str:
    metadata = obj["metadata"]
    name = str(metadata["name"])
    return name if namespace or "namespace" not in metadata else f"{metadata['namespace']}/{name}"


def _event(line: bytes) -> Json:
    event: Json = orjson.loads(line)
    return event


def _brief(objects: dict[str, Json]) -> str:
    """Of some objects what they say of themselves: a test that gave up has nothing else to tell."""
    told = []
    for name, obj in sorted(objects.items())[:12]:
        status = obj.get("status") or {}
        waiting = [waiting_of(container) for container in statuses_of(status)]
        sayings = [*(status.get("conditions") or ()), *filter(None, waiting)]
        said = [": ".join(filter(None, (s.get("reason"), s.get("message")))) for s in sayings]
        told.append(f"{name}: {phase(obj)} {said}")
    return "; ".join(told)
