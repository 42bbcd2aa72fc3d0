"""Programs run under the recorder: what they did to the files of one folder, in order.

``recorder.c`` tells what is recorded, and how calls are made to fail. A program says what it was
promised by a line in the file ``acknowledged`` of the recorded folder: :func:`acknowledge`.
"""

from __future__ import annotations

import errno
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from tests import chains

SOURCE = Path(__file__).with_name("recorder.c")
ACKNOWLEDGED = "acknowledged"
# struct record in recorder.c
_RECORD = struct.Struct("=IIQQqIIQ")
_FLAGS = ("-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter")


class Call(IntEnum):
    """What was called; the numbers are those of recorder.c."""

    CREATE = 1
    WRITE = 2
    TRUNCATE = 3
    ALLOCATE = 4
    LINK = 5
    RENAME = 6
    UNLINK = 7
    MKDIR = 8
    RMDIR = 9
    SYNC = 10
    CLOSE = 11
    FAULT = 12


@dataclass(frozen=True, slots=True)
class Step:
    """One call that succeeded, or with FAULT one that was made to fail.

    ``path`` and ``other`` (the new name of LINK and RENAME) are relative to the folder, which
    itself is ``"."``; a name outside is empty. ``file`` is device and inode. ``offset`` is the
    place of a write, the new size of TRUNCATE, and the errno of FAULT, whose call is ``other``.
    ``size`` is that of the data, of ALLOCATE the length.
    """

    call: Call
    process: int
    file: tuple[int, int]
    offset: int
    path: str
    other: str
    size: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Fault:
    """The ``number``-th matching ``call`` of a process fails.

    A call is write, fsync, open, link, rename or unlink. ``pattern`` is matched with the absolute
    path, as fnmatch(3) does. With ``and_later`` all the calls after it fail as well.
    """

    call: str
    number: int
    pattern: str = "*"
    error: int = errno.EIO
    and_later: bool = False

    def __str__(self) -> str:
        later = "+" if self.and_later else ""
        return f"{self.call}:{self.number}{later}:{self.error}:{self.pattern}"


class NoCompilerError(Exception):
    """There is no recorder on this machine: it is no Linux, or has no C compiler."""


def compile_recorder(folder: Path) -> Path:
    """Compile the recorder into *folder* and return the library."""
    compiler = shutil.which("cc")
    if sys.platform != "linux" or compiler is None:
        raise NoCompilerError("the recorder needs Linux and a C compiler (cc)")
    library = folder / "recorder.so"
    subprocess.run(
        [compiler, *_FLAGS, "-o", str(library), str(SOURCE), "-ldl", "-lpthread"], check=True
    )
    return library


class Recording:
    """The folder *root*, in which programs are run under the recorder, and the log beside it.

    What *root* holds when this is made counts as safe on the disk: it is copied to ``base``.
    """

    def __init__(self, library: Path, root: Path) -> None:
        self._library = library
        self.root = Path(os.path.realpath(root))
        self.base = self.root.with_name(self.root.name + ".base")
        self.log = self.root.with_name(self.root.name + ".log")
        self._lock = self.root.with_name(self.root.name + ".lock")
        self._lock.write_bytes(bytes(4096))
        self.root.mkdir(parents=True, exist_ok=True)
        shutil.copytree(self.root, self.base)
        self.inodes = {
            str(path.relative_to(self.root)): (path.stat().st_dev, path.stat().st_ino)
            for path in self.root.rglob("*")
        }

    def run(
        self,
        program: str,
        *arguments: object,
        site: Path | None = None,
        faults: Sequence[Fault] = (),
        returncode: int = 0,
        module: str = "tests.faults.programs",
    ) -> str:
        """Run ``program(root, *arguments)`` of *module* in a process, return what it printed.

        *site* holds another version of the package than this checkout's.
        """
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                module,
                program,
                self.root,
                *map(str, arguments),
            ],
            cwd=chains.ROOT,
            env=self._environment(site, faults),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == returncode, done.stderr
        return done.stdout

    def steps(self) -> list[Step]:
        """Return what was recorded so far, of all the programs."""
        return list(_parse(self.log.read_bytes(), self.root))

    def _environment(self, site: Path | None, faults: Sequence[Fault]) -> dict[str, str]:
        # Coverage would start in the child, and takes a name of ours for one of its own.
        kept = {
            name: value
            for name, value in chains.environment(site).items()
            if not name.startswith("COVERAGE_")
        }
        return kept | {
            "PYTHONPATH": os.pathsep.join((kept["PYTHONPATH"], str(chains.ROOT))),
            "PYTHONDONTWRITEBYTECODE": "1",
            "LD_PRELOAD": str(self._library),
            "RECORDER_FOLDER": str(self.root),
            "RECORDER_LOG": str(self.log),
            "RECORDER_LOCK": str(self._lock),
            "RECORDER_FAULTS": ";".join(map(str, faults)),
        }


def acknowledge(root: Path, line: str) -> None:
    """Put into the log that the program was promised something, in a program under the recorder."""
    descriptor = os.open(root / ACKNOWLEDGED, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, line.encode() + b"\n")
    os.close(descriptor)


def _parse(log: bytes, root: Path) -> Iterator[Step]:
    at = 0
    while at < len(log):
        call, process, device, inode, offset, path_size, other_size, size = _RECORD.unpack_from(
            log, at
        )
        at += _RECORD.size
        path, at = log[at : at + path_size], at + path_size
        other, at = log[at : at + other_size], at + other_size
        data_size = size if call == Call.WRITE else 0
        data, at = log[at : at + data_size], at + data_size
        yield Step(
            Call(call),
            process,
            (device, inode),
            offset,
            _relative(path, root),
            other.decode() if call == Call.FAULT else _relative(other, root),
            size,
            data,
        )


def _relative(path: bytes, root: Path) -> str:
    # The kernel says it of a file whose last name is gone.
    name = os.fsdecode(path.removesuffix(b" (deleted)"))
    return os.path.relpath(name, root) if name else ""
