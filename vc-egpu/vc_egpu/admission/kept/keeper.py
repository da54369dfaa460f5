"""One key of the ConfigMap ``vc-egpu-usual-work``: read when a leader begins, written now and then."""

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.resources import CONFIG_MAPS
from vc_egpu.kube.wire.errors import KubeError, LeaseLost, NotFound
from vc_egpu.volcano.words import names

T = TypeVar("T")
AGAIN_S: Final = 30.0
"""A write that failed is tried again after so long."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Form(Generic[T]):
    """How a value is kept."""

    key: str
    encode: Callable[[T], str]
    decode: Callable[[str], T]
    """Raises ``ValueError``."""
    every_s: float
    """It is written so often at most."""
    nothing: T
    """What need not be written where nothing is kept."""
    unread: str
    """What follows where it cannot be read, for the log."""


class Keeper(Generic[T]):
    """Reads and writes one value. Only :meth:`read` blocks."""

    def __init__(self, api: ApiConnection, namespace: str, form: Form[T]) -> None:
        self._api = api
        self._namespace = namespace
        self._form = form
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=form.key)
        self._under_way: Future[bool] | None = None
        self._written: T | None = form.nothing
        self._next_at = 0.0

    def read(self) -> T | None:
        """What an earlier leader kept; None where there is nothing, or nothing that can be read."""
        try:
            document = self._api.get(CONFIG_MAPS, names.USUAL_WORK_CONFIG_MAP, self._namespace)
            text = (document.get("data") or {}).get(self._form.key)
            if not text:
                return None
            self._written = self._form.decode(text)
            return self._written
        except NotFound:
            return None
        except (KubeError, ValueError, AttributeError, TypeError) as error:
            logger.warning("%s: %s", self._form.unread, error)
            return None

    def tick(self, value: T, clock: float) -> None:
        """Write it if it is time to, and if it is another one than was written."""
        if clock < self._next_at or not self.rests():
            return
        if self._under_way is not None and not self._under_way.result():
            self._under_way, self._written, self._next_at = None, None, clock + AGAIN_S
            return
        if value == self._written:
            return
        self._next_at, self._written = clock + self._form.every_s, value
        self._under_way = self._thread.submit(self._write, value)

    def rests(self) -> bool:
        """Whether no write is under way."""
        return self._under_way is None or self._under_way.done()

    def stop(self) -> None:
        """Begin no write any more."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _write(self, value: T) -> bool:
        body = {"data": {self._form.key: self._form.encode(value)}}
        try:
            self._api.patch(CONFIG_MAPS, names.USUAL_WORK_CONFIG_MAP, body, self._namespace)
        except LeaseLost:
            return True
        except KubeError as error:
            logger.warning("%s was not kept for the next leader: %s", self._form.key, error)
            return False
        return True
