"""Every demand has a test, and docs/conformance.md lists them."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.demands import DEMANDS, NOT_BUILT_YET


@pytest.fixture(scope="module")
def tool(root: Path) -> dict[str, Any]:
    """Return the functions of the program that prints the table."""
    return runpy.run_path(str(root / "tools" / "conformance_table.py"))


def test_the_ids_are_the_whole_list() -> None:
    """SB-01 to SB-41, each once, in order, and what is not built is among them."""
    assert list(DEMANDS) == [f"SB-{number:02}" for number in range(1, 42)]
    assert set(DEMANDS) >= NOT_BUILT_YET


def test_every_demand_that_is_claimed_has_a_test(tool: dict[str, Any]) -> None:
    """A test with its mark, and with its id in the name, exists for each demand that is built."""
    tested = tool["tests_of_demands"]()
    claimed = [demand for demand in DEMANDS if demand not in NOT_BUILT_YET]
    assert [demand for demand in claimed if demand not in tested] == []
    for demand in claimed:
        names = [name for names in tested[demand].values() for name in names]
        assert any(demand.replace("-", "").lower() in name for name in names), demand


def test_no_test_claims_what_is_not_a_demand(tool: dict[str, Any]) -> None:
    """Every mark names a demand of the list that is not said to be missing."""
    assert set(tool["tests_of_demands"]()) <= set(DEMANDS) - NOT_BUILT_YET


def test_the_page_shows_the_current_table(root: Path, tool: dict[str, Any]) -> None:
    """docs/conformance.md has the table that the script prints (`--write` puts it there)."""
    page = (root / "docs" / "conformance.md").read_text(encoding="utf-8")
    with_table: Callable[[str], str] = tool["with_table"]
    assert with_table(page) == page
