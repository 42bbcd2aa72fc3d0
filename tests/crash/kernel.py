"""Faults that the kernel itself injects: small file systems, size limits, an fsync that fails."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

_T = TypeVar("_T")
needs_root = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root on Linux can mount a tmpfs"
)
needs_seccomp = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in {"x86_64", "aarch64"},
    reason="makes fsync fail through seccomp, whose numbers are known here for two machines",
)


@contextmanager
def small_disk(folder: Path, kibibytes: int) -> Iterator[None]:
    """Mount a file system of that size on *folder*, or skip where that is not allowed."""
    folder.mkdir(parents=True, exist_ok=True)
    options = f"size={kibibytes}k,mode=0700"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)],  # noqa: S607
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield
    finally:
        if subprocess.run(["umount", str(folder)], check=False).returncode:  # noqa: S607
            subprocess.run(["umount", "--lazy", str(folder)], check=True)  # noqa: S607
            pytest.fail("a file on the small disk is still open")


class Ballast:
    """A file that fills a small disk up, all but so many bytes."""

    def __init__(self, folder: Path, leave: int = 0) -> None:
        self._path = folder / "ballast"
        found = os.statvfs(folder)
        with self._path.open("wb") as file:
            file.write(bytes(max(0, found.f_bavail * found.f_frsize - leave)))

    def drop(self) -> None:
        """Make room again."""
        self._path.unlink()


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Let this process make no file longer than *size* bytes; Python ignores the signal."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_ushort),
        ("when_true", ctypes.c_ubyte),
        ("when_false", ctypes.c_ubyte),
        ("value", ctypes.c_uint),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.POINTER(_Instruction)))


# The numbers of fsync and fdatasync.
_SYNC_CALLS = {"x86_64": (74, 75), "aarch64": (82, 83)}
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000
_SET_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 38, 22, 2


def without_fsync(function: Callable[[], _T]) -> _T:
    """Run *function* in a new thread in which fsync and fdatasync fail with EIO.

    Other threads are not touched, and the thread ends with the function, so the disk is well
    again afterwards.
    """
    outcome: list[_T] = []
    failure: list[BaseException] = []

    def work() -> None:
        try:
            _refuse_fsync()
            outcome.append(function())
        except BaseException as error:  # noqa: BLE001 - handed to the caller's thread
            failure.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]


def _refuse_fsync() -> None:
    fsync, fdatasync = _SYNC_CALLS[platform.machine()]
    program = (_Instruction * 5)(
        _Instruction(_LOAD, 0, 0, 0),
        _Instruction(_JUMP_IF_EQUAL, 2, 0, fsync),
        _Instruction(_JUMP_IF_EQUAL, 1, 0, fdatasync),
        _Instruction(_RETURN, 0, 0, _ALLOW),
        _Instruction(_RETURN, 0, 0, _FAIL | errno.EIO),
    )
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    if libc.prctl(_SET_SECCOMP, _FILTER, ctypes.byref(_Program(5, program))):
        pytest.skip(f"no seccomp here: {os.strerror(ctypes.get_errno())}")
