"""The row of ``session_meta``."""

from __future__ import annotations

from typing import Any

from statebackend.recovery.salvage.evidence import Evidence
from statebackend.recovery.salvage.shapes import Column, Row, almost_equal
from statebackend.recovery.salvage.target import Target
from statebackend.values import ids, timestamps
from statebackend.values.recorded import SessionStatus


def run(evidence: Evidence, target: Target) -> None:
    """Save the best row of ``session_meta``, and derive the columns that it lacks.

    Answers a lost or damaged row: the id is the file's name, the times are those of the events.
    """
    shape, session_id = target.shapes["session_meta"], evidence.session_id
    derived = _derive(target, session_id)
    own = session_id.encode()
    usable = [
        (row, route)
        for row, route in evidence.metas
        if almost_equal(str(row.values[0]).encode(), own)
    ]
    if not usable:
        target.insert(Row(shape, derived, (), None), "derived")
        target.derived = tuple(column.name for column in shape.columns)
        return
    row, route = min(
        usable, key=lambda meta: (meta[0].unfit is not None, meta[0].values[0] != session_id)
    )
    values = list(row.values)
    wrong = [at for at, value in enumerate(values) if not _is_valid(shape.columns[at], value)]
    for at in wrong:
        values[at] = derived[at]
    renamed = () if values[0] == session_id else ("session_id",)
    values[0] = session_id
    not_utf8 = tuple(name for name in row.not_utf8 if name not in renamed)
    target.insert(Row(shape, tuple(values), (*row.repaired, *renamed), None, not_utf8), route)
    target.derived = tuple(shape.columns[at].name for at in wrong)


def _is_valid(column: Column, value: object) -> bool:
    if value is None:
        return column.nullable
    return isinstance(value, str if column.kind == "TEXT" else int)


def _derive(target: Target, session_id: str) -> tuple[Any, ...]:
    first, last = target.driver.execute(
        "SELECT (SELECT timestamp FROM events ORDER BY sequence LIMIT 1), "
        "(SELECT timestamp FROM events ORDER BY sequence DESC LIMIT 1)"
    ).fetchone()
    created = timestamps.to_text(ids.session_time(session_id))
    failed = str(SessionStatus.FAILED)
    return (session_id, None, "unknown", failed, 0, first or created, last or created)
