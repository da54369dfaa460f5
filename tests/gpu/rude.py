"""Ordinary programs that a library around the driver can spoil, on a real card."""

import subprocess
from collections.abc import Mapping
from typing import Any, Final

from gpu.standalone import BUILD, ON_FAKE, Node, Running, ready

MEMORY_MIB: Final = 2048
RUN_S: Final = 2 if ON_FAKE else 10


def rude(node: Node, name: str | None, *words: object, **environment: str) -> Running:
    """A program of tests/rude_actor.c, which loads the same kernels as the others."""
    process = subprocess.Popen(
        [BUILD / "rude-actor", *map(str, words)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=node.environment(name) | environment, start_new_session=True,
    )  # fmt: skip
    one = Running(process, None)
    node.running.append(one)
    ready(process)
    one.begin()
    return one


def said_by(node: Node, name: str | None, *words: object) -> dict[str, Any]:
    """What it says at its end."""
    return rude(node, name, *words).result(120)


def boxes(node: Node, **shares: Mapping[str, Any]) -> None:
    """Containers with these shares."""
    for name, share in shares.items():
        node.add(name, MEMORY_MIB, **share)
