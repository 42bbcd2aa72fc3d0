"""What ``doctor`` looks at in the sessions folder: names, rights, the file system.

Names and rights only. No session file is opened here: closing one would drop the locks that
SQLite holds on it if this process also had a connection.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")
_REMOTE = re.compile(r"nfs|cifs|smb|9p$|afs$|ceph|lustre|gluster|gpfs|beegfs|sshfs|davfs|ncp")
_ORIGINAL = re.compile(r"\.sqlite\.corrupt(\.\d+)?$")
_UNFINISHED = re.compile(r"\.sqlite\.(creating|recovering)(\.aside|\.json|-wal|-shm|-journal)?$")
_SIDECAR = re.compile(r"(?P<main>.+\.sqlite)-(wal|journal)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The names of the folder that need a look, each list sorted.

    ``originals`` are damaged files that were set aside, ``unfinished`` is what an interrupted
    create or recovery left, ``orphans`` are write-ahead logs and journals without their session,
    ``open_to_others`` are files that others than the owner may open.
    """

    originals: tuple[str, ...]
    unfinished: tuple[str, ...]
    orphans: tuple[str, ...]
    open_to_others: tuple[str, ...]


def look(directory: Path) -> Names:
    """Sort the names of *directory*, which may be absent."""
    modes = dict(_modes(directory))
    sidecars = [match for name in modes if (match := _SIDECAR.match(name))]
    return Names(
        originals=_sorted(name for name in modes if _ORIGINAL.search(name)),
        unfinished=_sorted(name for name in modes if _UNFINISHED.search(name)),
        orphans=_sorted(match.string for match in sidecars if match["main"] not in modes),
        open_to_others=_sorted(
            name for name, mode in modes.items() if stat.S_ISREG(mode) and mode & 0o077
        ),
    )


def mode(directory: Path) -> int | None:
    """Return the permission bits of *directory*, or None if it cannot be looked at."""
    try:
        return stat.S_IMODE(directory.stat().st_mode)
    except OSError:
        return None


def file_system(directory: Path) -> str | None:
    """Return the type of the file system that holds *directory*; None where nothing tells it."""
    try:
        mounts = _MOUNTS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return None
    where = directory.resolve()
    above = [mount for mount in map(_mount, mounts) if where.is_relative_to(mount[0])]
    # The longest mount point is the nearest; of two mounts on one point the later hides the other.
    above.sort(key=lambda mount: len(mount[0]))
    return above[-1][1] if above else None


def is_remote(kind: str) -> bool:
    """Tell whether a file system of this type is shared with other machines."""
    return _REMOTE.search(kind) is not None


def _modes(directory: Path) -> Iterator[tuple[str, int]]:
    try:
        entries = list(os.scandir(directory))
    except OSError:
        return
    for entry in entries:
        try:
            yield entry.name, entry.stat(follow_symlinks=False).st_mode
        except OSError:  # gone since it was listed
            continue


def _mount(line: str) -> tuple[str, str]:
    """Return the mount point and the type that a line of ``mountinfo`` tells."""
    left, _, right = line.partition(" - ")
    point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), left.split(" ")[4])
    return point, right.split(" ")[0]


def _sorted(names: Iterator[str]) -> tuple[str, ...]:
    return tuple(sorted(names))
