"""What a process has from whoever called it, and what nodes and clients of a cluster must not depend on."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Mapping, MutableMapping
from types import FrameType

_THIS_MACHINE = ("localhost", "127.0.0.1")


def interruptible() -> None:
    """What ends a program raises KeyboardInterrupt from now on, so that it takes down what it started."""
    # SIGINT too: a shell starts background jobs with it ignored.
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, _interrupted)
    # Ignored by nohup only, whose user wants it so.
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _interrupted)


def _interrupted(signum: int, _frame: FrameType | None) -> None:
    if signum == signal.SIGHUP:
        # Said again once the shell of a closed terminal has ended, while things are being taken down.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    raise KeyboardInterrupt


def usual_umask() -> None:
    """That of a machine's own services, whoever calls: containers read what nodes find or make."""
    os.umask(0o022)


def ask_directly(addresses: Iterable[str], environment: MutableMapping[str, str] = os.environ) -> None:
    """This process and what it starts reach these addresses, and this machine, past a proxy of the user's."""
    environment.update(without_proxy(addresses, environment))


def without_proxy(addresses: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Variables to set, in both spellings, since programs differ in which they read; none without a proxy."""
    if not any(key.lower() in {"http_proxy", "https_proxy", "all_proxy"} for key in environment):
        return {}
    said = ",".join(environment.get(key, "") for key in ("no_proxy", "NO_PROXY")).split(",")
    names = dict.fromkeys(name.strip() for name in (*said, *_THIS_MACHINE, *addresses))
    value = ",".join(name for name in names if name)
    return {"no_proxy": value, "NO_PROXY": value}
