"""Sessions damaged in every way that is known: what is saved, and that the judge reports."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from statebackend import Recovery, TableRecovery
from tests.damage import bases, kinds, layout, plain, shares
from tests.damage.__main__ import LEAST_SHARE, main, share, table
from tests.damage.bases import PLANS, SHORT, Base, Plan
from tests.damage.checks import Judge
from tests.damage.layout import TABLES, Row, Values
from tests.damage.plain import Rows
from tests.damage.soak import Soak

_SEED = 20


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> list[Base]:
    """Return two sessions with all kinds of rows, with a WAL and without, and a killed one."""
    plans = (Plan(60, (0, 9_000), has_wal=True), Plan(200, (0, 900), page_size=512, rebuilt=True))
    return bases.pool(tmp_path_factory.mktemp("pool"), plans, seed=_SEED)


@pytest.mark.crash
def test_each_kind_of_damage_once(tmp_path: Path) -> None:
    """No invented row, no lost evidence, no lost row that could be read."""
    _soak(tmp_path, 60, PLANS[:SHORT])


@pytest.mark.slow
@pytest.mark.crash
def test_each_kind_of_damage_several_times(tmp_path: Path) -> None:
    """With more and larger sessions."""
    _soak(tmp_path, 150, PLANS)


def _soak(folder: Path, count: int, plans: tuple[Plan, ...]) -> None:
    cases = list(Soak(folder / "run", folder / "keep", _SEED, plans).cases(count))
    findings = [
        f"case {case.number} ({case.kind}): {line}" for case in cases for line in case.findings
    ]
    assert not findings, "\n".join([f"seed {_SEED}", *findings])
    assert share(cases) >= LEAST_SHARE, "\n".join(table(cases))


def test_the_walker_reads_what_sqlite_reads(pool: list[Base], tmp_path: Path) -> None:
    """Every row of every session, value by value, from the bytes alone."""
    for base in pool:
        path = tmp_path / f"{base.session_id}.sqlite"
        bases.put(base.files, path)
        assert _rows(base) == plain.stored(path)


def test_the_walker_gives_the_bytes_of_a_row(pool: list[Base], tmp_path: Path) -> None:
    """One byte of a row changed in its file changes that row, and no other."""
    for base in pool:
        key, row = _with_payload(base)
        name, start, end = row.columns[-1].pieces[-1]
        assert start < end
        files = {ending: bytearray(content) for ending, content in base.files.items()}
        files[name][end - 1] ^= 1
        damaged = {ending: bytes(content) for ending, content in files.items()}
        hit = {
            number
            for number, row in base.rows["events"].items()
            if layout.taken(damaged, row.own) != layout.taken(base.files, row.own)
        }
        assert hit == {key}
        assert key not in Judge(base, base, damaged).untouched["events"]
        if name == "":  # a WAL frame fails its checksum
            path = tmp_path / f"{base.session_id}.sqlite"
            bases.put(damaged, path)
            now, was = plain.stored(path), _rows(base)
            assert {k for k in was["events"] if now["events"][k] != was["events"][k]} == {key}


@pytest.mark.parametrize("kind", sorted(kinds.KINDS))
def test_every_kind_changes_the_files(kind: str, pool: list[Base]) -> None:
    """A kind without effect would test nothing."""
    for seed in range(100):
        dice = random.Random(seed)
        base, foreign = dice.sample(pool, 2)
        try:
            damaged = kinds.damage(kind, base, foreign, dice)
        except kinds.Unfit:
            continue
        if damaged != base.files:
            return
    pytest.fail("it fits no session, or has no effect")


def _rows(base: Base) -> Rows:
    return {
        name: {key: row.values for key, row in rows.items()} for name, rows in base.rows.items()
    }


def _with_payload(base: Base) -> tuple[Values, Row]:
    return next(found for found in base.rows["events"].items() if found[1].values[-1])


def _judge(base: Base, pool: list[Base]) -> Judge:
    return Judge(base, pool[0] if base is not pool[0] else pool[1], base.files)


def _recovery(base: Base) -> Recovery:
    """Return the report of a recovery that corrected nothing."""
    return Recovery(
        session_id=base.session_id,
        path=Path(base.session_id),
        original=None,
        report=None,
        aside=None,
        recovered_at=datetime.now(UTC),
        reasons=(),
        tables=tuple(TableRecovery(table=table, kept=0, routes={}) for table in TABLES),
        derived=(),
        notes=(),
    )


def test_the_judge_accepts_a_healthy_session(pool: list[Base]) -> None:
    """Every row is there."""
    judge = _judge(pool[0], pool)
    rows = _rows(pool[0])
    assert list(judge.rows(rows, None)) == []
    assert judge.lost(rows) == []
    assert judge.saved == sum(map(len, rows.values()))


@pytest.mark.parametrize("name", TABLES)
def test_the_judge_reports_a_changed_row(name: str, pool: list[Base]) -> None:
    """No value of an undamaged row may differ."""
    rows = _rows(pool[0])
    key, values = next(iter(rows[name].items()))
    rows[name][key] = (*values[:-1], "changed")
    assert len(list(_judge(pool[0], pool).rows(rows, None))) == 1


def test_the_judge_reports_rows_that_did_not_exist(pool: list[Base]) -> None:
    """Invented, or from another session."""
    rows, others = _rows(pool[0]), _rows(pool[1])
    rows["events"][998,] = (998, *rows["events"][1,][1:])
    rows["events"][999,] = (999, "made up", *rows["events"][1,][2:])
    rows["events"][150,] = others["events"][150,]
    moved, made_up, foreign = _judge(pool[0], pool).rows(rows, None)
    assert "row 1 under the number 998" in moved
    assert "did not exist" in made_up
    assert "another session" in foreign


def test_the_judge_accepts_damaged_bytes(pool: list[Base]) -> None:
    """A payload with a flipped byte may be kept as it is now, but not as anything else."""
    base = pool[1]
    key, row = _with_payload(base)
    name, start, _end = row.columns[-1].pieces[0]
    main = bytearray(base.files[name])
    main[start] ^= 1
    judge = Judge(base, pool[0], base.files | {name: bytes(main)})
    payload = row.values[-1]
    rows = _rows(base)
    report = _recovery(base)
    rows["events"][key] = (*row.values[:-1], bytes([payload[0] ^ 1]) + payload[1:])
    assert list(judge.rows(rows, report)) == []
    rows["events"][key] = (*row.values[:-1], bytes([payload[0] ^ 2]) + payload[1:])
    assert len(list(judge.rows(rows, report))) == 1


def test_the_judge_reports_lost_rows(pool: list[Base]) -> None:
    """Those that SQLite alone reads, and undamaged ones."""
    rows, readable = _rows(pool[0]), {name: set(found) for name, found in _rows(pool[0]).items()}
    del rows["cost_ledger"][1,]
    judge = _judge(pool[0], pool)
    assert judge.lost(rows) == ["cost_ledger (1,)"]
    assert len(list(judge.less_than_plain(rows, readable))) == 1


def test_the_judge_reports_lost_evidence(pool: list[Base], tmp_path: Path) -> None:
    """The damaged bytes must lie under the old name or a .corrupt one, with their WAL."""
    base = pool[0]
    judge, path = _judge(base, pool), tmp_path / f"{base.session_id}.sqlite"
    bases.put(base.files, path)
    assert list(judge.evidence(path)) == []
    path.rename(f"{path}.corrupt")
    Path(f"{path}-wal").rename(f"{path}.corrupt-wal")
    assert list(judge.evidence(path)) == []
    Path(f"{path}.corrupt-wal").write_bytes(b"other")
    assert len(list(judge.evidence(path))) == 1


def test_a_plain_connection_reads_what_it_can(pool: list[Base], tmp_path: Path) -> None:
    """With a leaf of the events gone, the rows before and behind it are still read."""
    base = pool[1]
    leaves = base.layout.with_role("leaf events")
    damaged = bytearray(base.files[""])
    start = (leaves[len(leaves) // 2] - 1) * base.layout.page_size
    damaged[start : start + base.layout.page_size] = bytes(base.layout.page_size)
    path = tmp_path / "x.sqlite"
    path.write_bytes(damaged)
    with closing(sqlite3.connect(path)) as driver, pytest.raises(sqlite3.DatabaseError):
        driver.execute("SELECT * FROM events").fetchall()
    read = plain.readable(path, _rows(base))["events"]
    assert {(1,), (200,)} < read < set(base.rows["events"])


def test_the_command_prints_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A healthy file has no finding; the files of a case with one are kept."""
    arguments = ["1", "--bases", "2", "--keep", str(tmp_path)]
    monkeypatch.setattr("tests.damage.kinds.KINDS", {})
    assert main(arguments) == 0
    assert "1 cases, 0 with findings" in capsys.readouterr().out
    monkeypatch.setattr("tests.damage.soak.renamed", lambda _path: True)
    assert main(arguments) == 1
    assert "seed 1 case 0 (sound: " in capsys.readouterr().out
    (kept,) = tmp_path.iterdir()
    names = {place.name for place in kept.iterdir()}
    assert names == {"sessions", "damaged", "healthy", "findings.txt"}


def test_the_command_prints_shares(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line for each pass; without the table pages, a page of events is lost."""
    monkeypatch.setattr("tests.damage.kinds.KINDS", {"magic": kinds.KINDS["header magic"]})
    monkeypatch.setattr("tests.damage.oddities.ODDITIES", {})
    assert main(["2", "--bases", "2", "--shares"]) == 0
    first, _head, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith("all passes: ")
    lost = {line[:20].strip(): line[20:].split()[0] for line in lines}
    assert tuple(lost) == shares.NAMES
    assert lost["table pages"] != "0" == lost["counters"]


def test_only_a_pass_can_be_left_out() -> None:
    """A misspelt name would leave nothing out."""
    with pytest.raises(ValueError, match="pages"), shares.without("pages"):
        pass
