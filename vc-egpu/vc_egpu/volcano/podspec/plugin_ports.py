"""Which ports a Volcano Job's plugins open on its pods, before there are any.

A template does not show them. In the host's network they are ports of the node, and one node has room for one
such pod. Facts from Volcano 1.16, pkg/controllers/job/plugins/distributed-framework: pytorch and mpi open
their port on every pod, ray three on the head's container; tensorflow and hcclrank open none.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

_PYTORCH_PORT: Final = 23456
_MPI_PORT: Final = 22
_RAY_PORTS: Final[Mapping[str, int]] = {"port": 6379, "dashboardPort": 8265, "clientPort": 10001}
PLUGINS_WITH_PORTS: Final = ("pytorch", "mpi", "ray")
MOST_ARGUMENTS: Final = 16
"""More than any of these plugins has flags; further ones are not read."""
_MOST_DIGITS: Final = 5
_HIGHEST_PORT: Final = 65535


def plugin_ports(plugins: Mapping[str, Any], task: str, containers: Sequence[str]) -> tuple[int, ...]:
    """The ports that the pods of this task get, each once. ``containers``: names, without init containers.

    ``plugins`` is the Job's ``spec.plugins``, and may hold anything. A port that cannot be
    read is the default.
    """
    ports: dict[int, None] = {}
    if "pytorch" in plugins and containers:
        ports[_port(_flags(plugins["pytorch"]), "port", _PYTORCH_PORT)] = None
    if "mpi" in plugins and containers:
        ports[_port(_flags(plugins["mpi"]), "port", _MPI_PORT)] = None
    if "ray" in plugins:
        flags = _flags(plugins["ray"])
        if task == flags.get("head", "head") and flags.get("headContainer", "head") in containers:
            ports |= {_port(flags, name, usual): None for name, usual in _RAY_PORTS.items()}
    return tuple(ports)


def _flags(arguments: Any) -> dict[str, str]:
    """Flags as Go reads them: one dash or two, the value behind ``=`` or as the next argument."""
    found: dict[str, str] = {}
    words = [str(word) for word in arguments[:MOST_ARGUMENTS]] if isinstance(arguments, list) else []
    for word, following in zip(words, [*words[1:], ""], strict=False):
        if word.startswith("-"):
            name, equals, value = word.removeprefix("-").removeprefix("-").partition("=")
            found[name] = value if equals else following
    return found


def _port(flags: Mapping[str, str], name: str, usual: int) -> int:
    text = flags.get(name, "")
    is_number = text.isdecimal() and len(text) <= _MOST_DIGITS
    return int(text) if is_number and 0 < int(text) <= _HIGHEST_PORT else usual


def with_ports(containers: Iterable[Mapping[str, Any]], ports: Iterable[int]) -> list[Mapping[str, Any]]:
    """The containers, of which the first opens those of these ports that none opens yet."""
    made = list(containers)
    there = {port.get("containerPort") for container in made for port in container.get("ports") or ()}
    new = [{"containerPort": port} for port in ports if port not in there]
    if made and new:
        made[0] = {**made[0], "ports": [*(made[0].get("ports") or ()), *new]}
    return made
