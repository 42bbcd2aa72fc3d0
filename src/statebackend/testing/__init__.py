"""Tools for the tests of programs that use this package.

``temporary_backend``, ``fixed_clock`` and ``fixed_ids`` give sessions that are the same in every
run; ``damage_page``, ``truncate`` and ``flip_bits`` damage a session's file::

    with temporary_backend() as backend, fixed_clock(), fixed_ids():
        with backend.create("default") as session:
            session.append_prompt(payload=b"hello", schema_version="1")
        damage_page(session.path, "events")
"""

from statebackend.testing.backends import fixed_clock as fixed_clock
from statebackend.testing.backends import fixed_ids as fixed_ids
from statebackend.testing.backends import temporary_backend as temporary_backend
from statebackend.testing.damage import damage_page as damage_page
from statebackend.testing.damage import flip_bits as flip_bits
from statebackend.testing.damage import truncate as truncate

__all__ = [
    "damage_page",
    "fixed_clock",
    "fixed_ids",
    "flip_bits",
    "temporary_backend",
    "truncate",
]
