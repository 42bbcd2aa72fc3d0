"""A page of the listing of sessions, which opens no more files than necessary."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from statebackend.scanning import listing, scan
from statebackend.scanning.scan import ALL_SESSIONS, SessionFilter
from statebackend.values.recorded import SessionInfo
from statebackend.values.results import BadSession


def list_page(
    directory: Path,
    wanted: SessionFilter,
    *,
    limit: int | None,
    after: str | None,
    first_time: str | None,
    end_time: str | None,
    catalogue: bool,
) -> list[SessionInfo | BadSession]:
    """Return the summaries that match, newest first, at most *limit* (None: all).

    *after*, *first_time* and *end_time* are as in :func:`listing.select_stems`. The
    *catalogue* is loaded only if the first files do not fill the page.
    """
    every = (limit, after, first_time, end_time) == (None, None, None, None)
    page: list[SessionInfo | BadSession] = []
    rest = None
    if wanted == ALL_SESSIONS or not every:
        listed = listing.list_sessions(directory)
        stems = listing.select_stems(listed.stems, after, first_time, end_time)
        first = stems if wanted == ALL_SESSIONS else stems[: scan.READ_FIRST]
        rest = stems[len(first) :]
        answers = scan.read_each(directory, scan.read_summary, first, listed)
        page = list(islice(filter(wanted.matches, answers), limit))
        if not rest or len(page) == limit:
            return page
    from statebackend.bulk.cross_session import CrossSession

    remaining = None if limit is None else limit - len(page)
    return page + CrossSession(directory, catalogue=catalogue).summaries(wanted, rest, remaining)
