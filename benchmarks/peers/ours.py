"""This package, one writer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.peers.worker import Peer, serve, timed
from benchmarks.samples import MODEL
from statebackend import Cost, Session, StateBackend

COST = Cost(
    provider_name="sample-provider",
    model_id="sample-model-large",
    input_tokens=12_000,
    output_tokens=800,
    cache_write_tokens=0,
    cache_read_tokens=90_000,
    cost_usd=0.0123,
)


def cost_row() -> tuple[str | int | float, ...]:
    """Return the same as the columns of a row."""
    return (
        COST.provider_name,
        COST.model_id,
        COST.input_tokens,
        COST.output_tokens,
        COST.cache_write_tokens,
        COST.cache_read_tokens,
        COST.cost_usd,
    )


class Ours(Peer):
    """``append_message`` with a cost."""

    name: ClassVar[str] = "statebackend, one writer"
    package: ClassVar[str] = "statebackend"
    stores: ClassVar[str] = "the event and its cost row"

    def __init__(self, folder: Path) -> None:
        self._session: Session = StateBackend(folder).create("default")
        self.path = self._session.path

    def append_each(self, texts: Sequence[str]) -> list[int]:
        """Append these messages in turn."""
        return timed(self._append, [text.encode() for text in texts])

    def _append(self, payload: bytes) -> None:
        self._session.append_message(producer=MODEL, payload=payload, cost=COST)

    def pragma(self, name: str) -> Any:
        """Ask the connection of the handle."""
        return self._session._held.driver.execute(f"PRAGMA {name}").fetchone()[0]  # noqa: SLF001


if __name__ == "__main__":
    serve(Ours)
