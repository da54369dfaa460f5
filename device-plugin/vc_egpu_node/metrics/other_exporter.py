"""Whether a dcgm-exporter answers on this node. Two exporters of one name make every sum twice as large."""

import http.client
import logging
import threading
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

PORT: Final = 9400
"""dcgm-exporter's own."""
EVERY_S: Final = 60.0
_TIMEOUT_S: Final = 2.0
_ENOUGH_BYTES: Final = 65_536


class OtherExporter:
    """Asks now and then, on a thread of its own."""

    def __init__(self, host: str, port: int = PORT, *, every_s: float = EVERY_S) -> None:
        """``host``: the node's address; empty: nobody is asked."""
        self._address = host, port
        self._every_s = every_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dcgm", daemon=True)
        self.answers = False

    def start(self) -> None:
        """Begin to ask."""
        if self._address[0]:
            self._thread.start()

    def stop(self) -> None:
        """Ask no more."""
        self._stopping.set()

    def look(self) -> None:
        """Ask once."""
        answers = asks_dcgm(*self._address)
        if answers != self.answers:
            who = "answers" if answers else "does not answer any more"
            log.info("a dcgm-exporter %s on port %d of this node", who, self._address[1])
        self.answers = answers

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.look()
            self._stopping.wait(self._every_s)


def asks_dcgm(host: str, port: int) -> bool:
    """Whether that port shows DCGM's names."""
    connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", "/metrics")
        return b"DCGM_FI_DEV_" in connection.getresponse().read(_ENOUGH_BYTES)
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def shown(names: str, exporter: Callable[[], bool]) -> bool:
    """Whether this page has DCGM's names; ``names``: auto, on or off."""
    return names == "on" or (names == "auto" and not exporter())
