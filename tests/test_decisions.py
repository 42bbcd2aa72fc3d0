"""The decision records are one sequence of pages, and their index and all references are true."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "decisions"
RECORDS = sorted(path for path in FOLDER.glob("*.md") if path.name != "README.md")
PARTS = ["Context", "Options measured", "Choice", "Consequences"]
MAX_LINES = 60
HEAD = re.compile(r"# (\d{4}) (.+)\n\nStatus: (.+)\nDate: (\d{4}-\d{2}-\d{2})\n\n")
STATUS = re.compile(r"(accepted|superseded)\b")
REFERENCE = re.compile(r"\bdecisions/(\d{4})(-[a-z0-9-]+\.md)?")
SUFFIXES = {".c", ".md", ".mako", ".py", ".sh", ".toml"}


def head(path: Path) -> tuple[str, str, str, str]:
    """Return number, title, status and date of a record."""
    match = HEAD.match(path.read_text(encoding="utf-8"))
    assert match is not None, path.name
    number, title, status, day = match.groups()
    return number, title, status, day


def documents_and_sources() -> list[Path]:
    """Return every file of the repository that may refer to a record."""
    folders = ("benchmarks", "docs", "migrations", "src", "tests", "tools")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    files += [*ROOT.glob("*.md"), ROOT / "Makefile", ROOT / "pyproject.toml"]
    return [path for path in files if path.suffix in SUFFIXES or path.name == "Makefile"]


def test_the_numbers_are_one_sequence() -> None:
    """Records are numbered from 0001 on, without a gap, in order of their dates."""
    expected = [f"{number:04}" for number in range(1, len(RECORDS) + 1)]
    assert [path.name[:4] for path in RECORDS] == expected
    assert [head(path)[0] for path in RECORDS] == expected
    days = [head(path)[3] for path in RECORDS]
    assert days == sorted(days)


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name)
def test_a_record_is_one_page_with_four_parts(path: Path) -> None:
    """Every record has a status, a date, the four parts in order, and at most a page."""
    text = path.read_text(encoding="utf-8")
    _number, _title, status, day = head(path)
    assert STATUS.match(status)
    assert date.fromisoformat(day).isoformat() == day
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == PARTS
    assert re.fullmatch(r"\d{4}-[a-z0-9-]+\.md", path.name)
    assert len(text.splitlines()) <= MAX_LINES


def test_a_superseding_record_exists_and_is_later() -> None:
    """A status that names another record names a later one."""
    for path in RECORDS:
        number, _title, status, _day = head(path)
        later = re.findall(r"\d{4}", status)
        assert bool(later) == ("superseded" in status), path.name
        assert all(number < other <= RECORDS[-1].name[:4] for other in later), path.name


def test_the_index_lists_every_record() -> None:
    """The index has one row per record, with its title, status and date, and nothing else."""
    index = (FOLDER / "README.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| \[(\d{4})\]\((.+?)\) \| (.+?) \| (.+?) \| (.+?) \|$", index, re.MULTILINE
    )
    expected = []
    for path in RECORDS:
        number, title, status, day = head(path)
        expected.append((number, path.name, title, status, day))
    assert rows == expected


def test_every_reference_points_to_a_record() -> None:
    """Each ``decisions/NNNN`` in sources and documents names a record; links have its file name."""
    names = {path.name[:4]: path.name for path in RECORDS}
    wrong = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in documents_and_sources()
        for match in REFERENCE.finditer(path.read_text(encoding="utf-8", errors="replace"))
        if match[1] not in names or (match[2] and match[1] + match[2] != names[match[1]])
    ]
    assert wrong == []


def test_records_link_to_records_by_name() -> None:
    """A link between records leads to the record whose number it shows."""
    for path in RECORDS:
        for number, target in re.findall(r"\[(\d{4})\]\((.+?)\)", path.read_text(encoding="utf-8")):
            assert target.startswith(number), path.name
            assert (FOLDER / target).is_file(), path.name
