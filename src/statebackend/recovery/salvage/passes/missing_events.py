"""Events that only the indexes still have."""

from __future__ import annotations

from bisect import bisect_right

from statebackend.recovery.salvage.evidence import Evidence
from statebackend.recovery.salvage.shapes import is_id
from statebackend.recovery.salvage.target import Target
from statebackend.values.tables import SEQUENCED

_LEAST_SHARE = 0.9


def run(evidence: Evidence, target: Target) -> None:
    """Ask the indexes about the events that no pass has saved yet; decide on the last resorts.

    Saves no row. The last resorts check their rows against these entries, and the counter goes on
    behind the highest of them.
    """
    gaps = list(target.missing("events", evidence.max_sequence))
    starts = [first for first, _last in gaps]
    known = 0
    for text, sequence in evidence.first_index_texts():
        at = bisect_right(starts, sequence) - 1
        if at < 0 or sequence > gaps[at][1]:
            known += is_id(text)
        elif sequence <= evidence.max_sequence:
            evidence.missing_events.setdefault(sequence, []).append(text)
    expected = target.routes["events"].total()
    if not expected:  # all events are missing, so the counter says how many ids there were
        known = sum(any(map(is_id, texts)) for texts in evidence.missing_events.values())
        expected = max(evidence.survey.counters["events"], default=0)
    evidence.ids_complete = known >= _LEAST_SHARE * expected > 0
    evidence.incomplete = bool(
        evidence.missing_events or not evidence.metas or _has_gaps(evidence, target)
    )


def _has_gaps(evidence: Evidence, target: Target) -> bool:
    """Return whether a sequence is missing, or no counter says that none is."""
    for table in SEQUENCED:
        counters = evidence.counters(table)
        if not counters or any(True for _range in target.missing(table, max(counters))):
            return True
    return False
