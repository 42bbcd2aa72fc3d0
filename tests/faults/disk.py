"""What a disk may hold after the power was cut: a model of files, names and what was synced.

Synced data and names are always there. Of what was written since, everything, nothing or any part
may be: single writes, single sectors of 512 bytes, single changes of names.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.recording import ACKNOWLEDGED, Call, Recording, Step

SECTOR_BYTES = 512


@dataclass(frozen=True, slots=True)
class Content:
    """What a file holds; names with the same number are names of one file."""

    number: int
    data: bytes


Image = Mapping[str, Content | None]
"""Content by relative path; None is a folder."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a file's content: data at an offset, or a new size when *data* is None."""

    offset: int
    data: bytes | None

    def apply(self, content: bytearray) -> None:
        """Make the change, with zeros in a gap before it."""
        end = self.offset + len(self.data or b"")
        if self.data is None:
            del content[self.offset :]
        if len(content) < end:
            content.extend(bytes(end - len(content)))
        if self.data is not None:
            content[self.offset : end] = self.data


@dataclass(eq=False, slots=True)
class File:
    """A file: what is safe of it, what came after, and both together."""

    safe: bytearray = field(default_factory=bytearray)
    unsynced: list[Change] = field(default_factory=list)
    now: bytearray = field(default_factory=bytearray)

    def change(self, change: Change) -> None:
        """Let a program change the content."""
        self.unsynced.append(change)
        change.apply(self.now)

    def sync(self) -> None:
        """Make the content safe."""
        self.safe = bytearray(self.now)
        self.unsynced.clear()


@dataclass(frozen=True, slots=True)
class NameChange:
    """One change of names, whole or not at all, safe once *folder* is synced. No file: a folder."""

    folder: str
    names: tuple[tuple[str, File | None, bool], ...]
    """Name, its file, and whether the name is there afterwards."""

    def apply(self, names: dict[str, File | None]) -> None:
        """Make the change."""
        for name, file, there in self.names:
            if there:
                names[name] = file
            else:
                names.pop(name, None)


Fate = Callable[["Disk"], Image]
"""What of the disk survives the cut."""


class Disk:
    """The disk after the steps that it was given so far; ``acknowledged`` has the lines of then."""

    def __init__(self, recording: Recording) -> None:
        self.acknowledged: list[str] = []
        self.safe_names: dict[str, File | None] = {}
        self.unsynced_names: list[NameChange] = []
        self._files: dict[tuple[int, int], File] = {}
        self._said = bytearray()
        for name, identity in recording.inodes.items():
            path = recording.base / name
            if path.is_dir():
                self.safe_names[name] = None
                continue
            content = path.read_bytes()
            self.safe_names[name] = self._files[identity] = File(
                bytearray(content), now=bytearray(content)
            )
        self.names = dict(self.safe_names)

    def take(self, step: Step) -> None:
        """Do one step."""
        if step.path == ACKNOWLEDGED:
            self._said += step.data
            self.acknowledged = self._said.decode().splitlines()
            return
        _HANDLERS[step.call](self, step)

    def _file(self, step: Step) -> File:
        return self._files[step.file]

    def _create(self, step: Step) -> None:
        self._files[step.file] = file = File()  # the inode may have been another file's before
        self._name(step.path, (step.path, file, True))

    def _write(self, step: Step) -> None:
        self._file(step).change(Change(step.offset, step.data))

    def _truncate(self, step: Step) -> None:
        self._file(step).change(Change(step.offset, None))

    def _allocate(self, step: Step) -> None:
        end = step.offset + step.size
        if end > len(self._file(step).now):
            self._file(step).change(Change(end, None))

    def _link(self, step: Step) -> None:
        self._name(step.other, (step.other, self._file(step), True))

    def _rename(self, step: Step) -> None:
        file = self.names[step.path]
        assert file is not None, "a folder was renamed, which this model does not know"
        if self.names.get(step.other) is file:
            return  # two names of one file: both stay
        self._name(step.other, (step.path, None, False), (step.other, file, True))

    def _unlink(self, step: Step) -> None:
        self._name(step.path, (step.path, None, False))

    def _mkdir(self, step: Step) -> None:
        self._name(step.path, (step.path, None, True))

    def _sync(self, step: Step) -> None:
        if step.path == "." or (step.path in self.names and self.names[step.path] is None):
            self._sync_folder(step.path)
        else:
            self._file(step).sync()

    def _sync_folder(self, folder: str) -> None:
        for change in self.unsynced_names:
            if change.folder == folder:
                change.apply(self.safe_names)
        self.unsynced_names = [one for one in self.unsynced_names if one.folder != folder]

    def _name(self, path: str, *names: tuple[str, File | None, bool]) -> None:
        change = NameChange(str(Path(path).parent), names)
        change.apply(self.names)
        self.unsynced_names.append(change)

    def _nothing(self, _step: Step) -> None:
        pass


_HANDLERS: dict[Call, Callable[[Disk, Step], None]] = {
    Call.CREATE: Disk._create,
    Call.WRITE: Disk._write,
    Call.TRUNCATE: Disk._truncate,
    Call.ALLOCATE: Disk._allocate,
    Call.LINK: Disk._link,
    Call.RENAME: Disk._rename,
    Call.UNLINK: Disk._unlink,
    Call.MKDIR: Disk._mkdir,
    Call.RMDIR: Disk._unlink,
    Call.SYNC: Disk._sync,
    Call.CLOSE: Disk._nothing,
    Call.FAULT: Disk._nothing,
}


# ── Fates ────────────────────────────────────────────────────────────────────────────────────


def all_kept(disk: Disk) -> Image:
    """Keep all that was written: the machine was killed, its disk was not."""
    return _image(disk.names, lambda file: bytes(file.now))


def all_lost(disk: Disk) -> Image:
    """Keep only what was synced."""
    return _image(disk.safe_names, lambda file: bytes(file.safe))


def names_lost(disk: Disk) -> Image:
    """Keep the content without the names."""
    return _image(disk.safe_names, lambda file: bytes(file.now))


def content_lost(disk: Disk) -> Image:
    """Keep the names without the content."""
    return _image(disk.names, lambda file: bytes(file.safe))


def torn(seed: int) -> Fate:
    """Return the fate that keeps any part of what was not synced."""

    def fate(disk: Disk) -> Image:
        dice = random.Random(seed)
        names = dict(disk.safe_names)
        for change in _some(disk.unsynced_names, dice):
            change.apply(names)
        return _image(names, lambda file: _torn_content(file, dice))

    return fate


FATES: tuple[Fate, ...] = (all_kept, all_lost, names_lost, content_lost)


def _some(changes: list[NameChange], dice: random.Random) -> list[NameChange]:
    if dice.random() < 0.5:  # as a journal does it: the first ones
        return changes[: dice.randint(0, len(changes))]
    return [change for change in changes if dice.random() < 0.5]


def _torn_content(file: File, dice: random.Random) -> bytes:
    content = bytearray(file.safe)
    for change in _WAYS[dice.randrange(len(_WAYS))](file.unsynced, dice):
        change.apply(content)
    if len(content) < len(file.now) and dice.random() < 0.3:  # the size is there, the data is not
        content.extend(bytes(len(file.now) - len(content)))
    return bytes(content)


def _in_order(changes: list[Change], dice: random.Random) -> list[Change]:
    """Return the changes up to one, and some sectors of that."""
    first = changes[: dice.randint(0, len(changes))]
    return first[:-1] + _some_sectors(first[-1:], dice)


def _some_sectors(changes: list[Change], dice: random.Random) -> list[Change]:
    sectors = [sector for change in changes for sector in _sectors(change)]
    return [sector for sector in sectors if dice.random() < 0.5]


_WAYS: tuple[Callable[[list[Change], random.Random], list[Change]], ...] = (
    lambda _changes, _dice: [],
    lambda changes, _dice: changes,
    lambda changes, dice: [change for change in changes if dice.random() < 0.5],
    _in_order,
    _some_sectors,
)


def _sectors(change: Change) -> Iterator[Change]:
    if change.data is None:
        yield change
        return
    start, end = change.offset, change.offset + len(change.data)
    while start < end:
        stop = min(end, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
        yield Change(start, change.data[start - change.offset : stop - change.offset])
        start = stop


def _image(names: Mapping[str, File | None], content: Callable[[File], bytes]) -> Image:
    made: dict[File, Content] = {}  # two names of one file have one content
    image: dict[str, Content | None] = {}
    for name, file in sorted(names.items(), key=lambda one: one[0]):
        parent = str(Path(name).parent)
        if parent != "." and parent not in image:
            continue  # its folder is lost, and it with that
        if file is not None and file not in made:
            made[file] = Content(len(made), content(file))
        image[name] = None if file is None else made[file]
    return image


def write_out(image: Image, root: Path) -> None:
    """Make the folder *root* with what the disk holds."""
    root.mkdir()
    first_names: dict[int, str] = {}
    for name, content in image.items():
        if content is None:
            (root / name).mkdir(mode=0o700)
        elif content.number in first_names:
            (root / name).hardlink_to(root / first_names[content.number])
        else:
            first_names[content.number] = name
            (root / name).write_bytes(content.data)
