"""Queues on a cluster without Volcano: state (by Commands), number of gangs by phase, what those use.

Next to Volcano's controllers without vc-scheduler, what they use alone.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from vc_egpu.jobs.known.cluster import Known, Target
from vc_egpu.jobs.known.pods import CachedPod
from vc_egpu.jobs.objects import requests
from vc_egpu.jobs.objects.podgroups import queue_of
from vc_egpu.jobs.work import QUEUE_SETTLE_S
from vc_egpu.jobs.workers.orders import Orders
from vc_egpu.kube import ApiConnection, EventRecorder, Json, Key, key_of
from vc_egpu.kube.resources import QUEUES
from vc_egpu.kube.wire.errors import Conflict, NotFound
from vc_egpu.volcano.api.command import Command, CommandAction
from vc_egpu.volcano.api.podgroup import PodGroupPhase
from vc_egpu.volcano.api.queue import QueueState
from vc_egpu.volcano.words.payer import payer

logger = logging.getLogger(__name__)

_REST_TIMES: Final = 9.0
"""A count may take one tenth of a processor: so many times its length comes before the next one."""
_COUNTED = ("pending", "inqueue", "running", "unknown", "completed")


def next_state(present: str | None, action: str | None, gangs: int) -> QueueState:
    """The state of a queue after an order (if any), with this many gangs in it."""
    if action == CommandAction.OPEN_QUEUE.value:
        return QueueState.OPEN
    wanted = action == CommandAction.CLOSE_QUEUE.value or present in {"Closing", "Closed"}
    if wanted:
        return QueueState.CLOSING if gangs else QueueState.CLOSED
    return QueueState.OPEN


def queue_status(
    old: Mapping[str, Any], state: QueueState, groups: list[Json], used: requests.Amounts
) -> Json:
    """The new status; fields that we do not know stay as they are."""
    phases = Counter(
        str((group.get("status") or {}).get("phase") or PodGroupPhase.PENDING.value).lower()
        for group in groups
    )
    counts = {name: phases[name] for name in _COUNTED}
    used = {name: amount for name, amount in used.items() if amount}
    return {**old, "state": state.value, **counts, "allocated": requests.render(used)}


class QueueWorker:
    """Looks at queues."""

    def __init__(
        self,
        api: ApiConnection,
        known: Known,
        recorder: EventRecorder,
        *,
        use_only: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
        processor_s: Callable[[], float] = time.thread_time,
    ) -> None:
        """``use_only``: Volcano's controllers keep all of the status but for what the queue uses.

        ``processor_s``: seconds that this thread has had of the processor.
        """
        self._api = api
        self._use_only = use_only
        self._known = known
        self._recorder = recorder
        self._orders = Orders(api, known, recorder)
        self._monotonic, self._processor_s = monotonic, processor_s
        self._rests: dict[Key, float] = {}
        """By queue, until when its pods are not counted again."""

    def look(self, key: Key) -> float | None:
        """Bring the status of one queue up to date, and obey Commands for it.

        The count takes all pods of the queue. With 20,000 of them, counts at each change took more than half
        of the process. So a rest follows each long count, unless a Command waits.
        """
        queue, name = self._known.queues.get(key), key[1]
        if queue is None:
            self._rests.pop(key, None)
            return None
        command = None if self._use_only else self._command(queue)
        rest_s = self._rests.get(key, 0.0) - self._monotonic()
        if rest_s > 0 and command is None:
            return rest_s
        began_s = self._processor_s()
        gangs, pods = self._counted(name)
        used = requests.total(pod.requested for pod in pods if pod.occupies)
        rest_s = _REST_TIMES * (self._processor_s() - began_s)
        self._rests[key] = self._monotonic() + (rest_s if rest_s > QUEUE_SETTLE_S else 0.0)
        if self._use_only:
            self._write_use(queue, requests.render({name: amount for name, amount in used.items() if amount}))
            return None
        old = queue.get("status") or {}
        state = next_state(old.get("state"), command.action if command is not None else None, len(gangs))
        status = queue_status(old, state, gangs, used)
        if status != old:
            answer = self._api.update_status(QUEUES, {**queue, "status": status})
            self._known.queues.put(answer)
        if command is not None:
            self._take_down(queue, command, state)
            return 0.0  # there may be another
        return None

    def _write_use(self, queue: Json, used: Mapping[str, str]) -> None:
        """``used``: by resource, as a quantity."""
        status = queue.get("status") or {}
        if used == (status.get("allocated") or {}):
            return
        # Volcano writes the other fields. Where it was first, the watch asks for another look.
        try:
            answer = self._api.update_status(QUEUES, {**queue, "status": {**status, "allocated": used}})
            self._known.queues.put(answer)
        except (NotFound, Conflict):
            logger.debug("queue %s is gone or another one", queue["metadata"]["name"])

    def _counted(self, name: str) -> tuple[list[Json], list[CachedPod]]:
        """PodGroups that count to this queue, and all pods that do: the caps count them by the same rule.

        Pods whose PodGroup is not there count to the queue that they were checked for.
        """
        checked = self._known.pods.by("checked", name)
        keys = {pod.group_key for pod in checked if pod.group_key is not None}
        keys |= {key_of(group) for group in self._known.groups.by("queue", name)}
        pods = [pod for pod in checked if pod.group_key is None]
        gangs: list[Json] = []
        for key in sorted(keys):
            group, members = self._known.groups.get(key), self._known.pods.by("group", key)
            if group is None:
                pods += [pod for pod in members if pod.checked == name]
            elif payer(queue_of(group), (pod.checked for pod in members)) == name:
                gangs.append(group)
                pods += members
        return gangs, pods

    def _command(self, queue: Json) -> Command | None:
        metadata = queue["metadata"]
        target = Target("Queue", "", metadata["name"], metadata["uid"])
        return self._orders.first(target, queue)

    def _take_down(self, queue: Json, command: Command, state: QueueState) -> None:
        known = command.action in {CommandAction.OPEN_QUEUE.value, CommandAction.CLOSE_QUEUE.value}
        if known:
            self._recorder.event(queue, "Normal", str(command.action), f"the queue is {state.value}")
        else:
            text = f"Command {command.metadata.name}: there is no action {command.action!r} for a Queue"
            self._recorder.event(queue, "Warning", "UnknownAction", text)
        self._orders.take_down(command)
