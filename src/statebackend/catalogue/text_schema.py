"""The part of the catalogue's tables that holds the text of events."""

from __future__ import annotations

DDL: tuple[str, ...] = ()
"""The statements that make it, in their order."""
