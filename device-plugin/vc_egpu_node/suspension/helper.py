"""How ``egpu-checkpoint`` is run: in a short-lived privileged pod of its own, or as a program by the agent.

The agent itself has no privilege to touch other processes. The pod is made from a PodTemplate that the
operator installs. An admission policy ensures that an agent makes only such pods, and only on its own node.
One annotation says what the pod is to do.
"""

import json
import logging
import os
import secrets
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from vc_egpu.kube import ApiConnection
from vc_egpu.kube.resources import POD_TEMPLATES, PODS
from vc_egpu.kube.wire.errors import KubeError, NotFound, Refused
from vc_egpu.volcano.codec.suspension import SUSPEND_SIGNALS
from vc_egpu.volcano.words import names

from vc_egpu_node.api.pods import TERMINAL, NodePods
from vc_egpu_node.suspension.machine import Process

log = logging.getLogger(__name__)

MAX_PROCESSES: Final = 128
TEMPLATE: Final = "vc-egpu-checkpoint"
"""Name of the PodTemplate, and of its pods' label ``app.kubernetes.io/name``."""
PATIENCE_S: Final = 30.0
"""Beyond the pod's own deadline."""
BEGIN_S: Final = 45.0
"""A helper's pod that has not begun by then is given up, such as one whose image cannot be pulled. The pod
that it helps waits with its launches all the time, and an order is taken back after a minute."""
SWEEP_S: Final = 120.0
END_S: Final = 90.0
"""A helper that is told to end takes back what it began."""
LOOK_AGAIN_S: Final = 0.05
STATES: Final = frozenset({"none", "gone", "running", "locked", "checkpointed", "failed"})
Verb = Literal["suspend", "resume", "state"]
Json = dict[str, Any]


class HelperError(RuntimeError):
    """It gave no answer: what it did is not known."""


class NotBegunError(RuntimeError):
    """It could not be started: nothing was done."""


class NotNowError(RuntimeError):
    """Something was done, or may have been; it cannot be gone on with, or asked about, now."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the helper said."""

    done: bool
    error: str = ""
    states: Mapping[int, str] = field(default_factory=dict)
    """By PID."""

    @property
    def all_running(self) -> bool:
        """Nothing is locked or on the host."""
        return all(state in ("none", "gone", "running") for state in self.states.values())

    @property
    def stuck(self) -> bool:
        """Some process can neither run nor come back."""
        return "failed" in self.states.values()


@dataclass(frozen=True, slots=True)
class Drain:
    """How a program comes to rest between two steps."""

    signal: str
    """One of :data:`SUSPEND_SIGNALS`."""
    ms: int
    """It has so long."""


class Helper(Protocol):
    """One way to run it."""

    def run(
        self, verb: Verb, processes: Sequence[Process], lock_ms: int, drain: Drain | None = None
    ) -> Answer:
        """Wait for its end; raises one of the errors above."""

    def sweep(self) -> None:
        """See the end of what an earlier agent left behind."""

    def stop(self) -> None:
        """The agent ends: stop waiting. What runs is left to the next agent."""


def words(verb: Verb, processes: Sequence[Process], lock_ms: int, drain: Drain | None = None) -> str:
    """Its arguments as one text."""
    if len(processes) > MAX_PROCESSES:
        raise NotBegunError(f"{len(processes)} processes, the helper takes {MAX_PROCESSES}")
    named = (f"{pid}:{start}" for pid, start in processes)
    how: tuple[str, ...] = ()
    if drain is not None:
        if drain.signal not in SUSPEND_SIGNALS:
            raise NotBegunError(f"{names.SUSPEND_SIGNAL} is {drain.signal[:32]!r}")
        how = ("--signal", drain.signal.removeprefix("SIG"), "--drain-ms", str(max(1, drain.ms)))
    return " ".join((verb, "--lock-ms", str(max(1, lock_ms)), *how, *named))


def parse(text: str) -> Answer:
    """Its one line; raises :class:`HelperError`."""
    try:
        document = json.loads(text)
        if document["version"] != 1:
            raise ValueError(f"version {document['version']!r}")
        states = {int(pid): str(state) for pid, state in document["states"].items()}
        if not STATES.issuperset(states.values()):
            raise ValueError(f"states {sorted(set(states.values()))}")
        return Answer(document["ok"] is True, str(document["error"]), states)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise HelperError(f"its answer cannot be read: {error}: {text[:200]!r}") from error


class ProgramHelper:
    """Runs it directly: for agents that are root on the host, and for tests."""

    def __init__(self, program: Path, library: str = "", timeout_s: float = 600.0) -> None:
        self._program = program
        self._library = library
        self._timeout_s = timeout_s

    def run(
        self, verb: Verb, processes: Sequence[Process], lock_ms: int, drain: Drain | None = None
    ) -> Answer:
        """See :meth:`Helper.run`."""
        library = ["--library", self._library] if self._library else []
        command = [str(self._program), *library, "--words", words(verb, processes, lock_ms, drain)]
        try:
            ran = subprocess.run(
                command, capture_output=True, text=True, timeout=self._timeout_s, check=False, env=os.environ
            )
        except OSError as error:
            raise NotBegunError(str(error)) from error
        except subprocess.TimeoutExpired as error:
            raise HelperError(str(error)) from error
        return parse(ran.stdout)

    def sweep(self) -> None:
        """An agent that ends in good order waits for its programs."""

    def stop(self) -> None:
        """See :meth:`Helper.stop`; a program is waited for."""


class PodHelper:
    """Runs it in a pod on this node."""

    def __init__(
        self,
        api: ApiConnection,
        *,
        node: str,
        namespace: str,
        pods: NodePods,
        results: Path,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``results``: where the pods leave their answers, on the host and here; without it they are heard
        when the kubelet tells of their end."""
        self._results = results
        self._api = api
        self._node = node
        self._namespace = namespace
        self._pods = pods
        self._clock = clock
        self._changed = threading.Condition()
        self._stopping = False
        self._lost: set[str] = set()
        """Pods that may be there though no call waits for them."""

    def poke(self) -> None:
        """Some pod of this node changed."""
        with self._changed:
            self._changed.notify_all()

    def run(
        self, verb: Verb, processes: Sequence[Process], lock_ms: int, drain: Drain | None = None
    ) -> Answer:
        """See :meth:`Helper.run`."""
        self._end_lost()
        name = f"{TEMPLATE}-{secrets.token_hex(6)}"
        try:
            template = self._api.get(POD_TEMPLATES, TEMPLATE, self._namespace)
            body = self._pod(template, name, words(verb, processes, lock_ms, drain))
            deadline_s = float(body["spec"].get("activeDeadlineSeconds") or 0) + PATIENCE_S
        except KubeError as error:
            raise NotBegunError(f"PodTemplate {TEMPLATE} could not be read: {error}") from error
        try:
            self._api.create(PODS, body)
        except Refused as error:
            raise NotBegunError(f"the helper's pod could not be made: {error}") from error
        except KubeError as error:  # it may be there all the same
            self._lose(name)
            raise NotNowError(f"the helper's pod could not be made: {error}") from error
        try:
            return parse(self._message(name, deadline_s))
        except HelperError:
            self._lose(name)
            raise
        finally:
            if not self._stopping:
                self._delete(name)
                self._forget(name)

    def stop(self) -> None:
        """See :meth:`Helper.stop`."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def sweep(self) -> None:
        """End the helpers' pods of an earlier agent. They are waited for first, since their work is mostly
        still wanted. A helper that is told to end takes back what it began."""
        left = {pod.name for pod in self._pods.views() if self._is_ours(pod.namespace, pod.name)}
        for name in left:
            log.warning("pod %s of an earlier agent is waited for", name)
        with self._changed:
            self._lost |= left
        try:
            self._wait(lambda: all(self._has_ended(name) for name in left), SWEEP_S)
            self._end_lost()
            for path in self._results.glob(f"{TEMPLATE}-*"):
                self._forget(path.name)
        except (NotBegunError, NotNowError) as error:
            log.warning("%s", error)

    def _end_lost(self) -> None:
        """These first: two helpers must not work on the same processes."""
        with self._changed:
            lost = set(self._lost)
        for name in sorted(lost):
            self._delete(name)
        if not self._wait(lambda: all(self._document(name) is None for name in lost), END_S):
            raise NotBegunError(f"an earlier helper has not ended: {', '.join(sorted(lost))}")
        with self._changed:
            self._lost -= lost

    @property
    def lost(self) -> frozenset[str]:
        """Names of helpers' pods that may still run though their answer is not waited for."""
        with self._changed:
            return frozenset(self._lost)

    def _lose(self, name: str) -> None:
        with self._changed:
            self._lost.add(name)

    def _is_ours(self, namespace: str, name: str) -> bool:
        return namespace == self._namespace and name.startswith(f"{TEMPLATE}-")

    def _pod(self, template: Json, name: str, text: str) -> Json:
        inner = template["template"]
        metadata = {
            "name": name,
            "namespace": self._namespace,
            "labels": dict((inner.get("metadata") or {}).get("labels") or {}),
            "annotations": {names.CHECKPOINT: text},
        }
        spec = {**inner["spec"], "nodeName": self._node}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def _message(self, name: str, timeout_s: float) -> str:
        """What the container left behind when it ended."""
        last: Json = {}

        def ended() -> bool:
            nonlocal last
            document = self._document(name)
            if document is None and _told_to_end(last):  # its containers went first, unlike with force
                return True
            last = document or last
            return bool(self._answer(name)) or _is_over(document)

        if not self._wait(lambda: ended() or _has_begun(last), BEGIN_S):
            self._delete(name)
        if not self._wait(ended, timeout_s):
            raise HelperError(f"pod {name} has not ended after {timeout_s:.0f} s")
        answer = self._answer(name)
        if answer:
            return answer
        status = last.get("status") or {}
        for container in status.get("containerStatuses") or ():
            state = container.get("state") or {}
            ended_as = state.get("terminated") or {}
            if ended_as.get("message"):
                return str(ended_as["message"])
            if ended_as:
                raise HelperError(
                    f"pod {name}: {ended_as.get('reason')}, exit code {ended_as.get('exitCode')}"
                )
            if "running" in state:  # the node went down with it
                raise HelperError(f"pod {name}: {status.get('phase')} while it ran")
        if not _has_begun(last):  # nor does it any more: its end was told after its containers'
            raise NotBegunError(f"pod {name} did not begin{_waits_for(last)}")
        if not _is_over(last):
            raise HelperError(f"pod {name} was deleted before it answered")
        raise NotBegunError(f"pod {name}: {status.get('phase')} before it could begin")

    def _answer(self, name: str) -> str:
        """The whole line, or nothing yet."""
        try:
            text = (self._results / name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return ""
        return text if text.endswith("\n") else ""

    def _forget(self, name: str) -> None:
        try:
            (self._results / name).unlink(missing_ok=True)
        except OSError as error:
            log.warning("the answer of pod %s was not removed: %s", name, error)

    def _has_ended(self, name: str) -> bool:
        document = self._document(name)
        return document is None or _is_over(document)

    def _document(self, name: str) -> Json | None:
        return self._pods.reflector.get(name, self._namespace)

    def _wait(self, done: Callable[[], bool], timeout_s: float) -> bool:
        """Whether it came true in time; raises :class:`NotNowError` when the agent ends."""
        until = self._clock() + timeout_s
        with self._changed:
            while not done():
                if self._stopping:
                    raise NotNowError("the agent ends")
                left = until - self._clock()
                if left <= 0:
                    return False
                self._changed.wait(min(left, LOOK_AGAIN_S))
        return True

    def _delete(self, name: str) -> None:
        try:
            self._api.delete(PODS, name, self._namespace)
        except NotFound:
            pass
        except KubeError as error:
            self._lose(name)
            log.warning("pod %s is not deleted yet: %s", name, error)


class SweptOnce:
    """A helper for two suspenders: what an earlier agent left behind has ended before either works."""

    def __init__(self, helper: Helper) -> None:
        self._helper = helper
        self._lock = threading.Lock()
        self._swept = False

    def run(
        self, verb: Verb, processes: Sequence[Process], lock_ms: int, drain: Drain | None = None
    ) -> Answer:
        """See :meth:`Helper.run`."""
        return self._helper.run(verb, processes, lock_ms, drain)

    def sweep(self) -> None:
        """By the first who asks; the other one waits for that."""
        with self._lock:
            if not self._swept:
                self._helper.sweep()
            self._swept = True

    def stop(self) -> None:
        """See :meth:`Helper.stop`."""
        self._helper.stop()


def _is_over(pod: Json | None) -> bool:
    return pod is not None and (pod.get("status") or {}).get("phase") in TERMINAL


def _has_begun(pod: Json) -> bool:
    """Whether a container of it may have run."""
    return bool(pod) and (pod.get("status") or {}).get("phase") not in (None, "", "Pending")


def _waits_for(pod: Json) -> str:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    waits = (((one.get("state") or {}).get("waiting") or {}).get("reason") for one in statuses)
    return "".join(f": {reason}" for reason in waits if reason)


def _told_to_end(pod: Json) -> bool:
    return "deletionTimestamp" in (pod.get("metadata") or {})
