"""Imports Claude Code transcripts: each main file and each sub-agent file becomes a session.

The order of events is the file's. Session ids and event ids are derived from the source, so that
importing a transcript again adds nothing, and a longer copy of it adds only what is new.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from statebackend.errors import SessionExists, StateBackendError
from statebackend.files.paths import SessionFiles
from statebackend.interchange.claude_code.appender import Appender, set_final_status
from statebackend.interchange.claude_code.drafts import Transcript
from statebackend.interchange.claude_code.prices import ModelPrice
from statebackend.interchange.claude_code.record_fields import clean_text
from statebackend.interchange.claude_code.source_ids import (
    Origin,
    is_agent_file,
    random_part,
    random_part_for,
    read_origin,
    session_id_for,
)
from statebackend.interchange.jsonl import SourceObject, read_objects
from statebackend.interchange.report import FileOutcome, FileReport, ImportReport, SkippedRecords
from statebackend.scanning import listing
from statebackend.values.ids import is_session_id
from statebackend.values.recorded import SessionStatus
from statebackend.values.timestamps import to_text

if TYPE_CHECKING:
    from statebackend.recording.session import Session

DEFAULT_PROFILE = "claude-code"


def import_claude_code(
    directory: Path,
    paths: Iterable[Path],
    *,
    prices: Mapping[str, ModelPrice] | None = None,
    profile: str | None = None,
) -> ImportReport:
    """Import transcripts into *directory*; a folder stands for every ``*.jsonl`` file below it.

    A file that cannot be imported is reported as refused and does not stop the others. *prices*
    are by model name; a turn without a price is stored at 0.0 and counted. *profile* is that of
    the sessions created (default ``claude-code``). The next import completes an interrupted one.
    """
    run = _Import(directory, prices or {}, DEFAULT_PROFILE if profile is None else profile)
    return ImportReport(
        files=tuple(run.import_file(path, problem) for path, problem in _candidates(paths))
    )


def _candidates(paths: Iterable[Path]) -> list[tuple[Path, str | None]]:
    """Return each file once, with its problem if it cannot be imported; main files come first."""
    candidates: dict[str, tuple[Path, str | None]] = {}
    for path in paths:
        for file, problem in _files_in(path):
            candidates.setdefault(os.path.realpath(file), (file, problem))
    return sorted(candidates.values(), key=lambda entry: is_agent_file(entry[0]))


def _files_in(path: Path) -> Iterator[tuple[Path, str | None]]:
    if not path.is_dir():
        yield path, None if path.is_file() else "is not a file"
        return
    problems: list[OSError] = []
    empty = True
    for folder, subfolders, names in os.walk(path, onerror=problems.append):
        subfolders.sort()
        for name in sorted(names):
            if name.endswith(".jsonl"):
                empty = False
                file = Path(folder, name)
                yield file, None if file.is_file() else "is not a file"
    for error in problems:
        yield Path(error.filename), f"cannot be read: {error.strerror}"
    if empty and not problems:
        yield path, "contains no *.jsonl file"


class _Import:
    """One call of the importer."""

    def __init__(self, directory: Path, prices: Mapping[str, ModelPrice], profile: str) -> None:
        self._directory = directory
        self._prices = prices
        self._profile = profile
        self._sessions = {
            random_part(session_id): session_id
            for session_id in listing.stems(directory)
            if is_session_id(session_id)
        }

    def import_file(self, path: Path, problem: str | None) -> FileReport:
        """Import one file, or refuse it if there is a *problem*."""
        refused = FileReport(path=path, outcome=FileOutcome.REFUSED, problem=problem)
        if problem is not None:
            return refused
        try:
            with path.open("rb") as file:
                return self._import_open_file(path, file)
        except OSError as error:
            return replace(refused, problem=f"cannot be read: {error.strerror or error}")
        except StateBackendError as error:
            return replace(refused, problem=str(error))

    def _import_open_file(self, path: Path, file: BinaryIO) -> FileReport:
        origin = Origin(path.absolute())
        transcript = Transcript(inline_sidechains=not is_agent_file(path))
        for piece in read_objects(file):
            if isinstance(piece, SourceObject):
                origin.add(piece.value)
            transcript.add(piece)
        report = _report_of(path, transcript)
        refused = replace(report, recorded=0)
        if not origin.conversation:
            return replace(refused, problem="has no user or assistant record of Claude Code")
        if origin.started_at is None:
            return replace(refused, problem="has no record with a timestamp since 1970")
        session, outcome, notes = self._open_or_create(origin, origin.started_at)
        with session:
            before = session.info
            if before.incomplete:
                # Lost events would be appended after later ones, and their cost counted twice.
                problem = (
                    "its session lost rows to damage, so an import would change the order of "
                    "events and count cost twice; import it into another folder"
                )
                refused = replace(refused, session_id=before.session_id, problem=problem)
                return replace(refused, recovery=session.recovery)
            started_at, number = origin.started_at, file.fileno()
            appender = Appender(
                session, transcript, origin.source_id, started_at, number, self._prices
            )
            appender.append_missing()
            if set_final_status(appender, before) and outcome is FileOutcome.UNCHANGED:
                outcome = FileOutcome.EXTENDED
            after = session.info
        return replace(
            report,
            outcome=outcome,
            session_id=after.session_id,
            parent_session_id=after.parent_session_id,
            status=after.status,
            events_added=dict(appender.added),
            unpriced_turns=appender.unpriced_turns,
            odd_counters=appender.odd_counters,
            notes=notes,
            recovery=session.recovery,
        )

    def _open_or_create(
        self, origin: Origin, started_at: datetime
    ) -> tuple[Session, FileOutcome, tuple[str, ...]]:
        """Open the source's session, or create it if there is none."""
        from statebackend.opening import create, write

        derived = session_id_for(origin.source_id, started_at)
        # A copy that begins later has another start, so only the rest of the id is compared.
        known = self._sessions.get(random_part(derived))
        if known is not None:
            return write.open_for_writing(self._path(known)), FileOutcome.UNCHANGED, ()
        parent, depth, notes = self._find_parent(origin)
        try:
            start, status = to_text(started_at), SessionStatus.RUNNING
            values = (derived, parent, self._profile, status, depth, start, None)
            session = create.create(self._path(derived), values)
        except SessionExists:  # another import of the same transcript has created it
            session = write.open_for_writing(self._path(derived))
        self._sessions[random_part(derived)] = derived
        return session, FileOutcome.CREATED, notes

    def _path(self, session_id: str) -> Path:
        return SessionFiles.of(self._directory, session_id).path

    def _find_parent(self, origin: Origin) -> tuple[str | None, int, tuple[str, ...]]:
        """Find the session that a sub-agent belongs to, and the sub-agent's depth.

        The parent need not be imported: its id is derived from its transcript, if there is one.
        """
        from statebackend.opening import read

        source_id = origin.parent_source_id
        if source_id is None:
            return None, 0, ()
        known = self._sessions.get(random_part_for(source_id))
        if known is not None:
            with read.open_for_reading(self._path(known), check=False) as view:
                return known, view.info.depth + 1, ()
        name = clean_text(source_id)
        for path in origin.parent_paths():
            if path.is_file():
                parent = read_origin(path)
                if parent.source_id == source_id and parent.started_at is not None:
                    note = f"its parent {name!r} is not imported yet"
                    return session_id_for(source_id, parent.started_at), 1, (note,)
        return None, 0, (f"its parent {name!r} was not found; it became a root session",)


def _report_of(path: Path, transcript: Transcript) -> FileReport:
    return FileReport(
        path=path,
        outcome=FileOutcome.REFUSED,
        records=transcript.records,
        recorded=transcript.recorded,
        skipped=tuple(
            SkippedRecords(type=name, subtype=subtype, reason=reason, count=count)
            for (name, subtype, reason), count in sorted(transcript.skipped.items())
        ),
        torn=transcript.torn,
        shared_lines=transcript.shared_lines,
    )
