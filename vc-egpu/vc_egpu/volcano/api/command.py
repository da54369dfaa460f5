"""Volcano's Command, ``bus.volcano.sh/v1alpha1``: do this to that Job or Queue, once."""

from enum import StrEnum
from typing import ClassVar, Literal

from vc_egpu.volcano.api.meta import ApiObject, ObjectMeta, OwnerReference


class CommandAction(StrEnum):
    """What a Command may ask for."""

    ABORT_JOB = "AbortJob"
    RESTART_JOB = "RestartJob"
    RESTART_TASK = "RestartTask"
    TERMINATE_JOB = "TerminateJob"
    COMPLETE_JOB = "CompleteJob"
    RESUME_JOB = "ResumeJob"
    OPEN_QUEUE = "OpenQueue"
    CLOSE_QUEUE = "CloseQueue"


class Command(ApiObject):
    """An order to a controller; it deletes the Command when it takes it."""

    api_version: Literal["bus.volcano.sh/v1alpha1"] = "bus.volcano.sh/v1alpha1"
    kind: Literal["Command"] = "Command"
    action: str | None = None
    """One of :class:`CommandAction`; others are dropped by the controllers with an event."""
    target: OwnerReference | None = None
    """The Job or Queue that it is for."""
    reason: str | None = None
    """One word."""
    message: str | None = None
    """A sentence for people."""

    GROUP: ClassVar[str] = "bus.volcano.sh"
    VERSION: ClassVar[str] = "v1alpha1"
    PLURAL: ClassVar[str] = "commands"

    @classmethod
    def to(cls, target: ApiObject, action: CommandAction, *, namespace: str, reason: str = "") -> "Command":
        """A Command for ``target``, with a generated name, owned by it so that it goes with it."""
        reference = OwnerReference(
            api_version=target.api_version,
            kind=target.kind,
            name=target.metadata.name,
            uid=target.metadata.uid,
            controller=True,
        )
        # A namespaced object may be owned by a cluster-wide one, so this is right for queues as well.
        metadata = ObjectMeta(
            generate_name=f"{target.metadata.name}-{action.lower()}-",
            namespace=namespace,
            owner_references=[reference],
        )
        return cls(metadata=metadata, action=action.value, target=reference, reason=reason or None)
