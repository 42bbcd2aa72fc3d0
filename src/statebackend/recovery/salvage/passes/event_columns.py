"""Kinds and producers of events, which an index has as well as the row."""

from __future__ import annotations

from collections.abc import Iterator

from statebackend.recovery.salvage.evidence import Evidence
from statebackend.recovery.salvage.target import Target
from statebackend.values.recorded import EventKind

_KINDS = {kind.value for kind in EventKind}
_KIND = ("kind",)
_PRODUCER = ("producer_category", "producer_name", "producer_version")
_Texts = tuple[str, ...]


def run(evidence: Evidence, target: Target) -> None:
    """Give each event the kind and producer that the index has, if the row's cannot be right.

    Answers damage to these columns of a row. Of row and index, the one with an unknown kind or with
    a producer that the session does not have is wrong; where both may be right, the event is
    doubtful. An entry whose sequence was damaged belongs to no event that another entry agrees
    with.
    """
    differing = {
        (sequence, columns): texts
        for sequence, columns, texts in _read_entries(evidence)
        if (stored := _read_event(target, sequence, columns)) is not None and stored != texts
    }
    if not differing:
        return
    for sequence, columns, texts in _read_entries(evidence):
        if (sequence, columns) in differing and _read_event(target, sequence, columns) == texts:
            del differing[sequence, columns]
    for (sequence, columns), indexed in sorted(differing.items()):
        _repair(target, sequence, columns, indexed)


def _repair(target: Target, sequence: int, columns: _Texts, indexed: _Texts) -> None:
    stored = _read_event(target, sequence, columns)
    assert stored is not None
    names = f"events sequence {sequence}: {', '.join(columns)}"
    may_be_indexed = _is_known(target, indexed, sequence)
    if _is_known(target, stored, sequence):
        if may_be_indexed:
            target.note_doubtful("events", f"{names} may be {indexed!r}, as the index has it")
    elif may_be_indexed:
        assignments = ", ".join(f"{column} = ?" for column in columns)
        update = f"UPDATE events SET {assignments} WHERE sequence = ?"
        target.driver.execute(update, (*indexed, sequence))
        target.note_index_repair(sequence, columns, stored)
    else:
        target.note_doubtful("events", f"{names} may be wrong")


def _read_entries(evidence: Evidence) -> Iterator[tuple[int, _Texts, _Texts]]:
    """Return (sequence, columns, texts) of the entries of both indexes."""
    for *raw, sequence in evidence.event_records():
        try:
            texts = tuple(text.decode() for text in raw)
        except (AttributeError, UnicodeDecodeError):  # not a text, or a damaged one
            continue
        if len(texts) == len(_PRODUCER):
            yield sequence, _PRODUCER, texts
        elif len(texts) == 1 and texts[0] in _KINDS:
            yield sequence, _KIND, texts


def _read_event(target: Target, sequence: int, columns: _Texts) -> _Texts | None:
    query = f"SELECT {', '.join(columns)} FROM events WHERE sequence = ?"
    row: _Texts | None = target.driver.execute(query, (sequence,)).fetchone()
    return row


def _is_known(target: Target, texts: _Texts, event: int) -> bool:
    return texts[0] in _KINDS if len(texts) == 1 else _has_producer(target, texts, event)


def _has_producer(target: Target, producer: _Texts, event: int) -> bool:
    """Return whether the session has this producer: category, name and version."""
    # The producer's own row may be lost, so an event other than *event* counts too.
    query = (
        "SELECT 1 FROM producers WHERE (category, name, version) = (:c, :n, :v) UNION ALL "
        "SELECT 1 FROM events WHERE (producer_category, producer_name, producer_version) = "
        "(:c, :n, :v) AND sequence <> :event LIMIT 1"
    )
    category, name, version = producer
    parameters = {"c": category, "n": name, "v": version, "event": event}
    return target.driver.execute(query, parameters).fetchone() is not None
