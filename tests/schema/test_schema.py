"""One schema, told three times: the specification's text, the revisions, the mapped tables."""

from __future__ import annotations

import re
import shutil
import sqlite3
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from statebackend.schema import migrate, models
from statebackend.schema.migrate import SESSIONS, Chain
from statebackend.sqlite import engine
from tests import fingerprints, released_files, revisions
from tests.chains import ROOT, SAMPLE, make_chain, revision
from tests.data import make_sample
from tests.drifts import DRIFTS, Drift, drifted

SPECIFICATION = ROOT.parent / "shared" / "spec" / "state-backend.md"


@pytest.fixture
def migrated() -> Iterator[sqlite3.Connection]:
    """Return a new database, made by the revisions."""
    connection = engine.connect_in_memory()
    migrate.upgrade(connection, Path(":memory:"))
    yield engine.driver_of(connection)
    connection.close()


def _specified() -> str:
    """Return the DDL of the specification, as one script."""
    if not SPECIFICATION.is_file():
        pytest.skip("the specification does not lie beside this checkout")
    text = SPECIFICATION.read_text(encoding="utf-8")
    statements = re.findall(r"^CREATE (?:TABLE|INDEX) .*?;$", text, re.DOTALL | re.MULTILINE)
    assert len(statements) == 7
    return "\n".join(statements)


@pytest.mark.conformance("SB-09", "SB-15")
def test_a_file_has_the_specified_structure(migrated: sqlite3.Connection) -> None:
    """What the revisions make is what the specification says, column by column."""
    expected = fingerprints.of_ddl(_specified())
    assert fingerprints.differences(expected, fingerprints.of_connection(migrated)) == []


@pytest.mark.conformance("SB-09")
def test_a_file_has_the_specified_text(migrated: sqlite3.Connection) -> None:
    """SQLite keeps the specification's own statements, comments included."""
    specified = {statement.strip() for statement in re.split(r";\n", _specified() + "\n")}
    stored = migrated.execute("SELECT sql FROM sqlite_schema WHERE sql NOT NULL").fetchall()
    assert {sql for (sql,) in stored} - {"CREATE TABLE sqlite_sequence(name,seq)"} == {
        statement for statement in specified if statement
    }


@pytest.mark.conformance("SB-09")
def test_the_models_have_the_structure_of_a_file(migrated: sqlite3.Connection) -> None:
    """The mapped tables and the revisions agree, column by column (report 40)."""
    found = fingerprints.of_metadata(models.Base.metadata)
    assert fingerprints.differences(fingerprints.of_connection(migrated), found) == []


def test_a_created_session_has_that_structure_too(
    migrated: sqlite3.Connection, tmp_path: Path
) -> None:
    """The file that ``create`` builds, and the stored sample, are as the revisions make them."""
    expected = fingerprints.of_connection(migrated)
    for path in (make_sample.make(tmp_path / "sessions"), SAMPLE):
        assert fingerprints.differences(expected, fingerprints.of_file(path)) == []


def test_alembic_finds_no_difference() -> None:
    """Autogenerate has nothing to say about a new file."""
    connection = engine.connect_in_memory()
    migrate.upgrade(connection, Path(":memory:"))
    options = {"compare_type": True, "compare_server_default": True}
    context = MigrationContext.configure(connection, opts=options)
    assert compare_metadata(context, models.Base.metadata) == []
    connection.close()


# -- drift -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("drift", DRIFTS, ids=lambda drift: drift.name)
def test_a_drift_is_caught(drift: Drift) -> None:
    """Each of fifty seeded drifts makes the structure differ."""
    expected = fingerprints.of_metadata(models.Base.metadata)
    found = fingerprints.of_ddl(drifted(drift))
    assert fingerprints.differences(expected, found) != []


def test_there_are_fifty_drifts_and_the_documents_name_them() -> None:
    """The table in the documents has each of them, caught, and says what Alembic finds."""
    text = (ROOT / "docs" / "migrations.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \| caught \| (caught|missed) \|$", text, re.MULTILINE)
    assert len(DRIFTS) == 50
    assert rows == [
        (drift.name, "caught" if _alembic_finds(drift) else "missed") for drift in DRIFTS
    ]


def _alembic_finds(drift: Drift) -> bool:
    connection = engine.connect_in_memory()
    try:
        driver = engine.driver_of(connection)
        for statement in drifted(drift):
            driver.execute(statement)
        options = {"compare_type": True, "compare_server_default": True}
        context = MigrationContext.configure(connection, opts=options)
        with warnings.catch_warnings():  # Alembic says that it skips expressions in indexes
            warnings.simplefilter("ignore")
            return bool(compare_metadata(context, models.Base.metadata))
    finally:
        connection.close()


def test_wording_is_no_drift() -> None:
    """Quotes, comments, case of keywords, and where a constraint stands do not count."""
    one = "CREATE TABLE a (x INTEGER NOT NULL UNIQUE, y TEXT REFERENCES b(z))"
    other = (
        'create table "a" ( -- a comment, with CHECK in it\n'
        '  "x" INTEGER not null, /* AUTOINCREMENT */ [y] TEXT, '
        "UNIQUE (x), FOREIGN KEY (`y`) REFERENCES b (z))"
    )
    assert fingerprints.differences(fingerprints.of_ddl(one), fingerprints.of_ddl(other)) == []


def test_a_difference_is_told_in_words() -> None:
    """A line names the object and what is missing or unexpected."""
    one, other = ("CREATE TABLE a (x INTEGER)", "CREATE TABLE a (x TEXT)")
    found = fingerprints.differences(fingerprints.of_ddl(one), fingerprints.of_ddl(other))
    assert found == [
        "a: missing column 0 x INTEGER 0 None 0 0",
        "a: unexpected column 0 x TEXT 0 None 0 0",
    ]


def test_a_fingerprint_leaves_the_file_and_its_folder_alone(tmp_path: Path) -> None:
    """Neither bytes nor sidecars come from looking."""
    shutil.copy(SAMPLE, tmp_path)
    before = released_files.contents(tmp_path)
    fingerprints.of_file(tmp_path / SAMPLE.name)
    assert released_files.contents(tmp_path) == before


# -- the revisions and the samples -----------------------------------------------------------------


def test_the_released_revisions_are_sound() -> None:
    """One line, numbered without gaps, no downgrade, nothing dangerous, none changed."""
    assert revisions.problems() == []


def test_the_revisions_of_the_tests_are_sound(tmp_path: Path) -> None:
    """The check also passes what a real change would look like."""
    assert revisions.problems(make_chain(tmp_path, 5)) == []


PROBLEMS = {
    "imports alembic.op": ("from alembic import op\n", "pass", "alembic.op"),
    "imports the package": ("import statebackend.models\n", "pass", "statebackend"),
    "imports from the package": ("from statebackend import ids\n", "pass", "statebackend"),
    "batch_alter_table": ("", "op.batch_alter_table('events')", "rebuild_table"),
    "autocommit_block": ("", "op.get_context().autocommit_block()", "transaction"),
    "commit": ("", "op.get_bind().commit()", "transaction"),
    "executescript": ("", "x = op.get_bind().connection.executescript", "transaction"),
    "downgrade": ("def downgrade(op): ...\n", "pass", "downgrade"),
    "other number": ("revision = '0009'\n", "pass", "must be '0006'"),
    "branch": ("down_revision = '0004'\n", "pass", "must be '0005'"),
}


@pytest.mark.parametrize("header,body,expected", PROBLEMS.values(), ids=PROBLEMS.keys())
def test_an_unsound_revision_is_found(
    tmp_path: Path, header: str, body: str, expected: str
) -> None:
    """Whatever could not be undone, would not be found, or would change later is told."""
    chain = make_chain(tmp_path, 6, {6: body})
    path = chain.versions / "0006_test.py"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("\n\ndef upgrade", f"\n{header}\n\ndef upgrade"), encoding="utf-8")
    (problem,) = revisions.problems(chain)
    assert problem.startswith("0006_test.py: ")
    assert expected in problem


def test_a_gap_and_a_second_head_are_found(tmp_path: Path) -> None:
    """Numbers go from 0001 to the version without a gap, and each is there once."""
    chain = make_chain(tmp_path, 5)
    (chain.versions / "0005_again.py").write_text(revision(5, "pass"), encoding="utf-8")
    assert any("0005 0005" in problem for problem in revisions.problems(chain))
    (chain.versions / "0005_again.py").unlink()
    (chain.versions / "0003_cost_index.py").unlink()
    assert any("0002 0004" in problem for problem in revisions.problems(chain))


def test_a_missing_upgrade_is_found(tmp_path: Path) -> None:
    """A revision is given its operations."""
    chain = make_chain(tmp_path, 2)
    path = chain.versions / "0002_event_size.py"
    path.write_text(path.read_text().replace("(op: Operations)", "()"), encoding="utf-8")
    assert revisions.problems(chain) == ["0002_event_size.py: has no upgrade(op)"]


def _released(tmp_path: Path) -> Chain:
    chain = make_chain(tmp_path, 3)
    assert revisions.release(chain) == ["0002", "0003"]
    return chain


def test_an_edit_to_a_released_revision_is_found(tmp_path: Path) -> None:
    """What files were migrated by stays as it was; a missing one is found as well."""
    chain = _released(tmp_path)
    assert revisions.problems(chain) == []
    path = chain.versions / "0003_cost_index.py"
    path.write_text(path.read_text() + "\n# changed\n", encoding="utf-8")
    assert revisions.problems(chain) == [
        "0003_cost_index.py: is released, and was changed: add a new revision"
    ]
    path.unlink()
    assert "0003: is released, and gone" in revisions.problems(chain)


def test_line_ends_are_no_edit(tmp_path: Path) -> None:
    """A checkout with CRLF has the same revisions, also in the list of them (report 37)."""
    chain = _released(tmp_path)
    for path in [*chain.versions.glob("*.py"), chain.versions / "released.txt"]:
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert revisions.problems(chain) == []


def test_every_released_version_has_a_sample() -> None:
    """For each released revision there is a stored file of that version."""
    stored = sorted(path.name for path in (ROOT / "tests" / "data").glob("version-*"))
    assert stored == [f"version-{int(number)}" for number in revisions.released()]
    assert len(stored) == SESSIONS.version


@pytest.mark.parametrize("sample", sorted((ROOT / "tests/data").glob("version-*/*.sqlite")))
def test_a_sample_opens_and_keeps_every_row(sample: Path, tmp_path: Path) -> None:
    """A stored file of every released version opens for writing, with every row and digest."""
    assert released_files.problems(sample, tmp_path) == []
    assert released_files.rows(sample)["events"].count == 1000


def test_a_lost_row_is_found(tmp_path: Path) -> None:
    """The check of a sample is not satisfied by a file that merely opens."""
    sample = Path(shutil.copy(SAMPLE, tmp_path))
    shutil.copy(SAMPLE.with_suffix(".json"), tmp_path)
    driver = sqlite3.connect(sample, isolation_level=None)
    driver.execute("UPDATE events SET payload = X'00' WHERE sequence = 500")
    driver.close()
    (problem,) = released_files.problems(sample, tmp_path / "opened")
    assert "events holds" in problem


def test_the_sample_is_made_the_same_each_time(tmp_path: Path) -> None:
    """The script that made the stored sample makes its rows again."""
    made = make_sample.make(tmp_path / "sessions")
    assert made.name == SAMPLE.name
    assert released_files.rows(made) == released_files.rows(SAMPLE)
