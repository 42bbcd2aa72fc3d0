"""The mapped tables."""

from __future__ import annotations

from sqlalchemy import orm

from statebackend.schema import migrate, models
from statebackend.sqlite import engine
from statebackend.values import tables
from tests.session_files import START


def event(number: int) -> models.Event:
    """Return a mapped event."""
    return models.Event(
        id=f"e{number}",
        timestamp=str(START),
        kind="message",
        producer_category="model",
        producer_name="m",
        producer_version="1",
        schema_version="1",
        payload=b"",
    )


def test_many_rows_are_inserted_at_once_and_get_their_sequences() -> None:
    """The models work with the ORM's own inserts, in the order of the objects."""
    from pathlib import Path

    connection = engine.connect_in_memory()
    try:
        migrate.upgrade(connection, Path(":memory:"))
        with orm.Session(connection) as session:
            made = [event(number) for number in range(5)]
            session.add_all(made)
            session.flush()
            assert [(one.sequence, one.id) for one in made] == [(n + 1, f"e{n}") for n in range(5)]
            ledger = [
                models.CostLedger(
                    event_sequence=n,
                    provider_name="p",
                    model_id="m",
                    input_tokens=1,
                    output_tokens=1,
                    cost_usd=0.5,
                )
                for n in (1, 2)
            ]
            session.add_all(ledger)
            session.flush()
            session.expire_all()
            stored = session.query(models.CostLedger).order_by(models.CostLedger.sequence).all()
            assert [(one.sequence, one.cache_write_tokens) for one in stored] == [(1, 0), (2, 0)]
    finally:
        connection.close()


def test_the_models_map_the_listed_tables_and_columns() -> None:
    """``values.tables`` is the only hand-written list; names and order are the same."""
    mapped = {
        table.name: tuple(column.name for column in table.columns)
        for table in models.Base.metadata.tables.values()
    }
    assert mapped == tables.COLUMNS
    assert set(mapped) == tables.TABLES


def test_every_table_but_session_meta_is_append_only() -> None:
    """SB-10 and SB-20: one row of one table is ever updated."""
    assert {"events", "cost_ledger", "plan_items", "producers"} == tables.APPEND_ONLY
