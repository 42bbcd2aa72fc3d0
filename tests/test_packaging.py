"""The built wheel, installed in a clean environment elsewhere, does the package's job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("wheel")]

Run = Callable[..., str]
# How pip says that it could not ask an index, as against having found something wrong.
UNREACHABLE = ("Retrying (", "Could not fetch URL", "NewConnectionError", "timed out")


def run(command: list[str | Path], folder: Path, environment: dict[str, str]) -> str:
    """Run *command* in *folder* and return what it printed; fail with all of it otherwise."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that has nothing to do with the checkout."""
    return tmp_path_factory.mktemp("elsewhere")


@pytest.fixture(scope="module")
def environment(elsewhere: Path, child_environment: dict[str, str]) -> dict[str, str]:
    """Return variables under which only what is installed can be imported."""
    cleaned = {name: value for name, value in child_environment.items() if name != "PYTHONPATH"}
    return cleaned | {"XDG_STATE_HOME": str(elsewhere / "state"), "PYTHONWARNINGS": "error"}


@pytest.fixture(scope="module")
def built(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the source archive, and the wheel from it, and return their folder."""
    target = tmp_path_factory.mktemp("dist")
    environment = dict(os.environ)
    command: list[str | Path] = [sys.executable, "-m", "build", "--no-isolation", "--outdir"]
    run([*command, target, root], target, environment)
    return target


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    """Return the built wheel."""
    (wheel,) = built.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def contents(wheel: Path) -> set[str]:
    """Return the names of the files in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def programs(wheel: Path, elsewhere: Path, root: Path, environment: dict[str, str]) -> Path:
    """Install the wheel with its requirements and return the folder of the programs."""
    run([sys.executable, "-m", "venv", elsewhere / "venv"], elsewhere, environment)
    programs = elsewhere / "venv" / "bin"
    pip: list[str | Path] = [programs / "python", "-m", "pip"]
    pip += ["--disable-pip-version-check", "install"]
    try:
        # pip of an older Python warns about itself.
        lenient = environment | {"PYTHONWARNINGS": "default"}
        run([*pip, "--constraint", root / "constraints.txt", wheel], elsewhere, lenient)
    except AssertionError as error:
        if "CI" in os.environ or not any(sign in str(error) for sign in UNREACHABLE):
            raise
        pytest.skip("pip reaches no package index, so the wheel's requirements cannot be had")
    return programs


@pytest.fixture(scope="module")
def python(programs: Path, elsewhere: Path, environment: dict[str, str]) -> Run:
    """Return a function that runs code with the wheel's Python."""
    return lambda code: run([programs / "python", "-c", code], elsewhere, environment)


@pytest.fixture(scope="module")
def statebackend(programs: Path, elsewhere: Path, environment: dict[str, str]) -> Run:
    """Return a function that runs the installed program."""
    return lambda *words: run([programs / "statebackend", *words], elsewhere, environment)


def test_the_wheel_holds_the_revisions(root: Path, contents: set[str]) -> None:
    """Every revision, and what Alembic needs to run them, is in the wheel."""
    files = {path for path in (root / "migrations").rglob("*") if "__pycache__" not in path.parts}
    shipped = {f"statebackend/{path.relative_to(root)}" for path in files if path.is_file()}
    assert contents >= shipped | {"statebackend/alembic.ini"}
    assert "statebackend/migrations/sessions/0001_initial.py" in shipped


def test_the_wheel_holds_types_and_samples(root: Path, contents: set[str]) -> None:
    """Type checkers see the annotations, and the bundled samples can be imported."""
    samples = (root / "src/statebackend/samples").rglob("*")
    shipped = {str(path.relative_to(root / "src")) for path in samples if path.is_file()}
    assert shipped
    assert contents >= shipped | {"statebackend/py.typed"}


def test_the_wheel_holds_nothing_else(contents: set[str]) -> None:
    """No tests, no caches and nothing beside the package and its metadata."""
    assert {name.partition("/")[0].partition("-")[0] for name in contents} == {"statebackend"}
    assert not [name for name in contents if "__pycache__" in name or "/tests/" in name]


def test_the_wheel_records_and_reads(python: Run) -> None:
    """A session made by the installed wheel, its revisions run, reads back as it was written."""
    printed = python(
        "from statebackend import EventKind, Producer, StateBackend\n"
        "backend = StateBackend()\n"
        "name = '01ARZ3NDEKTSV4RRFFQ69G5FAV'\n"
        "with backend.create(profile='wheel', session_id=name) as session:\n"
        "    session.append(EventKind.TOOL_CALL, producer=Producer('tool', 'shell', '1'),\n"
        "                   payload=b'\\x00\\xff', schema_version='1')\n"
        "with backend.read(name) as view:\n"
        "    print([event.payload for event in view.events()])\n"
    )
    assert printed == "[b'\\x00\\xff']\n"


def test_the_wheel_uses_its_own_revisions(python: Run, programs: Path) -> None:
    """The revisions that run are those inside the installed package."""
    printed = python("from statebackend.schema.migrate import scripts; print(scripts().dir)")
    assert Path(printed.strip()).is_relative_to(programs.parent)


def test_the_wheel_lists(python: Run, statebackend: Run) -> None:
    """The installed program lists a session from the user's state folder."""
    made = python(
        "from statebackend import StateBackend\n"
        "with StateBackend().create(profile='listed') as session: print(session.session_id)"
    ).strip()
    listed = json.loads(statebackend("list", "--profile", "listed", "--json"))
    assert [session["session_id"] for session in listed] == [made]


def test_the_wheel_imports_its_sample(python: Run, statebackend: Run) -> None:
    """The bundled sample goes in, from wherever the wheel was installed."""
    sample = python(
        "from importlib.resources import files\n"
        "print(files('statebackend') / 'samples' / 'claude_code')"
    ).strip()
    created = json.loads(statebackend("import", sample, "--json"))
    assert created


def test_the_module_runs_as_a_program(programs: Path, elsewhere: Path) -> None:
    """`python -m statebackend` is the same program."""
    printed = run(
        [programs / "python", "-m", "statebackend", "--help"], elsewhere, dict(os.environ)
    )
    assert "list" in printed
