"""For tests: of programs that use this package, and of those that change its schema.

``temporary_backend``, ``fixed_clock`` and ``fixed_ids`` make sessions that are the same each time;
``damage_page``, ``truncate`` and ``flip_bits`` damage a session's file.
``fingerprint`` compares structures, ``revisions`` watches over the chain of revisions, and
``samples`` over stored files of released versions. The checks return what they found as lines of
text, so a test is one assertion::

    def test_revisions() -> None:
        assert revisions.problems(SESSIONS) == []
"""

from statebackend.schema import fingerprint
from statebackend.testing import revisions, samples
from statebackend.testing.backends import fixed_clock as fixed_clock
from statebackend.testing.backends import fixed_ids as fixed_ids
from statebackend.testing.backends import temporary_backend as temporary_backend
from statebackend.testing.damage import damage_page as damage_page
from statebackend.testing.damage import flip_bits as flip_bits
from statebackend.testing.damage import truncate as truncate

__all__ = [
    "damage_page",
    "fingerprint",
    "fixed_clock",
    "fixed_ids",
    "flip_bits",
    "revisions",
    "samples",
    "temporary_backend",
    "truncate",
]
