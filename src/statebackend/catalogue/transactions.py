"""Transactions on the catalogue, and the error that makes it be rebuilt."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

_VALUE_ERRORS = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError)


class CatalogueDamaged(Exception):
    """The catalogue holds what was never stored in it, or lacks what was."""


@contextmanager
def transaction(driver: sqlite3.Connection, begin: str = "BEGIN") -> Iterator[None]:
    """Run the block in a transaction, which an error rolls back."""
    driver.execute(begin)
    try:
        yield
        driver.execute("COMMIT")
    finally:
        if driver.in_transaction:
            driver.execute("ROLLBACK")


@contextmanager
def value_errors_are_damage() -> Iterator[None]:
    """Raise :class:`CatalogueDamaged` where a value in a row is not what is stored there.

    The statements are known to be right, and zeroed sectors of a file may be rows with other values
    without an error of SQLite. The message names only the type, since Python's own quote values.
    """
    try:
        yield
    except _VALUE_ERRORS as error:
        raise CatalogueDamaged(type(error).__name__) from error
