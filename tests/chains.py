"""A chain with versions 2 to 5, and programs that work with it: in this process, or as a copy.

The released chain has one version, so what migrations must do is shown on a longer one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from unittest.mock import patch

import statebackend
from statebackend.schema import migrate
from statebackend.schema.migrate import Chain
from statebackend.sqlite import engine

# What were imported while a test plays a later version would keep that version.
for _found in walk_packages(statebackend.__path__, "statebackend."):
    if not _found.name.endswith("__main__"):
        import_module(_found.name)

ROOT = Path(__file__).resolve().parent.parent
LATER = ROOT / "tests" / "data" / "chain"
SAMPLE = ROOT / "tests" / "data" / "version-1" / "01JGFJJZ00000000000000000R.sqlite"

REVISION = '''"""A step of a test.

Revision ID: {revision}
Revises: {before}
"""

revision = {revision!r}
down_revision = {before!r}
branch_labels = None
depends_on = None


def upgrade(op):
    """Do what the test wants."""
{body}
'''


def revision(number: int, body: str) -> str:
    """Return the source of a revision whose ``upgrade(op)`` has this body."""
    indented = "".join(f"    {line}\n" for line in body.splitlines())
    return REVISION.format(revision=f"{number:04}", before=f"{number - 1:04}", body=indented)


def make_chain(folder: Path, version: int, bodies: Mapping[int, str] | None = None) -> Chain:
    """Return a chain up to *version*: the released one, then the test's, then these *bodies*."""
    versions = folder / "migrations" / "sessions"
    if not versions.exists():
        shutil.copytree(ROOT / "migrations", versions.parent)
    for path in LATER.glob("*.py"):
        if int(path.name[:4]) <= version and int(path.name[:4]) not in (bodies or {}):
            shutil.copy(path, versions)
    for number, body in (bodies or {}).items():
        (versions / f"{number:04}_test.py").write_text(revision(number, body), encoding="utf-8")
    return Chain(versions, version)


@contextmanager
def program_of(chain: Chain) -> Iterator[None]:
    """Let this process be a later version of the package, which works with *chain*."""
    with ExitStack() as stack:
        for module in list(sys.modules.values()):
            if (
                module.__name__.startswith("statebackend.")
                and getattr(module, "SCHEMA_VERSION", None) == migrate.SESSIONS.version
            ):
                stack.enter_context(patch.object(module, "SCHEMA_VERSION", chain.version))
        stack.enter_context(patch.object(migrate, "SESSIONS", chain))
        yield


def copy_program(folder: Path, version: int, bodies: Mapping[int, str] | None = None) -> Path:
    """Copy the package as a wheel would install it, at a later version; return where to import it.

    For tests with several processes, and with an older and a newer program at once.
    """
    site = folder / "site-packages"
    package = site / "statebackend"
    shutil.copytree(
        ROOT / "src" / "statebackend", package, ignore=shutil.ignore_patterns("__pycache__")
    )
    make_chain(package, version, bodies)
    shutil.copy(ROOT / "alembic.ini", package)
    values = package / "values" / "recorded.py"
    text = values.read_text(encoding="utf-8")
    changed = text.replace("SCHEMA_VERSION = 1\n", f"SCHEMA_VERSION = {version}\n")
    assert changed != text or version == migrate.SESSIONS.version
    values.write_text(changed, encoding="utf-8")
    return site


def environment(site: Path | None = None) -> dict[str, str]:
    """Return the environment of a child that imports the copy in *site*, or the checkout."""
    return {**os.environ, "PYTHONPATH": str(site or ROOT / "src"), "PYTHONWARNINGS": "error"}


def start(code: str, *arguments: object, site: Path | None = None) -> subprocess.Popen[str]:
    """Start a Python process that runs *code* with *arguments*."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=environment(site),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(code: str, *arguments: object, site: Path | None = None) -> str:
    """Run *code* in a process of its own and return what it printed; it must succeed."""
    process = start(code, *arguments, site=site)
    printed, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return printed


def upgrade_file(path: Path, chain: Chain) -> int:
    """Migrate the file *path* by the runner alone, without the procedure of open."""
    connection = engine.connect_for_writing(path)
    try:
        return migrate.upgrade(connection, path, chain)
    finally:
        connection.close()
