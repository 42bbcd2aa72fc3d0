"""The session ids in a folder, newest first, from its file names alone.

Ids are ULIDs, so their order is that of their times; file times do not matter.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from statebackend.files.header import LEFTOVERS
from statebackend.files.paths import SUFFIX, SessionFiles
from statebackend.sqlite.faults import os_error
from statebackend.values.ids import is_session_id

_STEM = slice(-len(SUFFIX))


class FolderNames(NamedTuple):
    """The names in a folder, in no order, as they were at ``at_ns`` (of the clock) or later.

    ``files`` are the stems of session files, ``beside`` those with a WAL, a rollback journal or a
    damaged original, ``reported`` those with a report of a recovery.
    """

    files: list[str]
    beside: frozenset[str]
    reported: frozenset[str]
    at_ns: int


class Listing(NamedTuple):
    """The stems of a folder's sessions, newest first; the rest as in :class:`FolderNames`."""

    stems: list[str]
    reported: frozenset[str]
    at_ns: int


EMPTY = Listing([], frozenset(), 0)


def stems(directory: Path) -> list[str]:
    """Return the stem of every session in *directory*, newest first, opening no file."""
    return list_sessions(directory).stems


def list_sessions(directory: Path) -> Listing:
    """List the sessions of *directory*, opening no file.

    Names that are not session ids follow the others. A session of which only a damaged original, a
    WAL or a journal exists is listed too. A missing folder is an empty one. Raises
    :class:`StorageError` when the folder cannot be listed.
    """
    names = read_names(directory)
    every = names.beside.union(names.files)
    ids = {stem for stem in every if is_session_id(stem)}
    ordered = sorted(ids, reverse=True) + sorted(every - ids, reverse=True)
    return Listing(ordered, names.reported, names.at_ns)


def newest_first(stems: Iterable[str]) -> list[str]:
    """Return these stems in the order of a listing."""
    return sorted(stems, key=sort_key, reverse=True)


def sort_key(stem: str) -> tuple[bool, str]:
    """Return the sort key of a stem; a listing begins with the greatest."""
    return (is_session_id(stem) is not None, stem)


def select_stems(
    stems: list[str], after: str | None, first_time: str | None, end_time: str | None
) -> list[str]:
    """Return those of a listing's *stems* that follow *after* and are of these times.

    *after* need not be in the listing any more. *first_time* (inclusive) and *end_time* (exclusive)
    are the prefixes of ids that stand for a time; stems that are not session ids have none.
    """
    if after is not None:
        place = sort_key(after)
        stems = stems[bisect_left(stems, True, key=lambda stem: sort_key(stem) < place) :]
    if first_time is not None or end_time is not None:
        stems = [stem for stem in stems if is_session_id(stem)]
    if first_time is not None:
        stems = [stem for stem in stems if stem[: len(first_time)] >= first_time]
    if end_time is not None:
        stems = [stem for stem in stems if stem[: len(end_time)] < end_time]
    return stems


def read_names(directory: Path) -> FolderNames:
    """Read the names in *directory*, as :func:`list_sessions` does, without ordering them."""
    at_ns = time.time_ns()
    with os_error(directory):
        try:
            every = os.listdir(directory)
        except FileNotFoundError:
            every = []
    files = [name[_STEM] for name in every if name.endswith(SUFFIX)]
    others = [] if len(files) == len(every) else [n for n in every if not n.endswith(SUFFIX)]
    beside = set()
    reported = set()
    for name in others:
        stem, _suffix, ending = name.partition(SUFFIX)
        if ending in LEFTOVERS:
            beside.add(stem)
        elif ending.startswith(".corrupt.") and ending.endswith(".json"):
            reported.add(stem)
    return FolderNames(files, frozenset(beside), frozenset(reported), at_ns)


def stems_with_lock_file(directory: Path) -> frozenset[str]:
    """Return the stems that have a claim's lock file: only those can have a living writer."""
    try:
        names = os.listdir(SessionFiles(directory / ("x" + SUFFIX)).lock.parent)
    except OSError:
        return frozenset()
    return frozenset(name.removesuffix(".lock") for name in names)
