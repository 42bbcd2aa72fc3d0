"""``doctor``: the state of the store, and what needs attention."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import click

from statebackend.catalogue import state as catalogue_state
from statebackend.cli import display, folder_checks, json_values, notices, options, output, progress
from statebackend.cli.escape import line
from statebackend.cli.exit_codes import finish
from statebackend.cli.times import format_second
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
    """Counts of the session files, and those that need attention, with the keys of the JSON."""

    total: int = 0
    live: int = 0
    by_status: dict[str, int] = field(default_factory=dict)
    stale: list[str] = field(default_factory=list)
    bad: list[dict[str, str]] = field(default_factory=list)


@click.command("doctor", cls=options.SessionsCommand)
@click.option(
    "--rebuild-cache",
    is_flag=True,
    help="Delete the catalogue and rebuild it from the session files first.",
)
@options.json_option
def command(*, rebuild_cache: bool, as_json: bool) -> None:
    """Show the state of the store and what needs attention.

    No session is changed. The exit code is 1 if there is a problem, 0 if there are only warnings.
    """
    from statebackend.catalogue import Catalogue

    backend = options.open_backend()
    if rebuild_cache:
        with progress.show("Reading") as report:
            Catalogue(backend.directory).rebuild(report)
    versions, place = _versions(), _describe_folder(backend.directory)
    sessions = _count_sessions(backend.scan())
    names = folder_checks.find_suspect_names(backend.directory)
    cache = catalogue_state.check(catalogue_state.state_of(backend.directory))
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
        output.write_json(
            {
                "versions": versions,
                "folder": place,
                "sessions": asdict(sessions),
                **asdict(names),
                "findings": [asdict(finding) for finding in findings],
                "cache": {**asdict(cache), "path": str(cache.path)},
                "recoveries": [*map(json_values.recovery, recoveries)],
            }
        )
    else:
        _write_facts(versions, place, sessions, _describe_cache(cache))
        for finding in findings:
            output.write(f"\n{_paragraph(finding)}")
        if not findings:
            output.write("\nno problems\n")
    finish(attention=any(finding.severity == "problem" for finding in findings))


def _describe_cache(cache: catalogue_state.CatalogueState) -> str:
    if cache.size_bytes is None:
        return f"{cache.path} (does not exist yet)"
    size = f"{cache.size_bytes / 1e6:,.1f} MB"
    if cache.problem is not None:
        return f"{cache.path} ({size}, cannot be used: {cache.problem})"
    text = f", {cache.text_bytes / 1e6:,.1f} MB of text to search" if cache.text_bytes else ""
    return f"{cache.path} ({size}, schema {cache.schema}, {cache.sessions:,} sessions{text})"


def _versions() -> dict[str, str | None]:
    """Return versions without importing the packages; None for one that is not installed."""
    import platform
    import sqlite3
    from importlib import metadata

    versions: dict[str, str | None] = {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
    }
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # running from a checkout
            versions[name] = None
    return versions


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
            problem = problem.replace(json_values.ROWS_LOST, _LOST)
            sessions.bad.append({"session_id": entry.session_id, "problem": problem})
        if not isinstance(entry, SessionInfo):
            continue
        status = str(entry.status)
        sessions.by_status[status] = sessions.by_status.get(status, 0) + 1
        sessions.live += entry.live
        if entry.status == SessionStatus.RUNNING and not entry.live:
            sessions.stale.append(entry.session_id)
    return sessions


def _check_versions() -> Iterator[Diagnosis]:
    import sqlite3

    if sqlite3.sqlite_version_info < _SAFE_SQLITE:
        text = (
            f"SQLite {sqlite3.sqlite_version} is older than 3.51.3, which fixed a race: a "
            "checkpoint by a second connection during a write can damage the file. This package "
            "never runs one; let no other program write to these files"
        )
        yield Diagnosis("warning", "sqlite", text)


def _check_folder(place: dict[str, Any]) -> Iterator[Diagnosis]:
    if place["exists"] and int(place["mode"], 8) & 0o077:
        text = f"other users can enter the folder (mode {place['mode']}); run chmod 700 on it"
        yield Diagnosis("problem", "folder_rights", text)
    if place["file_system"] and folder_checks.is_network(place["file_system"]):
        text = (
            f"the folder is on {place['file_system']}, a network file system, and SQLite's WAL "
            "works on one machine only; set XDG_STATE_HOME to a local disk"
        )
        yield Diagnosis("problem", "network", text)


def _check_sessions(sessions: Tally, recoveries: Sequence[Recovery]) -> Iterator[Diagnosis]:
    for entry in sessions.bad:
        session_id, problem = entry["session_id"], entry["problem"]
        if not problem.endswith(_LOST):
            yield Diagnosis("problem", "session", problem, (session_id,))
            continue
        reports = notices.reports_of_losses(recoveries, session_id)
        remark = "; ".join(map(_describe_recovery, reports)) or "no report can be read"
        yield Diagnosis("problem", "lost_rows", problem, (session_id,), (remark,))
    if sessions.stale:
        text = (
            "marked running but without a writer: the process ended without closing them; run "
            "statebackend reap"
        )
        yield Diagnosis("problem", "stale", text, tuple(sessions.stale))


def _check_originals(
    names: folder_checks.SuspectNames, recoveries: Iterable[Recovery]
) -> Iterator[Diagnosis]:
    reports = {report.original.name: report for report in recoveries if report.original}
    if names.originals:
        text = "damaged originals that recoveries kept; check them, then keep or delete them"
        remarks = tuple(_describe_recovery(reports.get(name)) for name in names.originals)
        yield Diagnosis("problem", "original", text, names.originals, remarks)


def _describe_recovery(recovery: Recovery | None) -> str:
    if recovery is None:
        return "no report of a recovery"
    if not recovery.tables:
        result = "nothing could be saved"
    else:
        result = notices.describe_losses(recovery) or "everything was saved"
    return f"{format_second(recovery.recovered_at)}: {result}"


def _check_names(names: folder_checks.SuspectNames) -> Iterator[Diagnosis]:
    kinds = (
        ("unfinished", names.unfinished, "left by an interrupted create or recovery"),
        ("orphan", names.orphans, "WAL or journal whose session file was moved or deleted"),
        ("rights", names.open_to_others, "files that other users can open; run chmod 600 on them"),
    )
    for what, paths, text in kinds:
        if paths:
            yield Diagnosis("problem", what, text, paths)


def _check_cache(cache: catalogue_state.CatalogueState) -> Iterator[Diagnosis]:
    if cache.problem is not None:
        text = (
            f"the catalogue cannot be used ({cache.problem}), so a search may miss events; "
            "sessions are not affected; run statebackend doctor --rebuild-cache"
        )
        yield Diagnosis("problem", "cache", text, (str(cache.path),))


def _write_facts(
    versions: dict[str, str | None], place: dict[str, Any], sessions: Tally, cache: str
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
        output.write(f"{name:<13} {line(value)}\n")


def _paragraph(finding: Diagnosis) -> str:
    total = len(finding.names)
    remarks = [f" ({remark})" for remark in finding.remarks] or [""] * total
    names = [name + remark for name, remark in zip(finding.names, remarks, strict=True)]
    first = [f"    {line(name)}\n" for name in names[:_NAMED]]
    if total > _NAMED:
        first.append(f"    and {total - _NAMED:,} more: see --json\n")
    count = f"{display.plural(total, 'name')}: " if total > 1 else ""
    return f"{finding.severity}: {count}{line(finding.text)}\n{''.join(first)}"
