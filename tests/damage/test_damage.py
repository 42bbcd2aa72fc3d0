"""Sessions damaged in every way that is known: what is saved, and that the judge of it is awake."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from statebackend import Recovery, TableRecovery
from tests.damage import bases, kinds, layout, plain
from tests.damage.__main__ import LEAST_SHARE, main, share, table
from tests.damage.bases import PLANS, SHORT, Base, Plan
from tests.damage.checks import Judge
from tests.damage.layout import TABLES, Row, Values
from tests.damage.plain import Rows
from tests.damage.soak import Soak

_SEED = 20


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> list[Base]:
    """Return two sessions with all kinds of rows, with a log and without, and a killed one."""
    plans = (Plan(60, (0, 9_000), logged=True), Plan(200, (0, 900), page_size=512, rebuilt=True))
    return bases.pool(tmp_path_factory.mktemp("pool"), plans, seed=_SEED)


@pytest.mark.crash
def test_each_kind_of_damage_once(tmp_path: Path) -> None:
    """No row that never was, no evidence gone, nothing lost that could be read."""
    _soak(tmp_path, 60, PLANS[:SHORT])


@pytest.mark.slow
@pytest.mark.crash
def test_each_kind_of_damage_several_times(tmp_path: Path) -> None:
    """The same with more and larger sessions."""
    _soak(tmp_path, 150, PLANS)


def _soak(folder: Path, count: int, plans: tuple[Plan, ...]) -> None:
    cases = list(Soak(folder / "run", folder / "keep", _SEED, plans).cases(count))
    found = [f"case {one.number} ({one.kind}): {line}" for one in cases for line in one.findings]
    assert not found, "\n".join([f"seed {_SEED}", *found])
    assert share(cases) >= LEAST_SHARE, "\n".join(table(cases))


def test_the_walker_finds_what_sqlite_finds(pool: list[Base], tmp_path: Path) -> None:
    """Every row of every session, value by value, from the bytes alone."""
    for base in pool:
        path = tmp_path / f"{base.session_id}.sqlite"
        bases.put(base.files, path)
        assert _rows(base) == plain.stored(path)


def test_the_walker_knows_which_bytes_a_row_is_made_of(pool: list[Base], tmp_path: Path) -> None:
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
        if name == "":  # in the log, SQLite's own sum refuses it
            path = tmp_path / f"{base.session_id}.sqlite"
            bases.put(damaged, path)
            now, was = plain.stored(path), _rows(base)
            assert {k for k in was["events"] if now["events"][k] != was["events"][k]} == {key}


@pytest.mark.parametrize("kind", sorted(kinds.KINDS))
def test_every_kind_changes_the_files(kind: str, pool: list[Base]) -> None:
    """A kind that did nothing would show nothing."""
    for seed in range(100):
        dice = random.Random(seed)
        base, foreign = dice.sample(pool, 2)
        try:
            damaged = kinds.damage(kind, base, foreign, dice)
        except kinds.Unfit:
            continue
        if damaged != base.files:
            return
    pytest.fail("it suits no session, or does nothing")


def _rows(base: Base) -> Rows:
    return {
        name: {key: row.values for key, row in rows.items()} for name, rows in base.rows.items()
    }


def _with_payload(base: Base) -> tuple[Values, Row]:
    return next(found for found in base.rows["events"].items() if found[1].values[-1])


def _judge(base: Base, pool: list[Base]) -> Judge:
    return Judge(base, pool[0] if base is not pool[0] else pool[1], base.files)


def _recovery(base: Base) -> Recovery:
    """Return the report of a recovery that put nothing right."""
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


def test_the_judge_is_content_with_a_healthy_session(pool: list[Base]) -> None:
    """All is found, nothing is lost."""
    judge = _judge(pool[0], pool)
    rows = _rows(pool[0])
    assert list(judge.rows(rows, None)) == []
    assert judge.lost(rows) == []
    assert judge.saved == sum(map(len, rows.values()))


@pytest.mark.parametrize("name", TABLES)
def test_the_judge_finds_a_changed_row(name: str, pool: list[Base]) -> None:
    """Where the damage left a row alone, none of its values may differ."""
    rows = _rows(pool[0])
    key, values = next(iter(rows[name].items()))
    rows[name][key] = (*values[:-1], "changed")
    assert len(list(_judge(pool[0], pool).rows(rows, None))) == 1


def test_the_judge_finds_rows_that_never_were(pool: list[Base]) -> None:
    """Made up, or from another session."""
    rows, others = _rows(pool[0]), _rows(pool[1])
    rows["events"][998,] = (998, *rows["events"][1,][1:])
    rows["events"][999,] = (999, "made up", *rows["events"][1,][2:])
    rows["events"][150,] = others["events"][150,]
    moved, made_up, foreign = _judge(pool[0], pool).rows(rows, None)
    assert "row 1 under the number 998" in moved
    assert "never was" in made_up
    assert "another session" in foreign


def test_the_judge_allows_what_the_damage_wrote(pool: list[Base]) -> None:
    """A payload byte that was turned over may be kept as it is now, but not as anything else."""
    base = pool[1]
    key, row = _with_payload(base)
    name, start, _end = row.columns[-1].pieces[0]
    main = bytearray(base.files[name])
    main[start] ^= 1
    judge = Judge(base, pool[0], base.files | {name: bytes(main)})
    payload = row.values[-1]
    rows = _rows(base)
    told = _recovery(base)
    rows["events"][key] = (*row.values[:-1], bytes([payload[0] ^ 1]) + payload[1:])
    assert list(judge.rows(rows, told)) == []
    rows["events"][key] = (*row.values[:-1], bytes([payload[0] ^ 2]) + payload[1:])
    assert len(list(judge.rows(rows, told))) == 1


def test_the_judge_misses_rows(pool: list[Base]) -> None:
    """What SQLite alone reads, and what the damage left alone."""
    rows, readable = _rows(pool[0]), {name: set(found) for name, found in _rows(pool[0]).items()}
    del rows["cost_ledger"][1,]
    judge = _judge(pool[0], pool)
    assert judge.lost(rows) == ["cost_ledger (1,)"]
    assert len(list(judge.less_than_plain(rows, readable))) == 1


def test_the_judge_misses_evidence(pool: list[Base], tmp_path: Path) -> None:
    """The damaged bytes must lie under the old name or a .corrupt one, the log with them."""
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
    """A sound file has no finding; one that is not what it should be is kept, and told."""
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
