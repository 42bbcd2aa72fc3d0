"""Creating: a session exists whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from statebackend import SessionExists, StateBackend, StorageError
from statebackend.files.paths import link_new
from tests.session_files import UNKNOWN_ID, listing, new


def test_a_create_that_fails_while_building_leaves_nothing(
    backend: StateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The id is free again."""

    def fail(*_given: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(StorageError):
            backend.create("default", session_id=UNKNOWN_ID)
    assert listing(backend.directory) in ([], [".locks"])
    new(backend, session_id=UNKNOWN_ID)


def test_a_name_that_is_taken_at_the_last_moment_is_not_replaced(
    backend: StateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program may not ask for the claim."""

    def take_name_first(building: Path, path: Path) -> None:
        path.write_bytes(b"theirs")
        link_new(building, path)

    monkeypatch.setattr("statebackend.opening.create.link_new", take_name_first)
    with pytest.raises(SessionExists) as caught:
        backend.create("default", session_id=UNKNOWN_ID)
    assert caught.value.path.read_bytes() == b"theirs"
    assert listing(backend.directory) == [".locks", f"{UNKNOWN_ID}.sqlite"]
