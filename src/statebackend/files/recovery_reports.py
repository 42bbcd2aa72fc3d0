"""Reports of recoveries as JSON files beside the damaged original."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from statebackend.files.paths import SUFFIX, SessionFiles
from statebackend.values import timestamps
from statebackend.values.reports import Recovery, TableRecovery

_REPORT = re.compile(r"\.sqlite\.corrupt(\.\d+)?\.json")
INVALID_REPORT = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
_log = logging.getLogger(__name__)


def to_json(recovery: Recovery) -> dict[str, Any]:
    """Return *recovery* as a JSON object; files are named without their folder.

    It includes the derived values: ``complete``, and ``lost`` of each table.
    """
    return {
        "session_id": recovery.session_id,
        "original": recovery.original and recovery.original.name,
        "report": recovery.report and recovery.report.name,
        "aside": recovery.aside and recovery.aside.name,
        "recovered_at": timestamps.to_text(recovery.recovered_at),
        "complete": recovery.complete,
        "reasons": list(recovery.reasons),
        "tables": [{**asdict(table), "lost": table.lost} for table in recovery.tables],
        "derived": list(recovery.derived),
        "notes": list(recovery.notes),
        "uncounted": list(recovery.uncounted),
    }


def to_text(recovery: Recovery) -> str:
    """Return the content of the report's file."""
    return json.dumps(to_json(recovery), indent=2) + "\n"


def from_text(text: str, path: Path) -> Recovery:
    """Return the report in *text*, the content of the file *path*.

    The files it names are resolved beside *path*, so a folder may be moved. Raises one of
    ``INVALID_REPORT`` where *text* is not a report.
    """
    form = json.loads(text)
    recovered_at = timestamps.from_text(form["recovered_at"])
    if isinstance(recovered_at, str):
        raise ValueError(f"{recovered_at!r} is not a time")  # noqa: TRY004 - the type is right
    return Recovery(
        session_id=_text(form["session_id"]),
        path=_beside(path, _text(form["session_id"]) + SUFFIX),
        original=_named(path, form["original"]),
        report=path,
        aside=_named(path, form["aside"]),
        recovered_at=recovered_at,
        reasons=_texts(form["reasons"]),
        tables=tuple(_table(table) for table in form["tables"]),
        derived=_texts(form["derived"]),
        notes=_texts(form["notes"]),
        uncounted=_texts(form.get("uncounted", [])),  # absent in older reports
    )


def read_all(directory: Path) -> list[Recovery]:
    """Return every report in *directory*, newest first.

    One that cannot be read is skipped and logged as a warning.
    """
    return _read_sorted(_list_reports(directory))


def read_of(path: Path) -> list[Recovery]:
    """Return the reports of the session file *path*, newest first, without listing its folder."""
    return _read_sorted(_reports_of(path))


def count_known_losses(
    tables: Iterable[TableRecovery], earlier: Sequence[Recovery]
) -> Iterator[TableRecovery]:
    """Set each table's ``known`` to the missing sequences that *earlier* reports list as well."""
    for table in tables:
        known_ranges = sorted(
            missing
            for report in earlier
            for reported in report.tables
            if reported.table == table.table
            for missing in reported.missing
        )
        known = sum(_count_covered(first, last, known_ranges) for first, last in table.missing)
        yield replace(table, known=known)


def _count_covered(first: int, last: int, ranges: Iterable[tuple[int, int]]) -> int:
    """Count the numbers from *first* to *last* in sorted *ranges*, which may overlap."""
    count = 0
    for start, end in ranges:
        count += len(range(max(start, first), min(end, last) + 1))
        first = max(first, end + 1)
    return count


def reports_loss(path: Path) -> bool:
    """Return whether a report of the session file *path* lists lost rows, or cannot be read."""
    for report in _reports_of(path):
        try:
            if from_text(report.read_text(encoding="utf-8"), report).partial:
                return True
        except (OSError, *INVALID_REPORT):
            return True
    return False


def _read_sorted(paths: Iterable[Path]) -> list[Recovery]:
    reports = []
    for path in paths:
        try:
            reports.append(from_text(path.read_text(encoding="utf-8"), path))
        except (OSError, *INVALID_REPORT) as error:
            _log.warning("%s: is not a readable recovery report: %s", path, error)
    return sorted(reports, key=lambda each: (each.recovered_at, each.session_id), reverse=True)


def _list_reports(directory: Path) -> list[Path]:
    try:
        return sorted(path for path in directory.iterdir() if _REPORT.search(path.name))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _reports_of(path: Path) -> Iterator[Path]:
    for number, original in enumerate(SessionFiles(path).corrupt(), start=1):
        report = Path(f"{original}.json")
        if report.exists():
            yield report
        elif number > 1 and not os.path.lexists(original):  # only the first may be missing
            return


def _beside(path: Path, name: str) -> Path:
    if Path(name).name != name:
        raise ValueError(f"{name!r} is not the name of a file in the folder")
    return path.with_name(name)


def _named(path: Path, name: object) -> Path | None:
    return None if name is None else _beside(path, _text(name))


def _table(form: dict[str, Any]) -> TableRecovery:
    added_later = {"known": 0, "doubtful": 0}  # absent in older reports
    counts = ("kept", "known", "repaired", "doubtful", "orphaned", "set_aside")
    return TableRecovery(
        table=_text(form["table"]),
        missing=tuple((int(first), int(last)) for first, last in form["missing"]),
        routes={_text(route): int(count) for route, count in form["routes"].items()},
        **{name: int((added_later | form)[name]) for name in counts},
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


def _texts(values: list[object]) -> tuple[str, ...]:
    return tuple(_text(value) for value in values)
