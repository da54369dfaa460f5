"""``kubectl egpu stop-admitting``: what runs goes on, nothing new starts.

With ``--all`` it is the operator's switch, a ConfigMap that the admission controller watches. With names it
closes those queues, by a Command as Volcano's own tool sends it: that is for tenant admins too.
"""

import contextlib
import difflib
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from vc_egpu.core.model.words import few
from vc_egpu.kube import ApiConnection, Json
from vc_egpu.kube.resources import COMMANDS, CONFIG_MAPS, QUEUES
from vc_egpu.kube.wire.errors import NotFound, Temporary
from vc_egpu.volcano.api.command import Command, CommandAction
from vc_egpu.volcano.api.queue import Queue
from vc_egpu.volcano.words import names

POLL_S = 0.5
SWITCH_KEY = "stopAdmitting"
_MAX_NAMED = 20


class UnknownQueueError(LookupError):
    """A queue that was named does not exist; the text names what is near."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one queue."""

    queue: str
    before: str
    after: str
    done: bool


def state_of(queue: Json) -> str:
    """Open, Closing, Closed or Unknown."""
    return str((queue.get("status") or {}).get("state") or "Open")


def set_switch(api: ApiConnection, *, stopped: bool) -> Outcome:
    """Write the operator's switch; returns what it was and what it is."""
    data = {SWITCH_KEY: "true" if stopped else "false"}
    try:
        old = api.get(CONFIG_MAPS, names.SWITCHES_CONFIG_MAP, names.SYSTEM_NAMESPACE)
    except NotFound:
        before = "false"
        metadata = {"name": names.SWITCHES_CONFIG_MAP, "namespace": names.SYSTEM_NAMESPACE}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        api.create(CONFIG_MAPS, body, names.SYSTEM_NAMESPACE)
    else:
        before = (old.get("data") or {}).get(SWITCH_KEY, "false")
        api.patch(CONFIG_MAPS, names.SWITCHES_CONFIG_MAP, {"data": data}, names.SYSTEM_NAMESPACE)
    words = {"true": "Stopped"}
    return Outcome(
        "(all)", words.get(before, "Admitting"), words.get(data[SWITCH_KEY], "Admitting"), done=True
    )


def choose(queues: Sequence[Json], wanted: Iterable[str]) -> list[Json]:
    """The queues meant; raises :class:`UnknownQueueError`."""
    by_name = {str(queue["metadata"]["name"]): queue for queue in queues}
    chosen = []
    for name in wanted:
        if name not in by_name:
            near = difflib.get_close_matches(name, list(by_name), 1)
            hint = (
                f"; did you mean {near[0]}?"
                if near
                else f"; there are {few(sorted(by_name), _MAX_NAMED) or 'none'}"
            )
            raise UnknownQueueError(f"queue {name!r} does not exist{hint}")
        chosen.append(by_name[name])
    return chosen


def reached(state: str, action: Literal["close", "open"]) -> bool:
    """Whether a queue in this state already does what is asked. A closing queue takes nothing new."""
    return state in ({"Closed", "Closing"} if action == "close" else {"Open"})


def run(
    api: ApiConnection,
    queues: Sequence[Json],
    action: Literal["close", "open"],
    namespace: str,
    timeout_s: float,
) -> list[Outcome]:
    """Send a Command for each queue that is not there yet, and wait until its controller has taken it."""
    command_action = CommandAction.CLOSE_QUEUE if action == "close" else CommandAction.OPEN_QUEUE
    orders: list[Json] = []
    for queue in queues:
        if not reached(state_of(queue), action):
            # Its identity will do: a later Volcano may have written the rest.
            target = Queue.parse({"metadata": queue["metadata"]})
            command = Command.to(target, command_action, namespace=namespace, reason="kubectl egpu")
            orders.append({"apiVersion": command.api_version, "kind": command.kind, **command.document()})
    for order in orders if len(orders) > 1 else ():  # a user who may not close all of them closes none
        api.create(COMMANDS, order, namespace, dry_run=True)
    for order in orders:
        api.create(COMMANDS, order, namespace)
    deadline = time.monotonic() + timeout_s
    outcomes: list[Outcome] = []
    for queue in queues:
        name = str(queue["metadata"]["name"])
        after = state_of(queue)
        while not reached(after, action) and time.monotonic() < deadline:
            time.sleep(POLL_S)
            with contextlib.suppress(Temporary):  # the order stands, and the answer may still come
                after = state_of(api.get(QUEUES, name))
        outcomes.append(Outcome(name, state_of(queue), after, reached(after, action)))
    return outcomes
