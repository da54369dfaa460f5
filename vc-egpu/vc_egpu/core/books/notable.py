"""Pods that a decision has to look at whoever asks: so few that nobody goes through all pods."""

from vc_egpu.core.model.cluster import Pod, PodPhase, PodUid, SuspensionState


class Notable:
    """Kept up to date pod by pod; dicts, so that they are gone through in the order in which pods came."""

    def __init__(self) -> None:
        self.terminating: dict[PodUid, None] = {}
        self.failed: dict[PodUid, None] = {}
        """Failed members of gangs."""
        self.suspended: dict[PodUid, None] = {}
        """Members told to leave their cards or on their way, and those that users wish to be suspended."""

    def note(self, pod: Pod) -> None:
        """The pod came, or changed; it is not in here."""
        if pod.phase is PodPhase.TERMINATING:
            self.terminating[pod.uid] = None
        elif pod.phase is PodPhase.FAILED and pod.gang is not None:
            self.failed[pod.uid] = None
        elif pod.phase is PodPhase.PLACED and pod.gang is not None:
            on_its_way = pod.suspension is not SuspensionState.RUNNING
            if pod.suspend_ordered or pod.pause_wished or on_its_way:
                self.suspended[pod.uid] = None

    def forget(self, uid: PodUid) -> None:
        """The pod is gone, or changes."""
        self.terminating.pop(uid, None)
        self.failed.pop(uid, None)
        self.suspended.pop(uid, None)
