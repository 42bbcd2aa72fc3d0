"""A session that lost rows to damage is marked as incomplete in every answer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from statebackend import SessionInfo, StateBackend
from statebackend.scanning import scan
from tests.session_files import damage_index, fill, new, overwrite, path_of


def lossy(backend: StateBackend, **columns: object) -> str:
    """Make a session, destroy a page of its events, recover it, and return its id."""
    with backend.create("default", **columns) as session:  # type: ignore[arg-type]
        fill(session)
    session_id = session.session_id
    lose_more(backend, session_id)
    return session_id


def lose_more(backend: StateBackend, session_id: str) -> None:
    """Append many events, destroy a page of them, and recover what is left."""
    with backend.open(session_id) as session:
        for _ in range(100):
            session.append_prompt(payload=b"x" * 300, schema_version="1")
    path = path_of(backend, session_id)
    content = path.read_bytes()
    leaves = [
        number
        for number in range(1, len(content) // 4096 + 1)
        if content[(number - 1) * 4096 : number * 4096].count(b"x" * 300) > 5
    ]
    overwrite(path, leaves[-2], bytes(4096))
    with backend.open(session_id) as session:
        assert session.recovery is not None
        assert session.recovery.partial
        assert session.info.incomplete


def marks(backend: StateBackend) -> dict[str, bool]:
    """Return which sessions are marked, after checking that all answers agree."""
    infos = [one for one in backend.list(limit=None) if isinstance(one, SessionInfo)]
    assert list(backend.scan()) == infos
    assert {node.session.session_id: node.session for node in backend.tree().nodes} == {
        info.session_id: info for info in infos
    }
    alone = scan.read_each(
        backend.directory, scan.read_summary, [info.session_id for info in infos]
    )
    assert list(alone) == infos
    for info in infos:
        with backend.read(info.session_id) as view:
            assert view.info == info
    return {info.session_id: info.incomplete for info in infos}


def test_a_session_is_marked_until_its_reports_are_moved(
    backend: StateBackend, tmp_path: Path
) -> None:
    """All answers agree, and the loss of one session marks no other."""
    whole, lost = new(backend, events=3), lossy(backend)
    assert marks(backend) == {whole: False, lost: True}
    path = path_of(backend, lost)
    for name in (".corrupt", ".corrupt.json"):
        Path(f"{path}{name}").rename(tmp_path / name)
    assert marks(backend) == {whole: False, lost: False}


def test_a_recovery_without_loss_leaves_no_mark(backend: StateBackend) -> None:
    """Here only an index was damaged."""
    session_id = new(backend, events=3)
    damage_index(path_of(backend, session_id))
    with backend.open(session_id) as session:
        assert session.recovery is not None
        assert session.recovery.complete
        assert not session.info.incomplete
    assert Path(f"{path_of(backend, session_id)}.corrupt.json").exists()
    assert marks(backend) == {session_id: False}


@pytest.mark.parametrize("moved", ["", ".2"])
def test_any_of_several_recoveries_marks_the_session(
    backend: StateBackend, tmp_path: Path, moved: str
) -> None:
    """Neither a later recovery nor moving the files of one of two removes the mark."""
    session_id = lossy(backend)
    path = path_of(backend, session_id)
    if moved:
        damage_index(path)
        with backend.open(session_id) as session:
            assert session.info.incomplete
    else:
        lose_more(backend, session_id)
    assert marks(backend) == {session_id: True}
    for ending in ("", ".json"):
        Path(f"{path}.corrupt{moved}{ending}").rename(tmp_path / f"moved{ending}")
    assert marks(backend) == {session_id: True}


def test_a_second_recovery_reports_earlier_losses(backend: StateBackend) -> None:
    """It counts only what was lost since."""
    session_id = lossy(backend)
    path = path_of(backend, session_id)
    (first,) = backend.recoveries()
    lost = first.tables[0].lost
    damage_index(path)
    with backend.open(session_id) as session:
        second = session.recovery
    assert second is not None
    events = second.tables[0]
    assert (events.missing, events.known, events.lost) == (first.tables[0].missing, lost, 0)
    (note,) = second.notes
    assert note.startswith(f"events: {lost} of the missing sequences were lost before, as an ")
    assert (second.complete, second.partial) == (False, True)
    lose_more(backend, session_id)
    events = backend.recoveries()[0].tables[0]
    assert events.known == lost
    assert 0 < events.lost == sum(end - start + 1 for start, end in events.missing) - lost


@pytest.mark.parametrize("content", [b"{", b"\xff", b"{}"])
def test_an_unreadable_report_marks_the_session(backend: StateBackend, content: bytes) -> None:
    """It may report lost rows."""
    session_id = new(backend, events=1)
    Path(f"{path_of(backend, session_id)}.corrupt.json").write_bytes(content)
    assert marks(backend) == {session_id: True}


def test_sums_over_an_incomplete_session_are_partial(backend: StateBackend) -> None:
    """Those that include it, and no others."""
    parent = new(backend, events=1)
    lost = lossy(backend, parent_session_id=parent, depth=1)
    other = new(backend, events=1)
    for tree, partial in ((backend.tree(), True), (backend.tree(other), False)):
        assert (tree.partial, tree.incomplete) == (partial, (lost,) * partial)
    for session_id, with_tree, partial in (
        (parent, False, False),
        (parent, True, True),
        (lost, False, True),
        (other, True, False),
    ):
        spent = backend.cost(session_id, tree=with_tree)
        by_model = backend.cost_by("model", session_ids=[session_id], tree=with_tree)
        for found in (spent, by_model):
            assert (found.partial, found.incomplete) == (partial, (lost,) * partial)
    for everything in (
        backend.cost_by("day"),
        backend.plan_rules(),
        backend.referenced_producers(),
    ):
        assert (everything.partial, everything.incomplete) == (True, (lost,))


def test_a_part_of_a_damaged_session_is_marked(backend: StateBackend) -> None:
    """By this recovery, and by the reports in the folder."""
    session_id = new(backend, events=400, size=300)
    path = path_of(backend, session_id)
    sound = path.read_bytes()
    overwrite(path, path.stat().st_size // 4096 // 2, bytes(4096))
    with backend.read_partial(session_id) as view:
        assert view.info.incomplete
    path.write_bytes(sound)
    damage_index(path)
    with backend.read_partial(session_id) as view:
        assert view.recovery is not None
        assert not view.info.incomplete
        Path(f"{path}.corrupt.json").write_text("{")
        assert view.info.incomplete


def test_a_recovery_during_a_scan_marks_the_session(backend: StateBackend) -> None:
    """The names were read before it, but the file has changed since."""
    first = new(backend, events=400, size=300)
    second = new(backend)
    found = backend.scan()
    assert next(found).session_id == second
    path = path_of(backend, first)
    overwrite(path, path.stat().st_size // 4096 // 2, bytes(4096))
    with backend.open(first):
        pass
    info = next(found)
    assert isinstance(info, SessionInfo)
    assert info.incomplete


def test_a_scan_checks_for_reports_by_the_listing(
    backend: StateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not look for the reports of each session."""
    session_ids = [new(backend) for _ in range(3)]
    for session_id in session_ids:
        os.utime(path_of(backend, session_id))
    monkeypatch.setattr(scan, "_GRAIN_NS", 0)
    looked: list[str] = []
    look = os.access

    def access(name: str, mode: int) -> bool:
        looked.append(str(name))
        return look(name, mode)

    monkeypatch.setattr(os, "access", access)
    assert len(list(backend.scan())) == 3
    assert not [name for name in looked if name.endswith(".json")]
    assert backend.cost(session_ids[0]).incomplete == ()
    assert [name for name in looked if name.endswith(".json")]
