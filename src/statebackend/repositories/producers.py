"""``producers``: each distinct plug-in build, with the first event it wrote (SB-18)."""

from __future__ import annotations

import sqlite3

from sqlalchemy import Connection, select

from statebackend.repositories.statements import insert_text, table_of
from statebackend.schema import models
from statebackend.values import rows
from statebackend.values.recorded import Producer, ProducerEntry

_INSERT = insert_text(models.Producer, ignore_known=True)
_table = table_of(models.Producer)


def insert_if_new(driver: sqlite3.Connection, producer: Producer, event_sequence: int) -> None:
    """Add the producer at its first sighting; a known one stays as it is."""
    driver.execute(_INSERT, (producer.category, producer.name, producer.version, event_sequence))


def select_all(connection: Connection) -> list[ProducerEntry]:
    """Return every producer, in the order of first sighting."""
    query = select(_table).order_by(
        _table.c.first_seen_sequence, _table.c.category, _table.c.name, _table.c.version
    )
    return [
        ProducerEntry(
            Producer(rows.as_text(row.category), rows.as_text(row.name), rows.as_text(row.version)),
            row.first_seen_sequence,
        )
        for row in connection.execute(query)
    ]
