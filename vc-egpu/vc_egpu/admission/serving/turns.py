"""One question at a time, from callers that the API server knows, and from none of them too often."""

import logging
import threading
from collections.abc import Callable
from typing import Final

from vc_egpu.admission.serving.callers import BusyError, Callers, Rations, Reader
from vc_egpu.kube.server import Answer, Request
from vc_egpu.kube.wire.errors import KubeError
from vc_egpu.kube.wire.limits import TokenBucket
from vc_egpu.whatif.hypothesis import OutOfTimeError

TURN_S: Final = 5.0
"""How long a question waits for the one before it."""

logger = logging.getLogger(__name__)


class Turns:
    """One page has its own. ``limit``: how often all callers together may ask."""

    def __init__(
        self,
        callers: Callers,
        limit: TokenBucket,
        *,
        page: str,
        questions: str,
        an_answer: str,
        limit_s: float,
    ) -> None:
        """``questions`` and ``an_answer`` are words for the caller. ``limit_s``: the time for one answer."""
        self._callers, self._rations, self._limit = callers, Rations(), limit
        self._page = page
        self._too_many = Answer(429, f"too many {questions}: ask again in some seconds\n".encode())
        late = f"there was no time for {an_answer} within {limit_s:g} s: ask again\n"
        self._too_late = Answer(503, late.encode())
        self._turn = threading.Lock()

    def answer(self, request: Request, told: Callable[[Reader], Answer]) -> Answer:
        """What ``told`` says to this caller in its turn, or why it gets no answer."""
        try:
            reader = self._callers.reader(request)
            if reader is None:
                return Answer(403, b"needs a bearer token that the API server knows\n")
            asks_too_often = not self._rations.try_take(reader) or not self._limit.try_take()
            if asks_too_often or not self._turn.acquire(timeout=TURN_S):
                return self._too_many
            try:
                return told(reader)
            finally:
                self._turn.release()
        except BusyError:
            return self._too_many
        except OutOfTimeError:
            return self._too_late
        except KubeError as error:
            logger.warning("a reader of %s could not be checked: %s", self._page, error)
            return Answer(503, b"the API server cannot say what you may see\n")
