"""What the API server did not take during one look: people are told at once, and the look goes on.

A refusal may stay so for ever: an admission policy, a quota, a field that is not valid. The look fails at its
end, so it is tried again after a growing while, and what could be done stands.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from vc_egpu.jobs.objects.services import InTheWay
from vc_egpu.kube import EventRecorder, Json
from vc_egpu.kube.wire.errors import KubeError, NotFound, Refused, Unavailable

WRITE_REFUSED: Final = "WriteRefused"
FAILED_CREATE: Final = "FailedCreate"


class Refusals:
    """Those of one look."""

    def __init__(self, recorder: EventRecorder, about: Json) -> None:
        """``about``: the object that the events are on."""
        self._recorder = recorder
        self._about = about
        self._first: KubeError | None = None

    @contextmanager
    def told(self, reason: str = WRITE_REFUSED) -> Iterator[None]:
        """Tell a refusal of the writes within, and raise it: nothing may be done without them."""
        try:
            yield
        except KubeError as error:
            if is_refusal(error):
                self._recorder.event(self._about, "Warning", reason, error.message)
            raise

    @contextmanager
    def kept(self, reason: str = WRITE_REFUSED) -> Iterator[None]:
        """Tell a refusal of the writes within, and go on; :meth:`raise_first` raises it."""
        try:
            with self.told(reason):
                yield
        except KubeError as error:
            if not is_refusal(error):
                raise
            self._first = self._first or error

    def raise_first(self) -> None:
        """Raise the first refusal that was kept, if there is one."""
        if self._first is not None:
            raise self._first


def is_refusal(error: KubeError) -> bool:
    """Whether the API server answered that it does not do this, while other writes may go through.

    Also where a user's webhook does not answer it, and where a place or a kind is not there (404).
    """
    if isinstance(error, InTheWay | Refused | NotFound):
        return True
    return isinstance(error, Unavailable) and bool(error.status)
