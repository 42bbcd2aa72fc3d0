"""The mapped tables."""

from __future__ import annotations

from sqlalchemy import orm

from statebackend.schema import migrate, models
from statebackend.sqlite import engine
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


def test_the_base_maps_five_tables_and_nothing_else() -> None:
    """The names are the specification's."""
    assert sorted(models.Base.metadata.tables) == [
        "cost_ledger",
        "events",
        "plan_items",
        "producers",
        "session_meta",
    ]
