"""Real processes for tests: start one, talk to it by lines, kill it.

A child runs one function of a module that does without pytest. It speaks JSON lines on its stdout
and hears lines on its stdin. Starting Python and importing everything takes most of a second, so
the children are forked from one process that has done so, and that never opens a session itself; a
*fresh* child is a Python of its own.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Protocol

ROOT = Path(__file__).resolve().parents[2]
# A guard against a hang, far beyond what a loaded machine needs; no test measures time.
HANG_S = 180.0


_SERVE = "tests.crash.children:serve"


class _Process(Protocol):
    pid: int

    def wait(self, timeout: float | None = None) -> int: ...


class _Server:
    """The process that forks the children, and reaps them."""

    def __init__(self) -> None:
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(HANG_S)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.crash.children", _SERVE, str(theirs.fileno())],
                cwd=ROOT,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self._close)

    def ask(self, request: object, descriptors: list[int]) -> int:
        socket.send_fds(self.socket, [json.dumps(request).encode()], descriptors)
        return int(self.socket.recv(64))

    def _close(self) -> None:
        self.socket.close()
        self._process.wait(HANG_S)


_server = cache(_Server)


class _Forked:
    def __init__(self, command: list[str], stdin: int, stdout: int) -> None:
        self.pid = _server().ask(command, [stdin, stdout])

    def wait(self, timeout: float | None = None) -> int:
        return _server().ask(self.pid, [])


class Child:
    """One running child process."""

    def __init__(
        self, function: Callable[..., None], *arguments: object, fresh: bool = False
    ) -> None:
        command = [f"{function.__module__}:{function.__name__}", *map(str, arguments)]
        stdin, self._stdin = os.pipe()
        self._stdout, stdout = os.pipe()
        self._process: _Process
        if fresh:
            python = [sys.executable, "-m", "tests.crash.children"]
            self._process = subprocess.Popen(
                [*python, *command], cwd=ROOT, stdin=stdin, stdout=stdout
            )
        else:
            self._process = _Forked(command, stdin, stdout)
        os.close(stdin)
        os.close(stdout)
        self._buffer = b""
        self._code: int | None = None
        self.pid = self._process.pid

    def say(self, line: str = "go") -> None:
        """Send one line."""
        os.write(self._stdin, line.encode() + b"\n")

    def hear(self) -> Any:
        """Return what the next line of the child holds; fail when it ends or hangs instead."""
        while b"\n" not in self._buffer:
            if not (more := self._more()):
                raise AssertionError(f"the child ended early, code {self.wait()}")
            self._buffer += more
        line, _newline, self._buffer = self._buffer.partition(b"\n")
        return json.loads(line)

    def ask(self, line: str = "go") -> Any:
        """Send one line and return the answer."""
        self.say(line)
        return self.hear()

    def rest(self) -> list[Any]:
        """Return what the child still says until it ends; a half line at the end is left out."""
        while more := self._more():
            self._buffer += more
        lines = self._buffer.split(b"\n")[:-1]
        self._buffer = b""
        return [json.loads(line) for line in lines]

    def kill(self) -> None:
        """End the child by SIGKILL and wait until it is gone."""
        if self._code is None:  # its number may be another process's by now
            os.kill(self.pid, signal.SIGKILL)
        self.wait()

    def wait(self) -> int:
        """Wait for the child's end and return its exit code, negative for a signal."""
        if self._code is None:
            self._code = self._process.wait(HANG_S)
        return self._code

    def close(self) -> None:
        """End the child if it still runs, and give its pipes back."""
        self.kill()
        os.close(self._stdin)
        os.close(self._stdout)

    def _more(self) -> bytes:
        if not select.select([self._stdout], [], [], HANG_S)[0]:
            raise AssertionError("the child hangs")
        return os.read(self._stdout, 65536)


@contextmanager
def started(
    function: Callable[..., None], *arguments: object, fresh: bool = False
) -> Iterator[Child]:
    """Run a function in a process of its own."""
    child = Child(function, *arguments, fresh=fresh)
    try:
        yield child
    finally:
        child.close()


@contextmanager
def several(count: int, function: Callable[..., None], *arguments: object) -> Iterator[list[Child]]:
    """Run the same function in *count* processes; each gets its number as the last argument."""
    children: list[Child] = []
    try:
        children.extend(Child(function, *arguments, number) for number in range(count))
        yield children
    finally:
        for child in children:
            child.close()


def run(function: Callable[..., None], *arguments: object, fresh: bool = False) -> list[Any]:
    """Run a function to its end and return what it said; fail if it ended badly."""
    with started(function, *arguments, fresh=fresh) as child:
        said = child.rest()
        code = child.wait()
        assert code == 0, f"{function.__name__} ended with {code} after {said}"
        return said
