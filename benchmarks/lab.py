"""Where a run works: its temporary folder, its sizes, and the file systems it finds."""

from __future__ import annotations

import os
import platform
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_MEMORY = {"tmpfs", "ramfs"}


@dataclass(frozen=True, slots=True)
class Lab:
    """One run: ``directory`` is removed at its end; ``smoke`` asks for small sizes."""

    directory: Path
    smoke: bool

    def size(self, full: int, smoke: int) -> int:
        """Return the size to work with."""
        return smoke if self.smoke else full

    @contextmanager
    def folder(self, base: Path | None = None) -> Iterator[Path]:
        """Give a new folder, in *base* when given, that is removed with all in it."""
        with temporary_folder(base or self.directory) as folder:
            yield folder


@contextmanager
def temporary_folder(base: Path | None) -> Iterator[Path]:
    """Give a new folder in *base* (None: the system's place for them), removed at the end."""
    with tempfile.TemporaryDirectory(prefix="statebackend-benchmark-", dir=base) as name:
        yield Path(name)


@contextmanager
def cache_in(folder: Path) -> Iterator[None]:
    """Put catalogues into *folder*, not into the user's own cache."""
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(folder)
    try:
        yield
    finally:
        del os.environ["XDG_CACHE_HOME"]
        if before is not None:
            os.environ["XDG_CACHE_HOME"] = before


def memory_directory() -> Path | None:
    """Return a folder whose files are held in memory, None when there is none."""
    for path in (Path("/dev/shm"), Path(tempfile.gettempdir())):  # noqa: S108
        if path.is_dir() and in_memory(path):
            return path
    return None


def in_memory(path: Path) -> bool:
    """Return whether *path* is on a file system in memory; False where the system does not say."""
    try:
        mounts = Path("/proc/mounts").read_text()
    except OSError:
        return False
    kinds = dict(line.split()[1:3] for line in mounts.splitlines())
    real = path.resolve()
    mount = next(str(parent) for parent in (real, *real.parents) if str(parent) in kinds)
    return kinds[mount] in _MEMORY


def machine() -> str:
    """Return what a figure depends on besides the code."""
    return (
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, "
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs"
    )
