"""A control daemon of MPS as NVIDIA's pages describe it, as far as ours asks it: its program, and programs
that run under it.

``-f``: the daemon. Without arguments: what stands on stdin is asked, and the answers are printed. A program
under it is a connection that says ``client UID PID``: it is told ``ready``, ``not-ready``, ``fault`` or
``terminated``. One that says ``fault`` ends all programs of its server. That server takes no new ones until
all have left. Programs of another user wait until the server has none left."""

import os
import selectors
import socket
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

FIRST_SERVER = 3_000_000


class FakeDaemon:
    """One thread. What has ended is seen before anything new is heard."""

    def __init__(self, pipe: Path) -> None:
        self.door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.door.bind(str(pipe / "control"))
        self.door.listen(64)
        self.pipe = pipe
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.door, selectors.EVENT_READ, None)
        self.clients: dict[socket.socket, tuple[int, int]] = {}
        self.waiting: dict[socket.socket, tuple[int, int]] = {}
        self.server, self.user, self.status = 0, -1, ""
        self.next_server = FIRST_SERVER
        self.over = False

    def run(self) -> None:
        (self.pipe / "nvidia-cuda-mps-control.pid").write_text(f"{os.getpid()}\n")
        while not self.over:
            ready = [key for key, _ in self.selector.select()]
            for key in sorted(ready, key=lambda one: one.fileobj is self.door):
                if key.fileobj is self.door:
                    self.selector.register(self.door.accept()[0], selectors.EVENT_READ, b"")
                else:
                    self.heard(key.fileobj, key.data)
        (self.pipe / "control").unlink()

    def heard(self, line: Any, before: bytes) -> None:
        try:
            more = line.recv(4096)
        except ConnectionError:
            more = b""
        if not more:
            self.left(line)
            return
        *commands, rest = (before + more).split(b"\n")
        self.selector.modify(line, selectors.EVENT_READ, rest)
        for command in commands:
            self.said(line, command.decode())

    def left(self, line: Any) -> None:
        self.selector.unregister(line)
        line.close()
        self.waiting.pop(line, None)
        if self.clients.pop(line, None) and not self.clients:
            if self.status == "FAULT":
                self.status = "ACTIVE"
            for other, who in list(self.waiting.items()):
                del self.waiting[other]
                self.joins(other, *who)

    def joins(self, line: Any, user: int, pid: int) -> None:
        if self.status == "FAULT":
            line.sendall(b"not-ready\n")
            return
        if self.clients and user != self.user:
            self.waiting[line] = (user, pid)
            return
        if not self.server or user != self.user:
            self.server, self.user, self.status = self.next_server, user, "ACTIVE"
            self.next_server += 1
        self.clients[line] = (user, pid)
        line.sendall(b"ready\n")

    def said(self, line: Any, text: str) -> None:
        word, *rest = text.split()
        if word == "client":
            self.joins(line, int(rest[0]), int(rest[1]))
        elif word == "fault":
            self.status = "FAULT"
            for other in self.clients:
                other.sendall(b"fault\n")
        else:
            answers: dict[str, Callable[[], str]] = {
                "get_server_list": lambda: f"{self.server}\n" if self.server else "",
                "get_server_status": lambda: f"{self.status}\n" if [str(self.server)] == rest else "",
                "get_client_list": lambda: "".join(f"{pid}\n" for _, pid in self.clients.values()),
                "terminate_client": lambda: self.terminate(int(rest[1])),
                "quit": self.quit,
            }
            said = answers.get(word, lambda: f"Unknown command: {word}\n")()
            line.sendall(said.encode() + b"\0")

    def terminate(self, pid: int) -> str:
        for line, (_, own) in list(self.clients.items()):
            if own == pid:
                line.sendall(b"terminated\n")
                del self.clients[line]
        return ""

    def quit(self) -> str:
        self.over = True
        return ""


ASKING = """
import os, sys
from _socket import AF_UNIX, SOCK_STREAM, socket

for command in filter(None, sys.stdin.read().splitlines()):
    line = socket(AF_UNIX, SOCK_STREAM)
    try:
        line.connect(os.environ["CUDA_MPS_PIPE_DIRECTORY"] + "/control")
    except OSError:
        sys.exit("Cannot find MPS control daemon process")
    line.sendall(command.encode() + b"\\n")
    said = b""
    while not said.endswith(b"\\0") and (more := line.recv(4096)):
        said += more
    sys.stdout.write(said.rstrip(b"\\0").decode())
"""
"""The program without arguments. It is started very often, so it loads as little as it can."""


class Program:
    """One under the daemon of a card, as its container sees it."""

    def __init__(self, pipe: Path, pid: int, user: int = 0) -> None:
        self.line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.line.settimeout(60)
        self.line.connect(str(pipe / "control"))
        self.told = self.line.makefile("rb")
        self.line.sendall(f"client {user} {pid}\n".encode())

    def hears(self) -> str:
        return self.told.readline().decode().strip()

    def fault(self) -> None:
        self.line.sendall(b"fault\n")

    def end(self) -> None:
        self.told.close()
        self.line.close()


def installed(folder: Path) -> str:
    """The program, as an image has it."""
    path, asking = folder / "nvidia-cuda-mps-control", folder / "asking.py"
    asking.write_text(ASKING)
    python = f'exec "{sys.executable}" -S -E'
    path.write_text(f'#!/bin/sh\n[ "$1" != -f ] || {python} "{__file__}"\n{python} "{asking}"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


if __name__ == "__main__":
    FakeDaemon(Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])).run()
