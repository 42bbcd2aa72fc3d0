"""``doctor``: the state of the store, and what needs attention."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import click

from statebackend.catalogue.state import CatalogueState, check, state_of
from statebackend.cli import (
    display,
    escape,
    exit_codes,
    folder_checks,
    json_values,
    notices,
    output,
    progress,
    times,
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
class Diagnosis:
    """One finding. A ``problem`` needs attention, a ``warning`` is good to know.

    ``what`` is a code that stays the same, ``text`` one line. ``names`` are the sessions or files
    concerned, ``remarks`` one remark for each of them, or none.
    """

    severity: Severity
    what: str
    text: str
    names: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


@dataclass(slots=True)
class Tally:
    """Counts of the session files, and the ids of those that need attention."""

    total: int = 0
    live: int = 0
    by_status: Counter[str] = field(default_factory=Counter)
    stale: list[str] = field(default_factory=list)
    flagged: dict[str, str] = field(default_factory=dict)


@click.command("doctor", cls=SessionsCommand)
@click.option(
    "--rebuild-cache",
    is_flag=True,
    help="Delete the catalogue and rebuild it from the session files first.",
)
@json_option
def command(*, rebuild_cache: bool, as_json: bool) -> None:
    """Show the state of the store and what needs attention.

    No session is changed. The exit code is 1 if there is a problem, 0 if there are only warnings.
    """
    from statebackend import StateBackend
    from statebackend.catalogue import Catalogue

    backend = StateBackend()
    if rebuild_cache:
        with progress.show("Reading") as report:
            Catalogue(backend.directory).rebuild(report)
    versions, place = _versions(), _describe_folder(backend.directory)
    sessions = _count_sessions(backend.scan())
    names = folder_checks.find_suspect_names(backend.directory)
    cache = check(state_of(backend.directory))
    recoveries = backend.recoveries()
    findings = [
        *_check_versions(),
        *_check_folder(place),
        *_check_sessions(sessions, recoveries),
        *_check_originals(names, recoveries),
        *_check_names(names),
        *_check_cache(cache),
    ]
    if as_json:
        form = _to_json(versions, place, sessions, names, findings)
        form["cache"] = {**asdict(cache), "path": str(cache.path)}
        output.write_json({**form, "recoveries": [*map(json_values.recovery, recoveries)]})
    else:
        _write(versions, place, sessions, _describe_cache(cache), findings)
    exit_codes.finish(attention=any(finding.severity == "problem" for finding in findings))


def _describe_cache(cache: CatalogueState) -> str:
    if cache.size_bytes is None:
        return f"{cache.path} (does not exist yet)"
    size = f"{cache.size_bytes / 1e6:,.1f} MB"
    if cache.problem is not None:
        return f"{cache.path} ({size}, cannot be used: {cache.problem})"
    text = f", {cache.text_bytes / 1e6:,.1f} MB of text to search" if cache.text_bytes else ""
    return f"{cache.path} ({size}, schema {cache.schema}, {cache.sessions:,} sessions{text})"


def _versions() -> dict[str, str | None]:
    """Return versions without importing the packages."""
    import platform
    import sqlite3

    interpreter = {"python": platform.python_version(), "sqlite": sqlite3.sqlite_version}
    return {**interpreter, **{name: _installed_version(name) for name in _PACKAGES}}


def _installed_version(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:  # running from a checkout that is not installed
        return None


def _describe_folder(directory: Path) -> dict[str, Any]:
    mode = folder_checks.permissions(directory)
    return {
        "path": str(directory),
        "exists": mode is not None,
        "mode": None if mode is None else f"{mode:04o}",
        "file_system": folder_checks.file_system(directory),
    }


def _count_sessions(entries: Iterable[SessionInfo | BadSession]) -> Tally:
    sessions = Tally()
    for entry in entries:
        sessions.total += 1
        if problem := json_values.problem(entry):
            sessions.flagged[entry.session_id] = problem.replace(json_values.ROWS_LOST, _LOST)
        if isinstance(entry, SessionInfo):
            _count(sessions, entry)
    return sessions


def _count(sessions: Tally, info: SessionInfo) -> None:
    sessions.by_status[str(info.status)] += 1
    sessions.live += info.live
    if info.status == SessionStatus.RUNNING and not info.live:
        sessions.stale.append(info.session_id)


def _check_versions() -> Iterator[Diagnosis]:
    import sqlite3

    if sqlite3.sqlite_version_info < _SAFE_SQLITE:
        yield Diagnosis(
            "warning",
            "sqlite",
            f"SQLite {sqlite3.sqlite_version} is older than 3.51.3, which fixed a race: a "
            "checkpoint by a second connection during a write can damage the file. This package "
            "never runs one; let no other program write to these files",
        )


def _check_folder(place: dict[str, Any]) -> Iterator[Diagnosis]:
    if place["exists"] and int(place["mode"], 8) & 0o077:
        yield Diagnosis(
            "problem",
            "folder_rights",
            f"other users can enter the folder (mode {place['mode']}); run chmod 700 on it",
        )
    if place["file_system"] and folder_checks.is_network(place["file_system"]):
        yield Diagnosis(
            "problem",
            "network",
            f"the folder is on {place['file_system']}, a network file system, and SQLite's WAL "
            "works on one machine only; set XDG_STATE_HOME to a local disk",
        )


def _check_sessions(sessions: Tally, recoveries: Sequence[Recovery]) -> Iterator[Diagnosis]:
    for session_id, problem in sessions.flagged.items():
        lost_rows = problem.endswith(_LOST)
        reports = [
            recovery
            for recovery in recoveries
            if recovery.session_id == session_id and recovery.partial
        ]
        remark = "; ".join(map(_describe_recovery, reports)) or "no report can be read"
        what = "lost_rows" if lost_rows else "session"
        yield Diagnosis("problem", what, problem, (session_id,), (remark,) if lost_rows else ())
    if sessions.stale:
        yield Diagnosis(
            "problem",
            "stale",
            "marked running but without a writer: the process ended without closing them; run "
            "statebackend reap",
            tuple(sessions.stale),
        )


def _check_originals(
    names: folder_checks.SuspectNames, recoveries: Iterable[Recovery]
) -> Iterator[Diagnosis]:
    reports = {report.original.name: report for report in recoveries if report.original}
    if names.originals:
        yield Diagnosis(
            "problem",
            "original",
            "damaged originals that recoveries kept; check them, then keep or delete them",
            names.originals,
            tuple(_describe_recovery(reports.get(name)) for name in names.originals),
        )


def _describe_recovery(recovery: Recovery | None) -> str:
    if recovery is None:
        return "no report of a recovery"
    if not recovery.tables:
        result = "nothing could be saved"
    else:
        result = notices.describe_losses(recovery) or "everything was saved"
    return f"{times.format_second(recovery.recovered_at)}: {result}"


def _check_names(names: folder_checks.SuspectNames) -> Iterator[Diagnosis]:
    kinds = (
        ("unfinished", names.unfinished, "left by an interrupted create or recovery"),
        ("orphan", names.orphans, "WAL or journal whose session file was moved or deleted"),
        ("rights", names.open_to_others, "files that other users can open; run chmod 600 on them"),
    )
    for what, paths, text in kinds:
        if paths:
            yield Diagnosis("problem", what, text, paths)


def _check_cache(cache: CatalogueState) -> Iterator[Diagnosis]:
    if cache.problem is not None:
        yield Diagnosis(
            "problem",
            "cache",
            f"the catalogue cannot be used ({cache.problem}), so a search may miss events; "
            "sessions are not affected; run statebackend doctor --rebuild-cache",
            (str(cache.path),),
        )


def _to_json(
    versions: dict[str, str | None],
    place: dict[str, Any],
    sessions: Tally,
    names: folder_checks.SuspectNames,
    findings: list[Diagnosis],
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
    sessions: Tally,
    cache: str,
    findings: list[Diagnosis],
) -> None:
    counts = ", ".join(
        f"{count:,} {status}" for status, count in sorted(sessions.by_status.items())
    )
    facts = {
        **{name: version or "not installed" for name, version in versions.items()},
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
        output.write("\nno problems\n")


def _paragraph(finding: Diagnosis) -> str:
    remarks = [f" ({remark})" for remark in finding.remarks] or [""] * len(finding.names)
    lines = [name + remark for name, remark in zip(finding.names, remarks, strict=True)]
    first = [f"    {escape.line(line)}\n" for line in lines[:_NAMED]]
    if len(finding.names) > _NAMED:
        first.append(f"    and {len(finding.names) - _NAMED:,} more: see --json\n")
    count = f"{display.plural(len(finding.names), 'name')}: " if len(finding.names) > 1 else ""
    return f"{finding.severity}: {count}{escape.line(finding.text)}\n{''.join(first)}"
