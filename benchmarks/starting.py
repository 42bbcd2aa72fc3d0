"""Starting: what the import and the command line cost above a bare interpreter."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from benchmarks.lab import Lab
from benchmarks.measure import AnswersDiffer, Figure, above_bare, interleave
from benchmarks.processes import run_python
from benchmarks.samples import mixed, new_session
from statebackend import StateBackend

_ROUNDS, _SMOKE_ROUNDS = 15, 3
_SESSIONS = 10
_HEAVY = ("sqlalchemy", "alembic")
_LOADED = f"import sys; print(*[name for name in {_HEAVY} if name in sys.modules])"
_LIST_THEN_LOADED = (
    "import atexit, sys; from statebackend.cli import main; sys.argv = ['statebackend', 'list']; "
    f"atexit.register(lambda: print('loaded:', *[n for n in {_HEAVY} if n in sys.modules])); main()"
)


def importing(lab: Lab) -> Iterator[Figure]:
    """Import the package in a new process, against a new process that does nothing."""
    loaded = run_python("-c", f"import statebackend; {_LOADED}").split()
    if loaded:
        raise AnswersDiffer(f"`import statebackend` loads {', '.join(loaded)}")
    with lab.folder() as folder:
        compiled = _compiled_into(folder)
        times = interleave(
            lambda: run_python("-c", "import statebackend", **compiled),
            lambda: run_python("-c", "pass", **compiled),
            rounds=lab.size(_ROUNDS, _SMOKE_ROUNDS),
        )
    yield above_bare("import statebackend, above bare Python", times, target_ms=40)


def listing(lab: Lab) -> Iterator[Figure]:
    """List ten sessions with the command, against a new process that does nothing."""
    with lab.folder() as folder:
        ids = [_small_session(folder / "agent" / "sessions", seed) for seed in range(_SESSIONS)]
        compiled = _compiled_into(folder / "compiled")
        state = {"XDG_STATE_HOME": str(folder), **compiled}
        _check_listing(run_python("-c", _LIST_THEN_LOADED, **state), ids)
        times = interleave(
            lambda: run_python("-m", "statebackend", "list", **state),
            lambda: run_python("-c", "pass", **compiled),
            rounds=lab.size(_ROUNDS, _SMOKE_ROUNDS),
        )
    what = f"statebackend list, {_SESSIONS} sessions, above bare Python"
    yield above_bare(what, times, target_ms=120)


def _compiled_into(folder: Path) -> dict[str, str]:
    """Return the environment in which modules are compiled once, as an installer does it."""
    return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder)}


def _small_session(directory: Path, seed: int) -> str:
    directory.parent.mkdir(exist_ok=True)
    return new_session(StateBackend(directory), list(islice(mixed(seed), 10)))


def _check_listing(output: str, ids: list[str]) -> None:
    shown, loaded = output.rsplit("loaded:", 1)
    missing = [session_id for session_id in ids if session_id not in shown]
    if missing:
        raise AnswersDiffer(f"`statebackend list` does not show {', '.join(missing)}")
    if loaded.strip():
        raise AnswersDiffer(f"`statebackend list` loads {loaded.strip()}")
