"""Long sessions are read in bounded memory, by every way of reading."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from statebackend import StateBackend
from tests.crash.processes import run
from tests.memory import reading

pytestmark = pytest.mark.slow

MEGABYTE = 1_000_000
MANY, LARGE = 200_000, 2000


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """Return folder and id of a session of 400 MB: 200,000 events of 2,000 bytes."""
    backend = StateBackend(tmp_path_factory.mktemp("memory"))
    with backend.create("default") as session:
        for _ in range(MANY // 2000):
            with session.batch() as batch:
                for _ in range(2000):
                    batch.append_prompt(payload=b"x" * LARGE, schema_version="1")
    assert session.path.stat().st_size > MANY * LARGE
    yield backend.directory, session.session_id
    shutil.rmtree(backend.directory)  # pytest would keep it for three runs


@pytest.fixture(autouse=True)
def _tidy(tmp_path: Path) -> Iterator[None]:
    """Keep no hundreds of megabytes after the test."""
    yield
    shutil.rmtree(tmp_path)


@pytest.mark.parametrize("way", reading.WAYS)
def test_reading_400_megabytes_takes_less_than_100(session: tuple[Path, str], way: str) -> None:
    """The peak of a process of its own, above where it stood before reading."""
    folder, session_id = session
    (told,) = run(reading.read, folder, session_id, way, fresh=True)
    assert told["rows"] == MANY
    assert told["peak"] < 100 * MEGABYTE


def test_large_payloads_are_not_collected_by_the_page(backend: StateBackend) -> None:
    """40 payloads of 10 MB, which would all fit into one page of rows, are read one by one."""
    with backend.create("default") as session:
        for _ in range(40):
            session.append_prompt(payload=b"x" * 10 * MEGABYTE, schema_version="1")
    (told,) = run(reading.read, backend.directory, session.session_id, "events", fresh=True)
    assert told["rows"] == 40
    assert told["peak"] < 100 * MEGABYTE


def test_writing_400_megabytes_takes_less_than_100(tmp_path: Path) -> None:
    """A writer keeps nothing of what it has written."""
    (told,) = run(reading.write, tmp_path, MANY // 10, LARGE * 10, fresh=True)
    assert told["rows"] == MANY // 10
    assert told["peak"] < 100 * MEGABYTE


def test_searching_400_megabytes_takes_less_than_100(backend: StateBackend) -> None:
    """Nor does a payload of 100 MB in it; the index is built in portions."""
    with backend.create("default") as session:
        session.append_prompt(payload=b"large words " * 9_000_000, schema_version="1")
        for _ in range(100):
            with session.batch() as batch:
                for number in range(100):
                    payload = b"apple %d " % number + b"some words " * 2700
                    batch.append_prompt(payload=payload, schema_version="1")
    (told,) = run(reading.search, backend.directory, "apple", fresh=True)
    assert told["rows"] == 10_000
    assert told["peak"] < 100 * MEGABYTE
