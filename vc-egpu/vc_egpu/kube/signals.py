"""How our processes hear that they have to end.

Python runs a signal handler in the main thread, between any two steps. Suppose the main thread waits on an
Event and holds its lock. A handler that sets this Event would then hang without end. So the handler does
nothing, and a thread hears of the signal through a pipe.
"""

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from typing import Final

ENDING: Final = (signal.SIGTERM, signal.SIGINT)


def when_told_to_end(tell: Callable[[int], None]) -> None:
    """Call ``tell`` with the number of each SIGTERM and SIGINT from now on, on a thread of its own.

    To be called on the main thread; raises ValueError on another one.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in ENDING:
        signal.signal(number, lambda *_: None)

    def listen() -> None:
        while told := os.read(reading, 1):
            if told[0] in ENDING:
                tell(told[0])

    threading.Thread(target=listen, name="signals", daemon=True).start()


async def told_to_end() -> None:
    """Wait for a SIGTERM or SIGINT. For processes that an event loop runs, on the main thread."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in ENDING:
        loop.add_signal_handler(number, stop.set)
    await stop.wait()
