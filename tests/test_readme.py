"""The code in the README runs, and the links of the documents exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def run_block(name: str, state_home: Path) -> list[str]:
    """Run the block that is marked *name*, and return the lines it prints."""
    block = re.search(rf"<!-- {name} -->\n```python\n(.*?)```", README, re.DOTALL)
    assert block is not None
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block[1]],
        env={**os.environ, "XDG_STATE_HOME": str(state_home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_quick_start_runs_as_written(tmp_path: Path) -> None:
    """The code block prints the four events, the status with the cost, and the listing."""
    lines = run_block("quickstart", tmp_path)
    assert [line.split()[:2] for line in lines[:4]] == [
        ["1", "message"],
        ["2", "message"],
        ["3", "tool_call"],
        ["4", "tool_result"],
    ]
    assert lines[4] == "completed 0.0021"
    assert len(list((tmp_path / "agent" / "sessions").glob("*.sqlite"))) == 1


def test_the_asyncio_example_runs_as_written(tmp_path: Path) -> None:
    """The code block prints its one event."""
    assert run_block("asyncio", tmp_path) == ["1 b'hello'"]


def test_every_link_of_the_documents_leads_somewhere() -> None:
    """No relative link of a document points to a missing file."""
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    missing = [
        f"{document.relative_to(ROOT)}: {link}"
        for document in documents
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text())
        if not (document.parent / link).exists()
    ]
    assert missing == []


def test_nothing_outside_the_repository_is_referred_to() -> None:
    """Sources and documents do not name files outside the repository."""
    folders = ("src", "docs", "migrations", "benchmarks")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    texts = [path for path in files if path.suffix in {".py", ".md", ".mako", ".toml", ".ini"}]
    outside = [path for path in texts if ".." + "/shared" in path.read_text(errors="replace")]
    assert outside == []
