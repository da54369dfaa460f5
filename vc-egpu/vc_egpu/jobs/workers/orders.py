"""Commands for an object: the one to obey now, and its end. Commands of Jobs and of queues go the same way.

A Command is obeyed once, and its deletion is how every later leader knows that. One that the API server does
not let us delete would be obeyed by each leader again. So it is not obeyed at all, and its author is told.
"""

from vc_egpu.jobs.known.cluster import Known, Target
from vc_egpu.kube import ApiConnection, EventRecorder, Json
from vc_egpu.kube.resources import COMMANDS
from vc_egpu.kube.wire.errors import NotFound, Refused
from vc_egpu.volcano.api.command import Command


class Orders:
    """Thread-safe."""

    def __init__(self, api: ApiConnection, known: Known, recorder: EventRecorder) -> None:
        self._api = api
        self._known = known
        self._recorder = recorder

    def first(self, target: Target, about: Json) -> Command | None:
        """The oldest Command for this object that can be obeyed; others are told about it and passed over.

        Raises KubeError if the API server cannot say now whether it lets the Command be deleted. A conflict
        is no end of the Command: the watch will tell, or the next try succeeds.
        """
        while (command := self._known.first_command(target)) is not None:
            try:
                self._delete(command, dry_run=True)
            except NotFound:
                self._forget(command)
            except Refused as refusal:
                text = f"is not obeyed, because it cannot be deleted: {refusal.message}"
                note = f"Command {command.metadata.name} {text}"
                self._recorder.event(about, "Warning", "NotObeyed", note)
                self._forget(command)
            else:
                return command
        return None

    def take_down(self, command: Command) -> None:
        """Delete a Command that was obeyed; raises KubeError."""
        try:
            self._delete(command)
        except NotFound:
            pass
        except Refused:
            self._forget(command)  # it let us try a moment ago; at least this leader obeys it once
            raise
        # The object moves on at once, and the watch may be slow: a Command is obeyed once.
        self._forget(command)

    def _delete(self, command: Command, *, dry_run: bool = False) -> None:
        meta = command.metadata
        self._api.delete(COMMANDS, meta.name, meta.namespace, uid=meta.uid, dry_run=dry_run)

    def _forget(self, command: Command) -> None:
        meta = command.metadata
        self._known.commands.gone((meta.namespace, meta.name), meta.uid)
