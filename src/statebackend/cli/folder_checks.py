"""What ``doctor`` checks in the sessions folder: file names, permissions, the file system.

No session file is opened here: closing one would drop the locks that SQLite holds on it if this
process also had a connection.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")
_NETWORK = re.compile(r"nfs|cifs|smb|9p$|afs$|ceph|lustre|gluster|gpfs|beegfs|sshfs|davfs|ncp")
_ORIGINAL = re.compile(r"\.sqlite\.corrupt(\.\d+)?$")
_UNFINISHED = re.compile(r"\.sqlite\.(creating|recovering)(\.aside|\.json|-wal|-shm|-journal)?$")
_SIDECAR = re.compile(r"(?P<main>.+\.sqlite)-(wal|journal)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspectNames:
    """File names in the folder that need attention, each tuple sorted.

    ``originals`` are damaged files that a recovery kept, ``unfinished`` are files that an
    interrupted create or recovery left, ``orphans`` are WAL and rollback journal files without
    their session, ``open_to_others`` are files that users other than the owner may open.
    """

    originals: tuple[str, ...]
    unfinished: tuple[str, ...]
    orphans: tuple[str, ...]
    open_to_others: tuple[str, ...]


def find_suspect_names(directory: Path) -> SuspectNames:
    """Return the suspect names in *directory*, none if it does not exist."""
    modes = dict(sorted(_modes(directory)))
    sidecars = [match for name in modes if (match := _SIDECAR.match(name))]
    return SuspectNames(
        originals=tuple(filter(_ORIGINAL.search, modes)),
        unfinished=tuple(filter(_UNFINISHED.search, modes)),
        orphans=tuple(match.string for match in sidecars if match["main"] not in modes),
        open_to_others=tuple(
            name for name, mode in modes.items() if stat.S_ISREG(mode) and mode & 0o077
        ),
    )


def permissions(directory: Path) -> int | None:
    """Return the permission bits of *directory*, or None if the system does not give them."""
    try:
        return stat.S_IMODE(directory.stat().st_mode)
    except OSError:
        return None


def file_system(directory: Path) -> str | None:
    """Return the type of the file system that holds *directory*, or None if it is unknown."""
    try:
        mounts = _MOUNTS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return None
    resolved = directory.resolve()
    above = [mount for mount in map(_parse_mount, mounts) if resolved.is_relative_to(mount[0])]
    # The longest mount point is the nearest; of two mounts on one point the later hides the other.
    above.sort(key=lambda mount: len(mount[0]))
    return above[-1][1] if above else None


def is_network(kind: str) -> bool:
    """Return whether other machines can share a file system of this type."""
    return _NETWORK.search(kind) is not None


def _modes(directory: Path) -> Iterator[tuple[str, int]]:
    try:
        entries = list(os.scandir(directory))
    except OSError:
        return
    for entry in entries:
        try:
            yield entry.name, entry.stat(follow_symlinks=False).st_mode
        except OSError:  # deleted since it was listed
            continue


def _parse_mount(line: str) -> tuple[str, str]:
    """Return the mount point and the file system type in a line of ``mountinfo``."""
    before, _, after = line.partition(" - ")
    point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), before.split(" ")[4])
    return point, after.split(" ")[0]
