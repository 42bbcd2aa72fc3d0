"""Rows whose overflow chain seemed to continue."""

from __future__ import annotations

from statebackend.recovery.salvage.evidence import Evidence
from statebackend.recovery.salvage.records import save_cells
from statebackend.recovery.salvage.target import Target


def run(evidence: Evidence, target: Target) -> None:
    """Save the postponed rows, now that the owners of most overflow pages are known.

    Answers a damaged pointer in the last page of an overflow chain. It leads to a page that another
    row owns by now, or the chain is a part of another row's and stays out.
    """
    postponed, evidence.postponed = evidence.postponed, []
    for place, shape, cell in postponed:
        save_cells(evidence, target, place, (shape, [cell]), route="page")
    evidence.postponed.clear()
