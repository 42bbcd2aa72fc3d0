"""``doctor``: what the store runs on, how it is, and what needs a person."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import click

from statebackend.catalogue.state import State, checked, state_of
from statebackend.cli import (
    endings,
    escape,
    folder,
    forms,
    moments,
    notices,
    output,
    progress,
    texts,
)
from statebackend.cli.options import SessionsCommand, json_option
from statebackend.values.recorded import SessionInfo, SessionStatus
from statebackend.values.reports import Recovery
from statebackend.values.results import BadSession

_PACKAGES = ("statebackend", "sqlalchemy", "alembic")
_SAFE_SQLITE = (3, 51, 3)
_NAMED = 20
_LOST = "rows were lost to damage"
Severity = Literal["problem", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something found. A ``problem`` needs a person, a ``warning`` is good to know.

    ``names`` are the sessions or files it is about, ``remarks`` what is known of each, or none.
    """

    severity: Severity
    text: str
    names: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


@dataclass(slots=True)
class Sessions:
    """Counts of the session files, and the ids of those that need a look."""

    total: int = 0
    live: int = 0
    by_status: Counter[str] = field(default_factory=Counter)
    stale: list[str] = field(default_factory=list)
    flagged: dict[str, str] = field(default_factory=dict)


@click.command("doctor", cls=SessionsCommand)
@click.option(
    "--rebuild-cache",
    is_flag=True,
    help="First throw the catalogue away and make it anew from the session files.",
)
@json_option
def command(*, rebuild_cache: bool, as_json: bool) -> None:
    """Tell the state of the store and what needs a person.

    Changes no session. The exit code is 1 if there is a problem; a warning leaves it at 0.
    """
    from statebackend import StateBackend

    backend = StateBackend()
    if rebuild_cache:
        _rebuild(backend.directory)
    versions, place = _versions(), _place(backend.directory)
    sessions = _counted(backend.scan())
    names = folder.look(backend.directory)
    cache = checked(state_of(backend.directory))
    recoveries = backend.recoveries()
    findings = [
        *_of_versions(),
        *_of_place(place),
        *_of_sessions(sessions, recoveries),
        *_of_originals(names, recoveries),
        *_of_names(names),
        *_of_cache(cache),
    ]
    if as_json:
        form = _form(versions, place, sessions, names, findings)
        form["cache"] = {**asdict(cache), "path": str(cache.path)}
        output.write_json({**form, "recoveries": [forms.recovery(one) for one in recoveries]})
    else:
        _write(versions, place, sessions, _cache(cache), findings)
    endings.end(found=any(finding.severity == "problem" for finding in findings))


def _rebuild(directory: Path) -> None:
    from statebackend.catalogue import Catalogue

    with progress.reported("Reading") as report:
        Catalogue(directory).rebuild(report)


def _cache(cache: State) -> str:
    if cache.size_bytes is None:
        return f"{cache.path} (not made yet)"
    size = f"{cache.size_bytes / 1e6:,.1f} MB"
    if cache.problem is not None:
        return f"{cache.path} ({size}, cannot be used: {cache.problem})"
    text = f", {cache.text_bytes / 1e6:,.1f} MB of text to search" if cache.text_bytes else ""
    return f"{cache.path} ({size}, schema {cache.schema}, {cache.sessions:,} sessions{text})"


def _versions() -> dict[str, str | None]:
    """Return versions without importing what they are of."""
    import platform
    import sqlite3

    found = {"python": platform.python_version(), "sqlite": sqlite3.sqlite_version}
    return {**found, **{name: _installed_version(name) for name in _PACKAGES}}


def _installed_version(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:  # run from a checkout that was never installed
        return None


def _place(directory: Path) -> dict[str, Any]:
    mode = folder.mode(directory)
    return {
        "path": str(directory),
        "exists": mode is not None,
        "mode": None if mode is None else f"{mode:04o}",
        "file_system": folder.file_system(directory),
    }


def _counted(entries: Iterable[SessionInfo | BadSession]) -> Sessions:
    sessions = Sessions()
    for entry in entries:
        sessions.total += 1
        if problem := forms.problem(entry):
            sessions.flagged[entry.session_id] = problem.replace(forms.ROWS_LOST, _LOST)
        if isinstance(entry, SessionInfo):
            _count(sessions, entry)
    return sessions


def _count(sessions: Sessions, info: SessionInfo) -> None:
    sessions.by_status[str(info.status)] += 1
    sessions.live += info.live
    if info.status == SessionStatus.RUNNING and not info.live:
        sessions.stale.append(info.session_id)


def _of_versions() -> Iterator[Finding]:
    import sqlite3

    if sqlite3.sqlite_version_info < _SAFE_SQLITE:
        yield Finding(
            "warning",
            f"SQLite {sqlite3.sqlite_version} is older than 3.51.3, which repaired a race: a "
            "checkpoint by a second connection while one writes can damage a file. This package "
            "makes none; nor may any other program on these files",
        )


def _of_place(place: dict[str, Any]) -> Iterator[Finding]:
    if place["exists"] and int(place["mode"], 8) & 0o077:
        yield Finding(
            "problem", f"others can enter the folder (mode {place['mode']}); chmod 700 it"
        )
    if place["file_system"] and folder.is_remote(place["file_system"]):
        yield Finding(
            "problem",
            f"the folder is on {place['file_system']}, which other machines share: SQLite's "
            "write-ahead log works within one machine only; set XDG_STATE_HOME to a local disk",
        )


def _of_sessions(sessions: Sessions, recoveries: Sequence[Recovery]) -> Iterator[Finding]:
    for session_id, problem in sessions.flagged.items():
        told = [one for one in recoveries if one.session_id == session_id and one.partial]
        remarks = "; ".join(map(_remark, told)) or "no report can be read"
        yield Finding(
            "problem", problem, (session_id,), (remarks,) if problem.endswith(_LOST) else ()
        )
    if sessions.stale:
        yield Finding(
            "problem",
            "say running but have no writer: their process ended without saying how (see reap)",
            tuple(sessions.stale),
        )


def _of_originals(names: folder.Names, recoveries: Iterable[Recovery]) -> Iterator[Finding]:
    reports = {one.original.name: one for one in recoveries if one.original}
    if names.originals:
        yield Finding(
            "problem",
            "damaged originals kept; look at them, then keep or delete",
            names.originals,
            tuple(_remark(reports.get(name)) for name in names.originals),
        )


def _remark(recovery: Recovery | None) -> str:
    if recovery is None:
        return "no report of a recovery"
    if not recovery.tables:
        said = "nothing could be saved"
    else:
        said = notices.incomplete(recovery) or "everything was saved"
    return f"{moments.local(recovery.recovered_at)}: {said}"


def _of_names(names: folder.Names) -> Iterator[Finding]:
    kinds: tuple[tuple[Severity, tuple[str, ...], str], ...] = (
        ("problem", names.unfinished, "left by an interrupted create or recovery"),
        ("problem", names.orphans, "logs without their session file; it was moved or deleted"),
        ("problem", names.open_to_others, "files that others may open; chmod 600 them"),
    )
    for severity, found, text in kinds:
        if found:
            yield Finding(severity, text, found)


def _of_cache(cache: State) -> Iterator[Finding]:
    if cache.problem is not None:
        yield Finding(
            "problem",
            f"the cache is of no use ({cache.problem}), so a search may find too little; no "
            "session is concerned: run statebackend doctor --rebuild-cache",
            (str(cache.path),),
        )


def _form(
    versions: dict[str, str | None],
    place: dict[str, Any],
    sessions: Sessions,
    names: folder.Names,
    findings: list[Finding],
) -> dict[str, Any]:
    return {
        "versions": versions,
        "folder": place,
        "sessions": {
            "total": sessions.total,
            "by_status": dict(sessions.by_status),
            "live": sessions.live,
            "stale": sessions.stale,
            "bad": [
                {"session_id": session_id, "problem": problem}
                for session_id, problem in sessions.flagged.items()
            ],
        },
        **asdict(names),
        "findings": [asdict(finding) for finding in findings],
    }


def _write(
    versions: dict[str, str | None],
    place: dict[str, Any],
    sessions: Sessions,
    cache: str,
    findings: list[Finding],
) -> None:
    counts = ", ".join(f"{count:,} {word}" for word, count in sorted(sessions.by_status.items()))
    facts = {
        **{name: found or "not installed" for name, found in versions.items()},
        "folder": place["path"] if place["exists"] else f"{place['path']} (does not exist yet)",
        "rights": place["mode"] or "-",
        "file system": place["file_system"] or "unknown",
        "sessions": f"{sessions.total:,}" + (f" ({counts})" if counts else ""),
        "live": f"{sessions.live:,}",
        "cache": cache,
    }
    for name, value in facts.items():
        output.write(f"{name:<13} {escape.line(value)}\n")
    for finding in findings:
        output.write(f"\n{_paragraph(finding)}")
    if not findings:
        output.write("\nnothing found\n")


def _paragraph(finding: Finding) -> str:
    remarks = [f" ({remark})" for remark in finding.remarks] or [""] * len(finding.names)
    lines = [name + remark for name, remark in zip(finding.names, remarks, strict=True)]
    shown = [f"    {escape.line(line)}\n" for line in lines[:_NAMED]]
    if len(finding.names) > _NAMED:
        shown.append(f"    and {len(finding.names) - _NAMED:,} more: see --json\n")
    count = f"{texts.plural(len(finding.names), 'name')}: " if len(finding.names) > 1 else ""
    return f"{finding.severity}: {count}{escape.line(finding.text)}\n{''.join(shown)}"
